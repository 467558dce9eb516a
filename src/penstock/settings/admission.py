"""Limits of admission, from settings and from the tables of the file, as one declaration."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.admission import KINDS, Field, cluster_scope
from penstock.settings.agreement import check_agreement
from penstock.settings.catalogue import PREFIX
from penstock.settings.declared import DeclaredLimits, LineSaid, Part, Said
from penstock.settings.groups import read_groups
from penstock.settings.overrides import Overrides, read_overrides
from penstock.settings.told import Place, Told
from penstock.settings.values import Values

OVERRIDES = "DW_TASK_QUEUE_ADMISSION_OVERRIDES"

DEFAULTS = {
    f"{PREFIX}{kind.upper()}_TASK_{what.upper()}": (kind, what)
    for kind in KINDS
    for what in (
        Field.QUEUE_LEASES,
        Field.NAMESPACE_LEASES,
        Field.QUEUE_DISPATCHES,
        Field.NAMESPACE_DISPATCHES,
    )
}
"""The settings that say what holds for every queue or namespace of which nothing else is said."""

CLUSTER_CAPS = {
    "DW_MAX_ACTIVE_LEASES_PER_CLUSTER": cluster_scope(),
    **{f"{PREFIX}{kind.upper()}_TASK_MAX_ACTIVE_LEASES_PER_CLUSTER": cluster_scope(kind) for kind in KINDS},
}


@dataclass(frozen=True, slots=True)
class Nested:
    """A table of the file, unread."""

    value: object
    place: Place


def read_limits(values: Values, queues: Nested | None, groups: Nested | None, told: Told) -> DeclaredLimits:
    """All that is declared. What is wrong with it is told, path by path, and then it must not be used."""
    overrides = _overrides(values, queues, told)
    lines: dict[LineSaid, Said] = {
        (None, kind, what): said
        for name, (kind, what) in DEFAULTS.items()
        if (said := _setting(values, name)) is not None
    }
    scopes = {
        (scope, Part.LEASES): said
        for name, scope in CLUSTER_CAPS.items()
        if (said := _setting(values, name)) is not None
    }
    before = len(told.problems)
    if groups is not None:
        scopes |= read_groups(groups.value, groups.place, told)
    limits = DeclaredLimits(lines | overrides.lines, scopes)
    unread = {said for name, said in DEFAULTS.items() if not values.has(name)}
    if len(told.problems) > before:
        unread |= {(kind, Field.GROUP_DISPATCHES) for kind in KINDS}
    check_agreement(limits, overrides.spoilt, unread, told)
    return limits


def _overrides(values: Values, queues: Nested | None, told: Told) -> Overrides:
    if queues is not None:
        return read_overrides(queues.value, queues.place, told)
    if not values.is_set(OVERRIDES):
        return Overrides()
    source = values.source(OVERRIDES)
    return read_overrides(values.raw(OVERRIDES), Place((OVERRIDES,), lambda _: source), told)


def _setting(values: Values, name: str) -> Said | None:
    value = values.maybe(name, int)
    return None if value is None else Said(value, name, values.source(name))
