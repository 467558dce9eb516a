"""Limits of admission, from settings and from the tables of the file, as one declaration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.limits.admission import EVERYWHERE, KINDS, LimitField, group_scope
from penstock.schema.paths import KeyPath, shown_path
from penstock.schema.problems import InvalidValue, shown
from penstock.schema.shapes import ShapeReader
from penstock.settings.declared_limits import DeclaredLimits, LimitEntry, LineField, ScopeField
from penstock.settings.diagnostics import Diagnostics
from penstock.settings.limits.consistency import check_consistency
from penstock.settings.limits.limit_shapes import (
    ADMISSION_TABLE,
    ALIASES,
    CLUSTER_CAPS,
    DEFAULTS,
    FIELDS,
    GROUPS,
    KIND_OF,
    NAMESPACES,
    QUEUES,
    SETTING_AT,
    PlacedValue,
)
from penstock.settings.limits.override_keys import ALL, FORMS, OverrideKey, parse_key
from penstock.settings.values import SettingValues

OVERRIDES = "DW_TASK_QUEUE_ADMISSION_OVERRIDES"


@dataclass(frozen=True, slots=True)
class AdmissionTable:
    """The table `[admission]` of a file: settings with their values, and the tables that no setting covers."""

    settings: list[tuple[str, PlacedValue]] = field(default_factory=list)
    queues: PlacedValue | None = None
    groups: PlacedValue | None = None


def read_admission_table(table: PlacedValue, diagnostics: Diagnostics) -> AdmissionTable:
    """Split the table into settings and nested tables, and report unknown keys."""
    placed: dict[KeyPath, PlacedValue] = {}

    def keep(value: object, path: KeyPath) -> None:
        placed[path[len(table.path) :]] = PlacedValue(value, path, table.origin_of)

    reader = ShapeReader((), table.origin_of, unset=None, kept=keep)
    reader.read(ADMISSION_TABLE, table.value, table.path)
    diagnostics.add(reader.problems)
    queues, groups = placed.pop(("queues",), None), placed.pop(("groups",), None)
    return AdmissionTable([(SETTING_AT[path], each) for path, each in placed.items()], queues, groups)  # type: ignore[index]


def read_limits(
    values: SettingValues, queues: PlacedValue | None, groups: PlacedValue | None, diagnostics: Diagnostics
) -> DeclaredLimits:
    """All declared limits. If `diagnostics` has problems afterwards, the result must not be used."""
    if queues is None and values.is_set(OVERRIDES):
        source = values.source(OVERRIDES)
        queues = PlacedValue(values.raw(OVERRIDES), (OVERRIDES,), lambda _: source)
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
    invalid: set[tuple[OverrideKey, str]] = set()
    if queues is not None:
        overrides, invalid = _read_overrides(queues, diagnostics)
        lines |= overrides
    before = len(diagnostics.problems)
    if groups is not None:
        scopes |= _read_groups(groups, diagnostics)
    limits = DeclaredLimits(lines, scopes)
    unread = {entry for name, entry in DEFAULTS.items() if not values.has(name)}
    if len(diagnostics.problems) > before:
        unread |= {(kind, LimitField.GROUP_DISPATCHES) for kind in KINDS}
    check_consistency(limits, invalid, unread, diagnostics)
    return limits


def _setting(values: SettingValues, name: str) -> LimitEntry | None:
    value = values.maybe(name, int)
    return None if value is None else LimitEntry(value, name, values.source(name))


def _read_overrides(
    table: PlacedValue, diagnostics: Diagnostics
) -> tuple[dict[LineField, LimitEntry], set[tuple[OverrideKey, str]]]:
    """Limits by key, kind and name, and the sections with problems. A null limit selects the default."""
    reader = table.reader()
    found = reader.read(QUEUES, table.value, table.path)
    diagnostics.add(reader.problems)
    _warn_of_stars(table, diagnostics)
    lines: dict[LineField, LimitEntry] = {}
    for key, sections in found.items():
        for name, section in sections.items():
            _refuse_two_readings(section, diagnostics)
            for limit in sorted(section, key=lambda each: each in ALIASES):  # of two names the alias wins
                lines[str(key), KIND_OF[name], FIELDS[limit]] = section[limit]
    return lines, set(_invalid_sections(reader.refused, len(table.path)))


def _warn_of_stars(table: PlacedValue, diagnostics: Diagnostics) -> None:
    for name in table.value if isinstance(table.value, dict) else ():
        queue = name.partition(":")[2] if ":" in name else name
        if ALL in queue and queue != ALL:
            at = (*table.path, name)
            diagnostics.caution(
                LimitEntry(None, shown_path(at), table.origin_of(at)),
                f"is for the one queue of this very name; a star is no pattern, and {FORMS}",
            )


def _refuse_two_readings(section: Mapping[str, LimitEntry], diagnostics: Diagnostics) -> None:
    for alias, what in ALIASES.items():
        one, other = section.get(alias), section.get(what.value)
        if one is not None and other is not None and one.value != other.value:
            diagnostics.refuse(
                one,
                f"says {shown(one.value)} and {what.value} beside it says {shown(other.value)},"
                " though they are one limit: keep one of them",
            )


def _invalid_sections(refused: Iterable[KeyPath], depth: int) -> Iterator[tuple[OverrideKey, str]]:
    """The sections with problems, in which a missing value may be misspelt: one kind of task, or both."""
    for path in refused:
        try:
            key = parse_key(str(path[depth])) if len(path) > depth else OverrideKey(None, None)
        except InvalidValue:
            continue
        kinds = [KIND_OF[str(name)] for name in path[depth + 1 : depth + 2] if name in KIND_OF]
        yield from ((key, kind) for kind in kinds or KINDS)


def _read_groups(table: PlacedValue, diagnostics: Diagnostics) -> dict[tuple[str, ScopeField], LimitEntry]:
    """The limits of each group by scope: one for all namespaces, or one in each that the group names."""
    reader = table.reader()
    found: dict[tuple[str, ScopeField], LimitEntry] = {}
    for group, held in reader.read(GROUPS, table.value, table.path).items():
        namespaces: Any = held[NAMESPACES].value if NAMESPACES in held else (EVERYWHERE,)
        for namespace in namespaces:
            scope = group_scope(namespace, group)
            found |= {(scope, part): held[part.value] for part in ScopeField if part.value in held}
    diagnostics.add(reader.problems)
    return found
