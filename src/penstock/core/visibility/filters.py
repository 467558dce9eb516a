"""Filters: tests of a run's columns and entries. Evaluated here, and compiled to SQL by the stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

from penstock.core.model import Run
from penstock.core.visibility.entries import entries
from penstock.core.visibility.sort_keys import PRESENT, ValueKind

Value: TypeAlias = str | int


class Column(StrEnum):
    """Columns of a run that filters can test; the values are column names."""

    WORKFLOW_TYPE = "workflow_type"
    WORKFLOW_ID = "workflow_id"
    RUN_ID = "run_id"
    TASK_QUEUE = "task_queue"
    BUILD_ID = "compatibility"
    BUSINESS_KEY = "business_key"
    STATUS = "status"
    CLOSED_REASON = "closed_reason"
    STARTED_AT = "started_at_ms"
    CLOSED_AT = "closed_at_ms"

    @property
    def is_instant(self) -> bool:
        return self in (Column.STARTED_AT, Column.CLOSED_AT)


class Relation(StrEnum):
    IS = "is"
    """Equal to one of the values."""
    BELOW = "below"
    AT_MOST = "at most"
    ABOVE = "above"
    AT_LEAST = "at least"
    BETWEEN = "between"
    """From the first to the second value, inclusive."""
    STARTS_WITH = "starts with"
    CONTAINS = "contains"
    PRESENT = "present"


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """A relation of a column to values; false if the column is null."""

    column: Column
    relation: Relation
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class EntryTest:
    """A relation of any sort key of an entry to sort keys of the same kind."""

    name: str
    relation: Relation
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """At least one of the parts."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Filter


Filter: TypeAlias = ColumnTest | EntryTest | All | Some | Not
EVERYTHING: Filter = All(())
OPEN: Filter = ColumnTest(Column.STATUS, Relation.IS, ("pending", "running", "waiting"))


class RunView:
    """A run with its entries, for evaluating filters."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def marks(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for name, mark in entries(self.run):
            found.setdefault(name, set()).add(mark)
        return {name: frozenset(marks) for name, marks in found.items()}

    def column(self, column: Column) -> Value | None:
        value: Value | None = getattr(self.run, column.value)
        return str(value) if isinstance(value, StrEnum) else value


def matches(wanted: Filter, view: RunView) -> bool:
    """Whether a run matches a filter."""
    return _holds(wanted, lambda test: _column_holds(test, view.column(test.column)), lambda: view.marks)


def holds_for_marks(wanted: Filter, marks: Mapping[str, Collection[str]]) -> bool:
    """Whether something that has entries and no columns matches a filter."""
    return _holds(wanted, lambda _: False, lambda: marks)


def _holds(
    wanted: Filter,
    column_holds: Callable[[ColumnTest], bool],
    marks: Callable[[], Mapping[str, Collection[str]]],
) -> bool:
    match wanted:
        case ColumnTest():
            return column_holds(wanted)
        case EntryTest(name, relation, wanted_marks):
            return _any_mark(marks().get(name, ()), relation, wanted_marks)
        case All(parts):
            return all(_holds(part, column_holds, marks) for part in parts)
        case Some(parts):
            return any(_holds(part, column_holds, marks) for part in parts)
        case Not(part):
            return not _holds(part, column_holds, marks)


def _column_holds(test: ColumnTest, value: Value | None) -> bool:
    return value is not None and (
        test.relation is Relation.PRESENT or _HOLDS[test.relation](value, test.values)
    )


def _any_mark(found: Iterable[str], relation: Relation, marks: tuple[str, ...]) -> bool:
    if relation is Relation.PRESENT:
        return PRESENT in found
    kinds = {mark[:1] for mark in marks}
    return any(mark[:1] in kinds and _HOLDS[relation](mark, marks) for mark in found)


def kind_of(mark: str) -> ValueKind:
    return ValueKind(mark[:1])


def _compared(holds: Callable[[int], bool]) -> Callable[[Value, tuple[Value, ...]], bool]:
    return lambda value, values: holds(_order(value, values[0]))


def _order(one: Value, other: Value) -> int:
    assert isinstance(one, str) is isinstance(other, str), "only values of one kind are compared"
    return (one > other) - (one < other)  # type: ignore[operator]


_HOLDS: Mapping[Relation, Callable[[Value, tuple[Value, ...]], bool]] = {
    Relation.IS: lambda value, values: value in values,
    Relation.BELOW: _compared(lambda order: order < 0),
    Relation.AT_MOST: _compared(lambda order: order <= 0),
    Relation.ABOVE: _compared(lambda order: order > 0),
    Relation.AT_LEAST: _compared(lambda order: order >= 0),
    Relation.BETWEEN: lambda value, values: _order(values[0], value) <= 0 <= _order(values[1], value),
    Relation.STARTS_WITH: lambda value, values: str(value).startswith(str(values[0])),
    Relation.CONTAINS: lambda value, values: str(values[0]) in str(value),
}
