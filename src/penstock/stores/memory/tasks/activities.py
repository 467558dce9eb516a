"""Activities, open ones by run and by deadline."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from penstock.core.model import Activity, ActivityId, RunId
from penstock.stores import mutable_columns
from penstock.stores.memory.immutable_columns import immutable_columns
from penstock.stores.memory.tables import MemoryRepository

_immutable_columns = immutable_columns(
    Activity,
    changing=mutable_columns.ACTIVITIES,
)


class MemoryActivities(MemoryRepository):
    async def get(self, activity_id: ActivityId) -> Activity | None:
        return self._tables.activities.get(activity_id)

    async def get_many(self, activity_ids: Sequence[ActivityId]) -> Sequence[Activity | None]:
        return [self._tables.activities.get(activity_id) for activity_id in activity_ids]

    async def open_of(self, run_id: RunId) -> Sequence[Activity]:
        found = [self._tables.activities[each] for each in self._tables.activities_open.of(run_id)]
        return sorted(found, key=lambda activity: activity.step)

    async def overdue(self, now_ms: int, limit: int) -> Sequence[ActivityId]:
        deadlines = self._tables.activities_with_deadline
        due = [(at_ms, activity_id) for activity_id, at_ms in deadlines.items() if at_ms <= now_ms]
        return [activity_id for _, activity_id in heapq.nsmallest(limit, due)]

    def insert(self, activity: Activity) -> None:
        def write() -> None:
            assert activity.activity_id not in self._tables.activities, f"{activity.activity_id} exists"
            self._put(activity)

        self._changes.record(write)

    def save(self, activity: Activity) -> None:
        def write() -> None:
            before = self._tables.activities[activity.activity_id]
            assert _immutable_columns(activity) == _immutable_columns(before), (
                "what was scheduled is immutable"
            )
            self._put(activity)

        self._changes.save("activity", activity.activity_id, write)

    def _put(self, activity: Activity) -> None:
        tables, changes = self._tables, self._changes
        assert activity.status.is_open == (activity.closed_at_ms is None), (
            "a closed activity has a closing time"
        )
        assert activity.status.is_open or activity.deadline_at_ms is None, "a closed activity has no deadline"
        changes.put(tables.activities, activity.activity_id, activity)
        if activity.status.is_open:
            changes.add(tables.activities_open, activity.run_id, activity.activity_id, None)
        elif activity.activity_id in tables.activities_open.of(activity.run_id):
            changes.remove(tables.activities_open, activity.run_id, activity.activity_id)
        if activity.deadline_at_ms is not None:
            changes.put(tables.activities_with_deadline, activity.activity_id, activity.deadline_at_ms)
        elif activity.activity_id in tables.activities_with_deadline:
            changes.drop(tables.activities_with_deadline, activity.activity_id)
