"""Whether a worker that starts may change a cap, decided from what is in force.

Every worker of an app sends the caps of its `AppConfig` when it starts, and during a rollout workers of the old and
of the new configuration start in any order. A cap is a safety limit, so the rules err on the strict side:

* a cap that a configuration does not name is left alone;
* a limit that an operator set, or a lower one that the servers declare, is left in force;
* a lower value takes effect at once;
* a higher value needs a `caps_version` above the recorded one; a worker can never lift a cap;
* a configuration with a `caps_version` below the recorded one changes nothing.

So the order in which workers start does not matter: of each app the lowest value of its highest `caps_version` counts,
and the lowest of these is in force in the end (`cap-order-independent` in the property tests). "The last worker to
start wins" was rejected because a worker of the old release that restarts would undo the new cap.

Several apps may name one cap: a queue that they share, or all activities of the namespace. Each has a claim of its own,
to which these rules apply, and the lowest claim is in force. So an app that raises its claim never raises the cap above
the claim of another app. The claim of an app that is gone stays until an operator resets the cap.

The claims are kept as the reason that is recorded with the limit, the one in force first, so that the change history
names the apps and their `caps_version`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits.policies import REASON_MAX

_PREFIX = "AppConfig of "
_OTHER = rf"; {_PREFIX}(.+?), caps_version (\d+): (\d+)"
_REASON = re.compile(
    rf"{_PREFIX}(?P<app>.+?)(?:, caps_version (?P<version>\d+))?(?P<others>(?:{_OTHER})*)", re.DOTALL
)


class Declarant(Struct, frozen=True):
    """The configuration that asks for a cap, or that set it."""

    app: str
    version: int = 0

    @property
    def reason(self) -> str:
        """The reason that is recorded with the limit."""
        return f"{_PREFIX}{self.app}, caps_version {self.version}"


class CapClaim(Struct, frozen=True):
    """The cap that one app wants."""

    declarant: Declarant
    value: int


class LiveCap(Struct, frozen=True):
    """A cap that was set while servers run."""

    value: int
    declarant: Declarant | None
    """The configuration whose claim is in force. None: an operator set the cap."""
    others: tuple[CapClaim, ...] = ()
    """Claims of other apps, none of them lower."""

    @property
    def reason(self) -> str:
        """The claims as text. Where there is no room for all, the highest are left out."""
        assert self.declarant is not None, "a reason of an operator is their own"
        text = self.declarant.reason
        for each in self.others:
            more = f"; {each.declarant.reason}: {each.value}"
            if len(text) + len(more) > REASON_MAX:
                break
            text += more
        return text

    @property
    def claims(self) -> Mapping[str, CapClaim]:
        """The claim of each app."""
        assert self.declarant is not None, "an operator makes no claim"
        own = CapClaim(self.declarant, self.value)
        return {each.declarant.app: each for each in (own, *self.others)}


def parse_live_cap(value: int, reason: str | None) -> LiveCap:
    """A live cap, from its value and the recorded reason."""
    found = _REASON.fullmatch(reason or "")
    if found is None:
        return LiveCap(value, None)
    others = [
        CapClaim(Declarant(app, int(of)), int(most)) for app, of, most in re.findall(_OTHER, found["others"])
    ]
    return LiveCap(value, Declarant(found["app"], int(found["version"] or 0)), tuple(others))


class CapOutcome(StrEnum):
    """The outcome for the cap of a configuration."""

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
    """The servers now declare a lower cap, which replaces the one set by a configuration."""
    RECORDED = "recorded"
    """The claim of another app is lower and stays in force; this one is recorded beside it."""
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
    {
        CapOutcome.SET,
        CapOutcome.LOWERED,
        CapOutcome.RAISED,
        CapOutcome.CONFIRMED,
        CapOutcome.HANDED_BACK,
        CapOutcome.RECORDED,
    },
)


def decide(wanted: int | None, by: Declarant, live: LiveCap | None, declared: int | None) -> CapOutcome:
    """What a starting worker does with one cap. `declared` is the cap of the servers' own configuration."""
    if wanted is None:
        return CapOutcome.UNNAMED
    if live is None:
        above = declared is not None and wanted > declared
        return CapOutcome.KEPT_SERVER if above else CapOutcome.SET
    if live.declarant is None:
        return CapOutcome.IN_FORCE if live.value == wanted else CapOutcome.KEPT_OPERATOR
    if declared is not None and declared < min(wanted, live.value):
        return CapOutcome.HANDED_BACK
    after = resolve_claims(wanted, by, live)
    if (after.value, after.reason) == (live.value, live.reason):
        return _unchanged(wanted, by, live)
    if declared is not None and after.value > max(declared, live.value):
        return CapOutcome.KEPT_SERVER
    if after.value != live.value:
        return CapOutcome.LOWERED if after.value < live.value else CapOutcome.RAISED
    return CapOutcome.CONFIRMED if wanted == after.value else CapOutcome.RECORDED


def resolve_claims(wanted: int, by: Declarant, live: LiveCap | None) -> LiveCap:
    """The cap with the claim of a starting worker: its value, and the claims to record."""
    if live is None:
        return LiveCap(wanted, by)
    claims = dict(live.claims)
    claims[by.app] = _claim(CapClaim(by, wanted), claims.get(by.app))
    held_by = live.declarant
    assert held_by is not None, "claims are made beside other claims"

    def rank(claim: CapClaim) -> tuple[int, bool, str]:
        return claim.value, claim.declarant.app != held_by.app, claim.declarant.app

    lowest, *others = sorted(claims.values(), key=rank)
    return replace(live, value=lowest.value, declarant=lowest.declarant, others=tuple(others))


def _claim(new: CapClaim, recorded: CapClaim | None) -> CapClaim:
    """The claim of an app after a start: a lower version changes nothing, and only a higher one raises it."""
    if recorded is None:
        return new
    is_newer = new.declarant.version > recorded.declarant.version
    if new.declarant.version < recorded.declarant.version or (new.value > recorded.value and not is_newer):
        return recorded
    return new


def _unchanged(wanted: int, by: Declarant, live: LiveCap) -> CapOutcome:
    """Why a start changes nothing."""
    if wanted == live.value:
        return CapOutcome.IN_FORCE
    recorded = live.claims.get(by.app)
    if recorded is None or recorded.value == wanted:
        return CapOutcome.KEPT_OTHER_APP
    return CapOutcome.KEPT_NEWER if by.version < recorded.declarant.version else CapOutcome.KEPT_LOWER
