"""Schedules as queries see them: their fields and search attributes as index entries, evaluated schedule by schedule.

A namespace has few schedules beside its runs, so they have no index: a page of matches is found by looking at pages of
all schedules, newest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from penstock.core import json_text
from penstock.core.schedules.record import ScheduleRecord
from penstock.core.timestamps import iso
from penstock.core.visibility.entries import MEMO, Entry, entries_of, is_name
from penstock.core.visibility.fields import QueryField
from penstock.core.visibility.filters import Filter, holds_for_marks

_MARK: Final = ":schedule."
"""Begins the entries of fields; not a valid attribute name."""
_TYPES: Final = {
    "ScheduleId": "keyword",
    "WorkflowType": "keyword",
    "TaskQueue": "keyword",
    "Status": "keyword",
    "OverlapPolicy": "keyword",
    "TimeZone": "keyword",
    "Note": "text",
    "CreateTime": "datetime",
    "UpdateTime": "datetime",
    "NextFireTime": "datetime",
    "LastFireTime": "datetime",
    "Fires": "int",
    "Failures": "int",
    "OpenRuns": "int",
}
SCHEDULE_FIELDS: Final[Mapping[str, QueryField]] = MappingProxyType(
    {name: QueryField(type_, entry=_MARK + name) for name, type_ in _TYPES.items()}
)


def schedule_matches(wanted: Filter, record: ScheduleRecord, task_queue: str, time_zone: str) -> bool:
    """Whether a schedule matches a query that was bound with `SCHEDULE_FIELDS`."""
    found: dict[str, set[str]] = {}
    for name, mark in _entries(record, task_queue, time_zone):
        found.setdefault(name, set()).add(mark)
    return holds_for_marks(wanted, found)


def _entries(record: ScheduleRecord, task_queue: str, time_zone: str) -> Iterator[Entry]:
    for name, value in _fields(record, task_queue, time_zone).items():
        if value is not None:
            yield from entries_of(_MARK + name, value)
    for name, value in json_text.read(record.search_attributes).items():
        if is_name(name):
            yield from entries_of(name, value)
    for name, value in json_text.read(record.memo).items():
        if is_name(name) and not isinstance(value, dict):
            yield from entries_of(MEMO + name, value)


def _fields(record: ScheduleRecord, task_queue: str, time_zone: str) -> Mapping[str, Any]:
    progress = record.progress
    next_ms = record.nominal_at_ms if record.is_active else None
    return {
        "ScheduleId": record.schedule_id,
        "WorkflowType": record.action_type,
        "TaskQueue": task_queue,
        "Status": record.status.value,
        "OverlapPolicy": record.policies.overlap.value,
        "TimeZone": time_zone,
        "Note": record.note,
        "CreateTime": iso(record.created_at_ms),
        "UpdateTime": iso(record.updated_at_ms),
        "NextFireTime": None if next_ms is None else iso(next_ms),
        "LastFireTime": None if progress.last_fire_at_ms is None else iso(progress.last_fire_at_ms),
        "Fires": progress.fires,
        "Failures": progress.failures,
        "OpenRuns": progress.open_runs,
    }
