"""Limits of admission, from settings and from the tables of the file, as one declaration."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.limits.admission import KINDS, LimitField, cluster_scope
from penstock.settings.catalogue import PREFIX
from penstock.settings.declared_limits import DeclaredLimits, LimitEntry, LineField, ScopeField
from penstock.settings.diagnostics import ConfigPath, Diagnostics
from penstock.settings.limits.budget_groups import read_groups
from penstock.settings.limits.consistency import check_consistency
from penstock.settings.limits.overrides import Overrides, read_overrides
from penstock.settings.values import SettingValues

OVERRIDES = "DW_TASK_QUEUE_ADMISSION_OVERRIDES"

DEFAULTS = {
    f"{PREFIX}{kind.upper()}_TASK_{what.upper()}": (kind, what)
    for kind in KINDS
    for what in (
        LimitField.QUEUE_LEASES,
        LimitField.NAMESPACE_LEASES,
        LimitField.QUEUE_DISPATCHES,
        LimitField.NAMESPACE_DISPATCHES,
    )
}
"""The settings with the default limits of every queue and namespace."""

CLUSTER_CAPS = {
    "DW_MAX_ACTIVE_LEASES_PER_CLUSTER": cluster_scope(),
    **{f"{PREFIX}{kind.upper()}_TASK_MAX_ACTIVE_LEASES_PER_CLUSTER": cluster_scope(kind) for kind in KINDS},
}


@dataclass(frozen=True, slots=True)
class UnreadTable:
    """A table of the file, unread."""

    value: object
    place: ConfigPath


def read_limits(
    values: SettingValues, queues: UnreadTable | None, groups: UnreadTable | None, diagnostics: Diagnostics
) -> DeclaredLimits:
    """All declared limits. If `diagnostics` has problems afterwards, the result must not be used."""
    overrides = _overrides(values, queues, diagnostics)
    lines: dict[LineField, LimitEntry] = {
        (None, kind, what): entry
        for name, (kind, what) in DEFAULTS.items()
        if (entry := _setting(values, name)) is not None
    }
    scopes = {
        (scope, ScopeField.LEASES): entry
        for name, scope in CLUSTER_CAPS.items()
        if (entry := _setting(values, name)) is not None
    }
    before = len(diagnostics.problems)
    if groups is not None:
        scopes |= read_groups(groups.value, groups.place, diagnostics)
    limits = DeclaredLimits(lines | overrides.lines, scopes)
    unread = {entry for name, entry in DEFAULTS.items() if not values.has(name)}
    if len(diagnostics.problems) > before:
        unread |= {(kind, LimitField.GROUP_DISPATCHES) for kind in KINDS}
    check_consistency(limits, overrides.invalid_names, unread, diagnostics)
    return limits


def _overrides(values: SettingValues, queues: UnreadTable | None, diagnostics: Diagnostics) -> Overrides:
    if queues is not None:
        return read_overrides(queues.value, queues.place, diagnostics)
    if not values.is_set(OVERRIDES):
        return Overrides()
    source = values.source(OVERRIDES)
    return read_overrides(values.raw(OVERRIDES), ConfigPath((OVERRIDES,), lambda _: source), diagnostics)


def _setting(values: SettingValues, name: str) -> LimitEntry | None:
    value = values.maybe(name, int)
    return None if value is None else LimitEntry(value, name, values.source(name))
