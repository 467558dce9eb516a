"""How the limits of one server configuration replace those of another.

The limits that servers declare are one document for the cluster, and each server brings its own along when it starts.
During a rollout servers of the old and of the new configuration start in any order, so a document can carry a version
(`DW_ADMISSION_VERSION`): one with a lower version than the stored document changes nothing. Documents of the same
version replace each other, the last to start wins: an operator who edits the environment of a single server and
restarts it gets what was written, also where that lifts a limit. Merging two documents limit by limit was rejected,
because the result would be in no configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from penstock.core.limits.admission import Declaration, Section
from penstock.core.limits.policies import PolicyChange
from penstock.core.limits.rates import MICRO

HISTORY = "declaration"
"""The name of the declared limits in the change history."""

Value = int | float | str | None


class Difference(Struct, frozen=True):
    """One limit that two declarations state differently; None: not stated."""

    name: str
    """As in a configuration file, such as `queues.email.activity_tasks.max_active_leases_per_queue`."""
    before: Value
    after: Value

    @property
    def text(self) -> str:
        before, after = ("none" if each is None else str(each) for each in (self.before, self.after))
        return f"{self.name}: {before} -> {after}"


def is_older(stored: Declaration, offered: Declaration) -> bool:
    """Whether an offered declaration must not replace the stored one."""
    return offered.version < stored.version


def differences(before: Declaration, after: Declaration) -> Sequence[Difference]:
    """Every limit that changes, by name."""
    old, new = dict(_stated(before)), dict(_stated(after))
    return [
        Difference(name, old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def history_of(
    found: Sequence[Difference], version: int, at_ms: int, author: str, declared_version: int
) -> list[PolicyChange]:
    """The differences as entries of the change history."""
    reason = f"declared by the configuration of {author}, DW_ADMISSION_VERSION {declared_version}"
    return [
        PolicyChange(version, at_ms, author, each.name, None, _text(each.before), _text(each.after), reason)
        for each in found
    ]


def _text(value: Value) -> str | None:
    return None if value is None else str(value)


def _stated(declaration: Declaration) -> Iterator[tuple[str, Value]]:
    yield "version", declaration.version or None
    yield "window", declaration.window.value
    if declaration.rate_max_micro is not None:
        yield "queue_rate_max", declaration.rate_max_micro / MICRO
    yield from _sections("defaults", declaration.defaults)
    for key, sections in declaration.overrides.items():
        yield from _sections(f"queues.{key}", sections)
    for scope, said in declaration.scopes.items():
        stated: Mapping[str, Value] = {
            "max_active_leases": said.leases,
            "max_dispatches_per_minute": said.dispatches,
            "max_cost_per_minute": said.cost,
            "window": None if said.window is None else said.window.value,
        }
        yield from ((f"{scope}.{name}", value) for name, value in stated.items())


def _sections(path: str, sections: Mapping[str, Section]) -> Iterator[tuple[str, Value]]:
    for kind, section in sections.items():
        for name, value in section.items():
            yield f"{path}.{kind}_tasks.{name}", "default" if value is None else value
