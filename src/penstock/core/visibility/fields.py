"""Built-in fields of runs, by their names in queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from penstock.core.history.routing_keys import ROUTING_KEY
from penstock.core.schedules.record import SCHEDULED_BY_ID, SCHEDULED_START_TIME
from penstock.core.visibility.entries import PARENT
from penstock.core.visibility.filters import OPEN, Column, ColumnTest, Filter, Not, Relation


@dataclass(frozen=True, slots=True)
class QueryField:
    """The source of a field: a column, an entry, or words that each stand for a filter."""

    type: str
    column: Column | None = None
    entry: str | None = None
    words: Mapping[str, Filter] | None = None
    always: bool = False
    """Whether every run has it."""


def _status(*statuses: str) -> Filter:
    return ColumnTest(Column.STATUS, Relation.IS, statuses)


def _closed_as(reason: str) -> Filter:
    return ColumnTest(Column.CLOSED_REASON, Relation.IS, (reason,))


STATUS_WORDS: Final[Mapping[str, Filter]] = MappingProxyType(
    {
        "running": OPEN,
        "open": OPEN,
        "closed": Not(OPEN),
        "pending": _status("pending"),
        "waiting": _status("waiting"),
        "completed": _status("completed"),
        "failed": _status("failed"),
        "cancelled": _status("cancelled"),
        "canceled": _status("cancelled"),
        "terminated": _status("terminated"),
        "timed_out": _closed_as("timed_out"),
        "timedout": _closed_as("timed_out"),
        "continued": _closed_as("continued"),
        "continued_as_new": _closed_as("continued"),
        "continuedasnew": _closed_as("continued"),
    }
)
"""Timed-out runs also count as failed, and runs that continued as new as completed, as in lists."""

BUCKET_WORDS: Final[Mapping[str, Filter]] = MappingProxyType(
    {
        "running": OPEN,
        "completed": _status("completed"),
        "failed": _status("failed", "cancelled", "terminated"),
    }
)

LISTED_STATUSES: Final[Mapping[str, Filter]] = MappingProxyType(
    {**BUCKET_WORDS, "cancelled": _status("cancelled"), "terminated": _status("terminated")}
)
"""The `status` filter of lists: the buckets, and two statuses that clients list on their own."""

SYSTEM: Final[Mapping[str, QueryField]] = MappingProxyType(
    {
        "WorkflowType": QueryField("keyword", Column.WORKFLOW_TYPE, always=True),
        "WorkflowId": QueryField("keyword", Column.WORKFLOW_ID, always=True),
        "RunId": QueryField("keyword", Column.RUN_ID, always=True),
        "Status": QueryField("keyword", words=STATUS_WORDS, always=True),
        "ExecutionStatus": QueryField("keyword", words=STATUS_WORDS, always=True),
        "StatusBucket": QueryField("keyword", words=BUCKET_WORDS, always=True),
        "StartTime": QueryField("datetime", Column.STARTED_AT, always=True),
        "CloseTime": QueryField("datetime", Column.CLOSED_AT),
        "TaskQueue": QueryField("keyword", Column.TASK_QUEUE, always=True),
        "BuildId": QueryField("keyword", Column.BUILD_ID),
        "BusinessKey": QueryField("keyword", Column.BUSINESS_KEY),
        "ParentWorkflowId": QueryField("keyword", entry=PARENT),
        ROUTING_KEY: QueryField("keyword_list", entry=ROUTING_KEY),
        SCHEDULED_BY_ID: QueryField("keyword", entry=SCHEDULED_BY_ID),
        SCHEDULED_START_TIME: QueryField("datetime", entry=SCHEDULED_START_TIME),
    }
)
