"""Activities in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import astuple

from penstock.core import json_text
from penstock.core.model import (
    Activity,
    ActivityId,
    ActivityStatus,
    ActivityTimeouts,
    RetrySchedule,
    RunId,
)
from penstock.stores import mutable_columns
from penstock.stores.sql.row_cache import CachedTable, TableCache, length_of
from penstock.stores.sql.session import CachedRepository, Row

_SAVED = ("activity_id", *mutable_columns.ACTIVITIES)
_saved = attrgetter(*_SAVED)
_length = length_of("arguments", "extra", "heartbeat_details")
_OF_A_PAUSE = 40
"""The size of a number, counted as if it were text."""
_STATUSES = {each.value: each for each in ActivityStatus}
_SHORT = 1024
_read_retry = msgspec.json.Decoder(RetrySchedule).decode
_read_timeouts = lru_cache(maxsize=256)(msgspec.json.Decoder(ActivityTimeouts).decode)
_read_short_retry = lru_cache(maxsize=256)(_read_retry)
"""Many activities have the same retry policy and timeouts, so decoding is cached."""


def _activity(row: Row) -> Activity:
    values: list[Any]
    _, *values = row
    values[7] = (_read_short_retry if len(values[7]) <= _SHORT else _read_retry)(values[7])
    values[8] = _read_timeouts(values[8])
    values[11] = _STATUSES[values[11]]
    return Activity(*values)


def _size(activity: Activity) -> int:
    retry = activity.retry
    pauses = len(retry.backoff_s) + len(retry.backoff_ms)
    return _length(activity) + pauses * _OF_A_PAUSE + sum(map(len, retry.non_retryable_error_types))


ACTIVITIES = CachedTable(
    "activities",
    "get_activity",
    Activity.__struct_fields__,
    _SAVED,
    _activity,
    size=_size,
    is_finished=lambda activity: not activity.status.is_open,
    written_by={"insert_activity": TableCache.add, "save_activity": TableCache.update},
)


class SqlActivities(CachedRepository[Activity]):
    _table = ACTIVITIES

    async def open_of(self, run_id: RunId) -> Sequence[Activity]:
        return [_activity(row) for row in await self._session.fetch("open_activities", run_id)]

    async def overdue(self, now_ms: int, limit: int) -> Sequence[ActivityId]:
        return [ActivityId(row[1]) for row in await self._session.fetch("overdue_activities", now_ms, limit)]

    def insert(self, activity: Activity) -> None:
        values: list[Any] = [*astuple(activity)]
        values[7] = json_text.written(activity.retry)
        values[8] = json_text.written(activity.timeouts)
        self._session.save("insert_activity", activity, tuple(values))

    def save(self, activity: Activity) -> None:
        self._session.save("save_activity", activity, _saved(activity))

    def change(self, activity: Activity) -> None:
        self.save(activity)
        retry, timeouts = json_text.written(activity.retry), json_text.written(activity.timeouts)
        self._session.record(
            "change_activity", activity.activity_id, activity.task_id, activity.task_queue, retry, timeouts
        )

    def replace_arguments(self, activity: Activity) -> None:
        self._session.record(
            "replace_activity_arguments", activity.activity_id, activity.arguments, activity.scheduled_at_ms
        )
