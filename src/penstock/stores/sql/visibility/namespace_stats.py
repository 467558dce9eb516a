"""Statistics of a namespace, and runs and tasks that need attention, in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import ActivityId, RunId, RunStatus, Task
from penstock.core.operations.run_counts import ClosedRuns, FailingType, OpenRuns
from penstock.stores.sql.session import Repository
from penstock.stores.sql.tasks.tasks import task_of


class SqlNamespaceStats(Repository):
    async def live_tasks(self, run_id: RunId, limit: int) -> Sequence[Task]:
        return [task_of(row) for row in await self._session.fetch("live_tasks_of_run", run_id, limit)]

    async def open_runs(self, namespace: str, most: int) -> OpenRuns:
        rows = await self._session.fetch("count_open_runs", namespace, most)
        return OpenRuns(
            {RunStatus(row[1]): int(row[2]) for row in rows},
            events=sum(int(row[3]) for row in rows),
            events_most=max((int(row[4]) for row in rows), default=0),
            blocked=sum(int(row[5]) for row in rows),
            failing=sum(int(row[6]) for row in rows),
        )

    async def closed_runs(self, namespace: str, most: int) -> ClosedRuns:
        rows = await self._session.fetch("count_closed_runs", namespace, most)
        counts = {RunStatus(row[1]): int(row[2]) for row in rows}
        return ClosedRuns(counts, sum(int(row[3]) for row in rows))

    async def failing(self, namespace: str, most: int) -> Sequence[FailingType]:
        rows = await self._session.fetch("failing_runs_by_type", namespace, most)
        return [FailingType(row[1], int(row[2]), int(row[3])) for row in rows]

    async def without_task(self, namespace: str, looked: int, limit: int) -> Sequence[RunId]:
        rows = await self._session.fetch("runs_without_task", namespace, looked, limit)
        return [RunId(row[1]) for row in rows]

    async def overdue_tasks(self, namespace: str, now_ms: int, limit: int) -> Sequence[Task]:
        rows = await self._session.fetch("overdue_tasks_of_namespace", namespace, now_ms, limit)
        return [task_of(row) for row in rows]

    async def overdue_activities(self, namespace: str, now_ms: int, limit: int) -> Sequence[ActivityId]:
        rows = await self._session.fetch("overdue_activities_of_namespace", namespace, now_ms, limit)
        return [ActivityId(row[1]) for row in rows]
