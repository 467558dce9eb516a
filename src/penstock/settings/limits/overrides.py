"""Limits of single queues and namespaces, from JSON or from a table of the file; every slip has its path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.core.limits.admission import LimitField
from penstock.schema.nearest import nearest
from penstock.settings.declared_limits import LimitEntry, LineField
from penstock.settings.diagnostics import ConfigPath, Diagnostics, shown
from penstock.settings.limits.limit_values import line_value
from penstock.settings.limits.override_keys import ALL, FORMS, OverrideKey, parse_key
from penstock.settings.types.invalid_value import InvalidValue, quoted
from penstock.settings.types.json_text import JsonMembers

KIND_OF = {"workflow_tasks": "workflow", "activity_tasks": "activity"}
ALIASES = {"max_active_leases": LimitField.QUEUE_LEASES, "budget_group": LimitField.GROUP}
FIELDS: Mapping[str, LimitField] = {**{each.value: each for each in LimitField}, **ALIASES}

_KINDS = " and ".join(KIND_OF)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What could be read, and which sections could not be read whole."""

    lines: dict[LineField, LimitEntry] = field(default_factory=dict)
    invalid_names: set[tuple[OverrideKey, str]] = field(default_factory=set)
    """By key and kind: sections with unreadable entries, in which a missing value may be misspelt."""


def read_overrides(value: object, place: ConfigPath, diagnostics: Diagnostics) -> Overrides:
    """Limits by key, kind and name. A null limit selects the default; a null key or kind is ignored."""
    found = Overrides()
    seen: dict[OverrideKey, str] = {}
    for name, sections, at in members(value, place, diagnostics, f"must hold limits by queue: {FORMS}"):
        try:
            key = parse_key(name)
        except InvalidValue as error:
            diagnostics.refuse(at.source, at.path, error.message)
            continue
        if key in seen:
            diagnostics.refuse(
                at.source, at.path, f"is the same key as {quoted(seen[key])}: keep one of them"
            )
            continue
        seen[key] = name
        _warn_of_stars(key, at, diagnostics)
        _read_kinds(key, sections, at, diagnostics, found)
    return found


def members(
    value: object, place: ConfigPath, diagnostics: Diagnostics, otherwise: str
) -> Iterator[tuple[str, object, ConfigPath]]:
    """What an object or a table holds, with the place of each; a null holds nothing."""
    if value is None:
        return
    if not isinstance(value, dict):
        diagnostics.refuse(place.source, place.path, f"{otherwise}, not {shown(value)}")
        return
    if isinstance(value, JsonMembers):
        for name in value.repeated:
            at = place.at(name)
            diagnostics.refuse(at.source, at.path, "stands here more than once: keep one of them")
    for name, inner in value.items():
        yield name, inner, place.at(name)


def unknown(name: str, candidates: Iterable[str]) -> str:
    """The problem text for a name that is not in `candidates`."""
    known = list(candidates)
    meant = nearest(name, known)
    return (
        f"unknown; did you mean {' or '.join(meant)}?" if meant else f"unknown; there are {', '.join(known)}"
    )


def _read_kinds(
    key: OverrideKey, value: object, place: ConfigPath, diagnostics: Diagnostics, found: Overrides
) -> None:
    before = len(diagnostics.problems)
    for name, section, at in members(value, place, diagnostics, f"must hold {_KINDS}"):
        if name in KIND_OF:
            _read_section(key, KIND_OF[name], section, at, diagnostics, found)
        else:
            diagnostics.refuse(at.source, at.path, _no_kind(name))
            found.invalid_names.update((key, kind) for kind in KIND_OF.values())
    if len(diagnostics.problems) > before and not isinstance(value, dict):
        found.invalid_names.update((key, kind) for kind in KIND_OF.values())


def _no_kind(name: str) -> str:
    if name in FIELDS:
        return f"belongs one level deeper, into {' or '.join(KIND_OF)}"
    if name in ("query_tasks", "query_task"):
        return "query tasks have one limit, for every queue: DW_QUERY_TASK_MAX_PENDING_PER_QUEUE"
    return unknown(name, KIND_OF)


def _read_section(
    key: OverrideKey, kind: str, value: object, place: ConfigPath, diagnostics: Diagnostics, found: Overrides
) -> None:
    before = len(diagnostics.problems)
    entry: dict[str, LimitEntry] = {}
    for name, inner, at in members(value, place, diagnostics, "must hold limits"):
        if name not in FIELDS:
            diagnostics.refuse(at.source, at.path, unknown(name, FIELDS))
        else:
            try:
                value = None if inner is None else line_value(FIELDS[name], inner)
                entry[name] = LimitEntry(value, at.path, at.source)
            except InvalidValue as error:
                diagnostics.refuse(at.source, at.path, error.message)
    if len(diagnostics.problems) > before:
        found.invalid_names.add((key, kind))
    _refuse_two_readings(entry, diagnostics)
    for name in sorted(entry, key=lambda each: each in ALIASES):  # of two names for one limit, the alias wins
        found.lines[str(key), kind, FIELDS[name]] = entry[name]


def _refuse_two_readings(entry: Mapping[str, LimitEntry], diagnostics: Diagnostics) -> None:
    for alias, what in ALIASES.items():
        one, other = entry.get(alias), entry.get(what.value)
        if one is not None and other is not None and one.value != other.value:
            diagnostics.refuse(
                one.source,
                one.path,
                f"says {shown(one.value)} and {what.value} beside it says {shown(other.value)},"
                " though they are one limit: keep one of them",
            )


def _warn_of_stars(key: OverrideKey, place: ConfigPath, diagnostics: Diagnostics) -> None:
    if key.queue is not None and ALL in key.queue:
        diagnostics.caution(
            place.source,
            place.path,
            f"is for the one queue of this very name; a star is no pattern, and {FORMS}",
        )
