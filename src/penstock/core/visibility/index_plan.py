"""Index planning: which ranges of which index contain all runs that match a filter.

A store reads the ranges of one plan, newest first, and tests what it finds against the whole filter. So the cost of a
page depends on its ranges, never on the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.core.visibility.filters import (
    All,
    Column,
    ColumnTest,
    EntryTest,
    Filter,
    Not,
    Relation,
    Some,
)
from penstock.core.visibility.sort_keys import PRESENT

RANGES_MAX: Final = 8
"""Most ranges of a plan; each is read separately."""
PLANS_MAX: Final = 4
"""Most plans that are compared."""
FIRST_MS: Final = -(2**62)
LAST_MS: Final = 2**62


class IndexKey(StrEnum):
    """The indexes, each ordered newest first within a value; the most selective ones first."""

    RUN_ID = "run id"
    WORKFLOW_ID = "workflow id"
    BUSINESS_KEY = "business key"
    ENTRY = "entry"
    END = "end"
    TASK_QUEUE = "task queue"
    WORKFLOW_TYPE = "workflow type"
    ALL = "all"


OPEN_END: Final = "open"
"""The indexed close reason of open runs."""


@dataclass(frozen=True, order=True, slots=True)
class IndexRange:
    """The runs with one value in one index."""

    by: IndexKey
    value: str = ""
    name: str = ""
    """The name of an entry."""


IndexPlan = tuple[IndexRange, ...]
"""Ranges that together contain all matching runs."""
FULL_SCAN: Final[IndexPlan] = (IndexRange(IndexKey.ALL),)

_COLUMNS: Final = {
    Column.RUN_ID: IndexKey.RUN_ID,
    Column.WORKFLOW_ID: IndexKey.WORKFLOW_ID,
    Column.BUSINESS_KEY: IndexKey.BUSINESS_KEY,
    Column.TASK_QUEUE: IndexKey.TASK_QUEUE,
    Column.WORKFLOW_TYPE: IndexKey.WORKFLOW_TYPE,
    Column.CLOSED_REASON: IndexKey.END,
}
REASONS_OF_STATUS: Final = {
    "pending": (OPEN_END,),
    "running": (OPEN_END,),
    "waiting": (OPEN_END,),
    "completed": ("completed", "continued"),
    "failed": ("failed", "timed_out"),
    "cancelled": ("cancelled",),
    "terminated": ("terminated",),
}
_RANK: Final = {by: rank for rank, by in enumerate(IndexKey)}


def index_plans(wanted: Filter) -> Sequence[IndexPlan]:
    """The possible plans for a filter, the most selective first; at least one."""
    found = sorted(set(_drivers(wanted)), key=lambda driver: (_rank(driver), driver))
    return found[:PLANS_MAX] or (FULL_SCAN,)


def _rank(driver: IndexPlan) -> tuple[int, int]:
    return max(_RANK[each.by] for each in driver), len(driver)


def _drivers(wanted: Filter) -> Iterator[IndexPlan]:
    match wanted:
        case All(parts):
            for part in parts:
                yield from _drivers(part)
        case Some(parts):
            yield from _of_alternatives(parts)
        case ColumnTest(Column.STATUS, Relation.IS, values):
            reasons = (reason for value in values for reason in REASONS_OF_STATUS[str(value)])
            yield from _driver(IndexRange(IndexKey.END, reason) for reason in reasons)
        case ColumnTest(column, Relation.IS, values) if column in _COLUMNS:
            yield from _driver(IndexRange(_COLUMNS[column], str(value)) for value in values)
        case EntryTest(name, Relation.IS, marks):
            yield from _driver(IndexRange(IndexKey.ENTRY, mark, name) for mark in marks)
        case EntryTest(name):
            yield (IndexRange(IndexKey.ENTRY, PRESENT, name),)
        case ColumnTest() | Not():
            return


def _of_alternatives(parts: tuple[Filter, ...]) -> Iterator[IndexPlan]:
    """A plan for alternatives, if each has one."""
    chosen = [min(_drivers(part), key=_rank, default=None) for part in parts]
    if chosen and all(each is not None for each in chosen):
        yield from _driver(each for driver in chosen if driver is not None for each in driver)


def _driver(ranges: Iterator[IndexRange]) -> Iterator[IndexPlan]:
    distinct = tuple(dict.fromkeys(ranges))
    if 0 < len(distinct) <= RANGES_MAX:
        yield distinct


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The start times that match, inclusive."""

    first_ms: int = FIRST_MS
    last_ms: int = LAST_MS

    def within(self, other: TimeSpan) -> TimeSpan:
        return TimeSpan(max(self.first_ms, other.first_ms), min(self.last_ms, other.last_ms))


def time_span(wanted: Filter) -> TimeSpan:
    """The span of start times that a filter allows."""
    if isinstance(wanted, All):
        left = TimeSpan()
        for part in wanted.parts:
            left = left.within(time_span(part))
        return left
    if isinstance(wanted, ColumnTest) and wanted.column is Column.STARTED_AT:
        return _span(wanted.relation, [int(value) for value in wanted.values])
    return TimeSpan()


def _span(relation: Relation, at_ms: Sequence[int]) -> TimeSpan:
    match relation:
        case Relation.IS:
            return TimeSpan(min(at_ms), max(at_ms))
        case Relation.BELOW:
            return TimeSpan(FIRST_MS, at_ms[0] - 1)
        case Relation.AT_MOST:
            return TimeSpan(FIRST_MS, at_ms[0])
        case Relation.ABOVE:
            return TimeSpan(at_ms[0] + 1, LAST_MS)
        case Relation.AT_LEAST:
            return TimeSpan(at_ms[0], LAST_MS)
        case Relation.BETWEEN:
            return TimeSpan(at_ms[0], at_ms[1])
    return TimeSpan()
