"""Whether a worker that starts may change a cap, decided from what is in force.

Every worker of an app sends the caps of its `AppConfig` when it starts, and during a rollout workers of the old and
of the new configuration start in any order. A cap is a safety limit, so the rules err on the strict side:

* a cap that a configuration does not name is left alone;
* a limit that an operator set, or a lower one that the servers declare, is left in force;
* a lower value takes effect at once;
* a higher value needs a `caps_version` above the recorded one; a worker can never lift a cap;
* a configuration with a `caps_version` below the recorded one changes nothing.

So the order in which workers start does not matter: among the configurations of one app, the lowest value of the
highest `caps_version` is in force in the end (`cap-order-independent` in the property tests). "The last worker to
start wins" was rejected because a worker of the old release that restarts would undo the new cap.

The app and its `caps_version` are part of the reason that is kept with the limit, so that the change history names
them. Versions of different apps are not comparable: another app's cap can only be lowered.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct

_PREFIX = "AppConfig of "
_REASON = re.compile(rf"{_PREFIX}(?P<app>.+?)(?:, caps_version (?P<version>\d+))?", re.DOTALL)


class Declarant(Struct, frozen=True):
    """The configuration that asks for a cap, or that set it."""

    app: str
    version: int = 0

    @property
    def reason(self) -> str:
        """The reason that is recorded with the limit."""
        return f"{_PREFIX}{self.app}, caps_version {self.version}"


def declarant_of(reason: str | None) -> Declarant | None:
    """The configuration that set a limit, from the recorded reason; None: an operator set it."""
    found = _REASON.fullmatch(reason or "")
    return None if found is None else Declarant(found["app"], int(found["version"] or 0))


class Live(Struct, frozen=True):
    """A cap that was set while servers run."""

    value: int
    declarant: Declarant | None
    """None: an operator."""


class Outcome(StrEnum):
    """What becomes of the cap of a configuration."""

    UNNAMED = "unnamed"
    """The configuration has no such cap."""
    IN_FORCE = "in_force"
    """The wanted value is in force already."""
    SET = "set"
    LOWERED = "lowered"
    RAISED = "raised"
    CONFIRMED = "confirmed"
    """The value stays, and the newer version is recorded."""
    HANDED_BACK = "handed_back"
    """The servers declare a lower cap by now, which takes the place of the one that a configuration set."""
    KEPT_OPERATOR = "kept_operator"
    KEPT_SERVER = "kept_server"
    KEPT_OTHER_APP = "kept_other_app"
    KEPT_NEWER = "kept_newer"
    KEPT_LOWER = "kept_lower"
    """A higher value without a higher version."""

    @property
    def is_change(self) -> bool:
        return self in _CHANGES

    @property
    def is_refused(self) -> bool:
        return self.value.startswith("kept_")


_CHANGES = frozenset(
    {Outcome.SET, Outcome.LOWERED, Outcome.RAISED, Outcome.CONFIRMED, Outcome.HANDED_BACK},
)


def decide(wanted: int | None, by: Declarant, live: Live | None, declared: int | None) -> Outcome:
    """What a starting worker does about one cap. `declared` is the cap of the servers' own configuration."""
    if wanted is None:
        return Outcome.UNNAMED
    if live is None:
        above = declared is not None and wanted > declared
        return Outcome.KEPT_SERVER if above else Outcome.SET
    if live.declarant is None:
        return Outcome.IN_FORCE if live.value == wanted else Outcome.KEPT_OPERATOR
    if declared is not None and declared < min(wanted, live.value):
        return Outcome.HANDED_BACK
    if live.declarant.app != by.app:
        return _beside_another_app(wanted, live.value)
    return _of_same_app(wanted, by.version, live.value, live.declarant.version, declared)


def _beside_another_app(wanted: int, value: int) -> Outcome:
    if wanted == value:
        return Outcome.IN_FORCE
    return Outcome.LOWERED if wanted < value else Outcome.KEPT_OTHER_APP


def _of_same_app(wanted: int, version: int, value: int, recorded: int, declared: int | None) -> Outcome:
    if version < recorded:
        return Outcome.IN_FORCE if wanted == value else Outcome.KEPT_NEWER
    if wanted == value:
        return Outcome.CONFIRMED if version > recorded else Outcome.IN_FORCE
    if wanted < value:
        return Outcome.LOWERED
    if declared is not None and wanted > declared:
        return Outcome.KEPT_SERVER
    return Outcome.RAISED if version > recorded else Outcome.KEPT_LOWER
