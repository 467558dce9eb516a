"""The shapes of declared limits: overrides by queue, in JSON or in a file, and the tables below `[admission]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.core.limits.admission import (
    EVERYWHERE,
    GROUP_NAME_MAX,
    KINDS,
    LEASES_MAX,
    LimitField,
    cluster_scope,
)
from penstock.core.limits.windows import PER_MINUTE_MAX, Window
from penstock.schema.json_object import JsonMembers
from penstock.schema.kinds import Choice, Kind, Text, Whole
from penstock.schema.paths import KeyPath, shown_path
from penstock.schema.problems import InvalidValue
from penstock.schema.shapes import Key, Shape, ShapeReader, Table, TableOf
from penstock.settings.catalogue import PREFIX
from penstock.settings.declared_limits import LimitEntry, ScopeField
from penstock.settings.limits.override_keys import CONTROL, FORMS, namespace_name, parse_key

ADMISSION = "admission"
NAMESPACES = "namespaces"
KIND_OF = {"workflow_tasks": "workflow", "activity_tasks": "activity"}
ALIASES = {"max_active_leases": LimitField.QUEUE_LEASES, "budget_group": LimitField.GROUP}
FIELDS: Mapping[str, LimitField] = {**{each.value: each for each in LimitField}, **ALIASES}

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
class PlacedValue:
    """A value of the configuration, unread, with its path and where it was given."""

    value: object
    path: KeyPath
    origin_of: Callable[[KeyPath], str]

    @property
    def origin(self) -> str:
        return self.origin_of(self.path)

    @property
    def shown(self) -> str:
        return shown_path(self.path)

    def reader(self) -> ShapeReader:
        """A reader whose values are limits with their sources; a JSON null stands for none."""
        word = JsonMembers.word if isinstance(self.value, JsonMembers) else "a table"
        return ShapeReader((), self.origin_of, unset=None, table_word=word, kept=self._entry)

    def _entry(self, value: object, path: KeyPath) -> LimitEntry:
        return LimitEntry(value, shown_path(path), self.origin_of(path))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Namespaces(Kind):
    """The namespaces that share a budget group (all), or have one each."""

    @property
    def expects(self) -> str:
        return '"all" or a list of namespaces'

    def read(self, value: object) -> tuple[str, ...]:
        if value == "all":
            return (EVERYWHERE,)
        if not isinstance(value, list):
            raise self.refuse(value)
        if not value:
            raise InvalidValue(f"must be {self.expects}, not an empty one")
        return tuple(dict.fromkeys(namespace_name(each) for each in value))


_LEASES, _PER_MINUTE = Whole(0, LEASES_MAX), Whole(0, PER_MINUTE_MAX)
_GROUP_NAME = Text(
    f"the name of a budget group: 1 to {GROUP_NAME_MAX} visible characters, no slash, no colon",
    re.compile(rf"(?!\s)[^/:{CONTROL}]+(?<!\s)"),
    GROUP_NAME_MAX,
)
_KIND_OF_FIELD: Mapping[LimitField, Kind] = {
    LimitField.QUEUE_LEASES: _LEASES,
    LimitField.NAMESPACE_LEASES: _LEASES,
    LimitField.QUEUE_DISPATCHES: _PER_MINUTE,
    LimitField.NAMESPACE_DISPATCHES: _PER_MINUTE,
    LimitField.GROUP: _GROUP_NAME,
    LimitField.GROUP_DISPATCHES: _PER_MINUTE,
}
_SECTION = Table(tuple(Key(name, _KIND_OF_FIELD[what], can_be_unset=True) for name, what in FIELDS.items()))
_QUERY_TASKS = "query tasks have one limit, for every queue: DW_QUERY_TASK_MAX_PENDING_PER_QUEUE"
_SECTIONS = Table(
    tuple(Key(name, _SECTION) for name in KIND_OF),
    instead={
        **dict.fromkeys(FIELDS, f"belongs one level deeper, into {' or '.join(KIND_OF)}"),
        **dict.fromkeys(("query_tasks", "query_task"), _QUERY_TASKS),
    },
)
QUEUES = TableOf(_SECTIONS, "queue", Text(FORMS, re.compile("(?s).*"), convert=parse_key))

_GROUP_LIMITS: Mapping[ScopeField, Kind] = {
    ScopeField.LEASES: _LEASES,
    ScopeField.DISPATCHES: _PER_MINUTE,
    ScopeField.COST: _PER_MINUTE,
}
_GROUP = Table(
    (
        *(Key(part.value, kind) for part, kind in _GROUP_LIMITS.items()),
        Key(ScopeField.WINDOW.value, Choice(Window)),
        Key(NAMESPACES, _Namespaces()),
    ),
    needs_one_of=tuple(_GROUP_LIMITS),
)
GROUPS = TableOf(_GROUP, "budget group", _GROUP_NAME)


def _setting_paths() -> Iterable[tuple[tuple[str, ...], str]]:
    names = {kind: name for name, kind in KIND_OF.items()}
    yield (ScopeField.WINDOW.value,), "DW_DISPATCH_WINDOW"
    yield ("version",), "DW_ADMISSION_VERSION"
    for setting, (kind, what) in DEFAULTS.items():
        for name in (name for name, field in FIELDS.items() if field is what):
            yield ("defaults", names[kind], name), setting
    for setting, scope in CLUSTER_CAPS.items():
        kind = scope.partition("/")[2]
        yield ("cluster", *([names[kind]] if kind else []), ScopeField.LEASES.value), setting


SETTING_AT = dict(_setting_paths())
"""The values of `[admission]` that are settings under another name."""


def _shape_of(paths: Iterable[tuple[str, ...]]) -> Shape:
    """The tables that hold these paths; the values are read elsewhere."""
    below: dict[str, list[tuple[str, ...]]] = {}
    for name, *rest in filter(None, paths):
        below.setdefault(name, []).append(tuple(rest))
    return Table(tuple(Key(name, _shape_of(rest)) for name, rest in below.items())) if below else Kind()


ADMISSION_TABLE = _shape_of([*SETTING_AT, ("queues",), ("groups",)])
