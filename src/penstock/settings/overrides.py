"""Limits of single queues and namespaces, from JSON or from a table of the file; every slip has its path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.core.admission import Field
from penstock.settings.declared import LineSaid, Said
from penstock.settings.json_text import Members
from penstock.settings.limit_values import line_value
from penstock.settings.nearest import nearest
from penstock.settings.override_keys import ALL, FORMS, OverrideKey, parse_key
from penstock.settings.told import Place, Told, shown
from penstock.settings.unfit import Unfit, quoted

KIND_OF = {"workflow_tasks": "workflow", "activity_tasks": "activity"}
ALIASES = {"max_active_leases": Field.QUEUE_LEASES, "budget_group": Field.GROUP}
FIELDS: Mapping[str, Field] = {**{each.value: each for each in Field}, **ALIASES}

_KINDS = " and ".join(KIND_OF)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What could be read, and which sections could not be read whole."""

    lines: dict[LineSaid, Said] = field(default_factory=dict)
    spoilt: set[tuple[OverrideKey, str]] = field(default_factory=set)
    """By key and kind: what is missing there may only be misspelt."""


def read_overrides(value: object, place: Place, told: Told) -> Overrides:
    """Limits by key, kind and name. A limit of null asks for the default; a key or kind of null says nothing."""
    found = Overrides()
    seen: dict[OverrideKey, str] = {}
    for name, sections, at in members(value, place, told, f"must hold limits by queue: {FORMS}"):
        try:
            key = parse_key(name)
        except Unfit as unfit:
            told.refuse(at.source, at.path, unfit.message)
            continue
        if key in seen:
            told.refuse(at.source, at.path, f"is the same key as {quoted(seen[key])}: keep one of them")
            continue
        seen[key] = name
        _warn_of_stars(key, at, told)
        _read_kinds(key, sections, at, told, found)
    return found


def members(value: object, place: Place, told: Told, otherwise: str) -> Iterator[tuple[str, object, Place]]:
    """What an object or a table holds, with the place of each; a null holds nothing."""
    if value is None:
        return
    if not isinstance(value, dict):
        told.refuse(place.source, place.path, f"{otherwise}, not {shown(value)}")
        return
    if isinstance(value, Members):
        for name in value.repeated:
            at = place.at(name)
            told.refuse(at.source, at.path, "stands here more than once: keep one of them")
    for name, inner in value.items():
        yield name, inner, place.at(name)


def unknown(name: str, candidates: Iterable[str]) -> str:
    """What to say of a name that there is not."""
    known = list(candidates)
    meant = nearest(name, known)
    return f"unknown; did you mean {meant}?" if meant else f"unknown; there are {', '.join(known)}"


def _read_kinds(key: OverrideKey, value: object, place: Place, told: Told, found: Overrides) -> None:
    before = len(told.problems)
    for name, section, at in members(value, place, told, f"must hold {_KINDS}"):
        if name in KIND_OF:
            _read_section(key, KIND_OF[name], section, at, told, found)
        else:
            told.refuse(at.source, at.path, _no_kind(name))
            found.spoilt.update((key, kind) for kind in KIND_OF.values())
    if len(told.problems) > before and not isinstance(value, dict):
        found.spoilt.update((key, kind) for kind in KIND_OF.values())


def _no_kind(name: str) -> str:
    if name in FIELDS:
        return f"belongs one level deeper, into {' or '.join(KIND_OF)}"
    if name in ("query_tasks", "query_task"):
        return "query tasks have one limit, for every queue: DW_QUERY_TASK_MAX_PENDING_PER_QUEUE"
    return unknown(name, KIND_OF)


def _read_section(
    key: OverrideKey, kind: str, value: object, place: Place, told: Told, found: Overrides
) -> None:
    before = len(told.problems)
    said: dict[str, Said] = {}
    for name, inner, at in members(value, place, told, "must hold limits"):
        if name not in FIELDS:
            told.refuse(at.source, at.path, unknown(name, FIELDS))
        else:
            try:
                value = None if inner is None else line_value(FIELDS[name], inner)
                said[name] = Said(value, at.path, at.source)
            except Unfit as unfit:
                told.refuse(at.source, at.path, unfit.message)
    if len(told.problems) > before:
        found.spoilt.add((key, kind))
    _refuse_two_readings(said, told)
    for name in sorted(said, key=lambda each: each in ALIASES):  # of two names for one limit, the alias wins
        found.lines[str(key), kind, FIELDS[name]] = said[name]


def _refuse_two_readings(said: Mapping[str, Said], told: Told) -> None:
    for alias, what in ALIASES.items():
        one, other = said.get(alias), said.get(what.value)
        if one is not None and other is not None and one.value != other.value:
            told.refuse(
                one.source,
                one.path,
                f"says {shown(one.value)} and {what.value} beside it says {shown(other.value)},"
                " though they are one limit: keep one of them",
            )


def _warn_of_stars(key: OverrideKey, place: Place, told: Told) -> None:
    if key.queue is not None and ALL in key.queue:
        told.caution(
            place.source,
            place.path,
            f"is for the one queue of this very name; a star is no pattern, and {FORMS}",
        )
