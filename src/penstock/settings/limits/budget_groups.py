"""Budget groups of the file: limits that several queues share because they call one downstream."""

from __future__ import annotations

from penstock.core.limits.admission import EVERYWHERE, LEASES_MAX, group_scope
from penstock.core.limits.windows import PER_MINUTE_MAX
from penstock.settings.declared_limits import LimitEntry, ScopeField
from penstock.settings.diagnostics import ConfigPath, Diagnostics, shown
from penstock.settings.limits.limit_values import group_name, whole, window
from penstock.settings.limits.override_keys import namespace_name
from penstock.settings.limits.overrides import members, unknown
from penstock.settings.types.invalid_value import InvalidValue

NAMESPACES = "namespaces"
ALL_NAMESPACES = "all"
_MOST = {
    ScopeField.LEASES: LEASES_MAX,
    ScopeField.DISPATCHES: PER_MINUTE_MAX,
    ScopeField.COST: PER_MINUTE_MAX,
}
_LIMITS = ", ".join(_MOST)


def read_groups(
    value: object, place: ConfigPath, diagnostics: Diagnostics
) -> dict[tuple[str, ScopeField], LimitEntry]:
    """The limits of each group by scope: one for all namespaces, or one in each that the group names."""
    found: dict[tuple[str, ScopeField], LimitEntry] = {}
    for name, table, at in members(value, place, diagnostics, "must hold a table for each budget group"):
        try:
            found |= _read_group(group_name(name), table, at, diagnostics)
        except InvalidValue as error:
            diagnostics.refuse(at.source, at.path, error.message)
    return found


def _read_group(
    group: str, table: object, place: ConfigPath, diagnostics: Diagnostics
) -> dict[tuple[str, ScopeField], LimitEntry]:
    before = len(diagnostics.problems)
    entry: dict[ScopeField, LimitEntry] = {}
    namespaces = [EVERYWHERE]
    for name, inner, at in members(table, place, diagnostics, f"must hold {_LIMITS}"):
        try:
            if name == NAMESPACES:
                namespaces = _namespaces(inner)
            elif name in list(ScopeField):
                entry[ScopeField(name)] = LimitEntry(_value(ScopeField(name), inner), at.path, at.source)
            else:
                diagnostics.refuse(at.source, at.path, unknown(name, (*ScopeField, NAMESPACES)))
        except InvalidValue as error:
            diagnostics.refuse(at.source, at.path, error.message)
    if len(diagnostics.problems) == before and not entry.keys() - {ScopeField.WINDOW}:
        diagnostics.refuse(place.source, place.path, f"a group without a limit: give it one of {_LIMITS}")
    return {
        (group_scope(namespace, group), part): each
        for namespace in namespaces
        for part, each in entry.items()
    }


def _value(part: ScopeField, value: object) -> int | str:
    return window(value).value if part is ScopeField.WINDOW else whole(value, _MOST[part])


def _namespaces(value: object) -> list[str]:
    if value == ALL_NAMESPACES:
        return [EVERYWHERE]
    if not isinstance(value, list) or not value:
        raise InvalidValue(f'must be "{ALL_NAMESPACES}" or a list of namespaces, not {_listed(value)}')
    return list(dict.fromkeys(namespace_name(each) for each in value))


def _listed(value: object) -> str:
    return "an empty one" if value == [] else shown(value)
