"""Budget groups of the file: what several queues share because they lean on one downstream."""

from __future__ import annotations

from penstock.core.admission import EVERYWHERE, LEASES_MAX, group_scope
from penstock.core.windows import PER_MINUTE_MAX
from penstock.settings.declared import Part, Said
from penstock.settings.limit_values import group_name, whole, window
from penstock.settings.override_keys import namespace_name
from penstock.settings.overrides import members, unknown
from penstock.settings.told import Place, Told, shown
from penstock.settings.unfit import Unfit

NAMESPACES = "namespaces"
ALL_NAMESPACES = "all"
_MOST = {Part.LEASES: LEASES_MAX, Part.DISPATCHES: PER_MINUTE_MAX, Part.COST: PER_MINUTE_MAX}
_LIMITS = ", ".join(_MOST)


def read_groups(value: object, place: Place, told: Told) -> dict[tuple[str, Part], Said]:
    """The limits of each group by scope: one for all namespaces, or one in each that the group names."""
    found: dict[tuple[str, Part], Said] = {}
    for name, table, at in members(value, place, told, "must hold a table for each budget group"):
        try:
            found |= _read_group(group_name(name), table, at, told)
        except Unfit as unfit:
            told.refuse(at.source, at.path, unfit.message)
    return found


def _read_group(group: str, table: object, place: Place, told: Told) -> dict[tuple[str, Part], Said]:
    before = len(told.problems)
    said: dict[Part, Said] = {}
    namespaces = [EVERYWHERE]
    for name, inner, at in members(table, place, told, f"must hold {_LIMITS}"):
        try:
            if name == NAMESPACES:
                namespaces = _namespaces(inner)
            elif name in list(Part):
                said[Part(name)] = Said(_value(Part(name), inner), at.path, at.source)
            else:
                told.refuse(at.source, at.path, unknown(name, (*Part, NAMESPACES)))
        except Unfit as unfit:
            told.refuse(at.source, at.path, unfit.message)
    if len(told.problems) == before and not said.keys() - {Part.WINDOW}:
        told.refuse(place.source, place.path, f"a group without a limit: give it one of {_LIMITS}")
    return {
        (group_scope(namespace, group), part): each for namespace in namespaces for part, each in said.items()
    }


def _value(part: Part, value: object) -> int | str:
    return window(value).value if part is Part.WINDOW else whole(value, _MOST[part])


def _namespaces(value: object) -> list[str]:
    if value == ALL_NAMESPACES:
        return [EVERYWHERE]
    if not isinstance(value, list) or not value:
        raise Unfit(f'must be "{ALL_NAMESPACES}" or a list of namespaces, not {_listed(value)}')
    return list(dict.fromkeys(namespace_name(each) for each in value))


def _listed(value: object) -> str:
    return "an empty one" if value == [] else shown(value)
