"""Activities in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from penstock.core.model import (
    Activity,
    ActivityId,
    ActivityStatus,
    ActivityTimeouts,
    RetryPolicy,
    RunId,
)
from penstock.stores.sql.kept import Table, length_of
from penstock.stores.sql.session import Row, Session

_CHANGING = (
    "activity_id",
    "status",
    "attempt",
    "started_at_ms",
    "heartbeat_at_ms",
    "heartbeat_details",
    "deadline_at_ms",
    "closed_at_ms",
    "worker_deaths",
    "quarantined",
)
_changing = attrgetter(*_CHANGING)
_length = length_of("arguments", "extra", "heartbeat_details")
_OF_A_PAUSE = 40
"""What a number takes in memory, as if it were text."""
_ALL = attrgetter(*Activity.__struct_fields__)
_RETRY = msgspec.json.Decoder(RetryPolicy)
_TIMEOUTS = msgspec.json.Decoder(ActivityTimeouts)
_STATUSES = {each.value: each for each in ActivityStatus}


class SqlActivities:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, activity_id: ActivityId) -> Activity | None:
        return await self._session.one("get_activity", ACTIVITIES, activity_id)

    async def get_many(self, activity_ids: Sequence[ActivityId]) -> Sequence[Activity | None]:
        return await self._session.many("get_activity", ACTIVITIES, activity_ids)

    async def open_of(self, run_id: RunId) -> Sequence[Activity]:
        return [_activity(row) for row in await self._session.ask("open_activities", run_id)]

    async def overdue(self, now_ms: int, limit: int) -> Sequence[ActivityId]:
        return [ActivityId(row[1]) for row in await self._session.ask("overdue_activities", now_ms, limit)]

    def insert(self, activity: Activity) -> None:
        values: list[Any] = [*_ALL(activity)]
        values[7] = msgspec.json.encode(activity.retry).decode()
        values[8] = msgspec.json.encode(activity.timeouts).decode()
        self._session.record("insert_activity", *values)
        self._session.inserted(ACTIVITIES, activity)

    def save(self, activity: Activity) -> None:
        self._session.record("save_activity", *_changing(activity))
        self._session.saved(ACTIVITIES, activity)


def _activity(row: Row) -> Activity:
    values: list[Any] = [*row[1:]]
    values[7] = _RETRY.decode(values[7])
    values[8] = _TIMEOUTS.decode(values[8])
    values[11] = _STATUSES[values[11]]
    return Activity(*values)


def _size(activity: Activity) -> int:
    retry = activity.retry
    pauses = len(retry.backoff_s) + len(retry.backoff_ms)
    return _length(activity) + pauses * _OF_A_PAUSE + sum(map(len, retry.non_retryable_error_types))


ACTIVITIES = Table(
    "activities",
    Activity.__struct_fields__,
    _CHANGING,
    _activity,
    size=_size,
    is_over=lambda activity: not activity.status.is_open,
    told=("insert_activity", "save_activity"),
)
