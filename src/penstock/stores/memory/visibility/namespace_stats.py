"""Statistics of a namespace, and runs and tasks that need attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.core.model import ActivityId, Run, RunHost, RunId, Task, TaskState
from penstock.core.operations.run_counts import ClosedRuns, FailingType, OpenRuns
from penstock.stores.memory.tables import MemoryRepository


class MemoryNamespaceStats(MemoryRepository):
    async def live_tasks(self, run_id: RunId, limit: int) -> Sequence[Task]:
        return [self._tables.tasks[each] for each in sorted(self._tables.tasks_live.of(run_id))[:limit]]

    async def open_runs(self, namespace: str, most: int) -> OpenRuns:
        found = self._open(namespace)[:most]
        return OpenRuns(
            Counter(run.status for run in found),
            events=sum(run.last_sequence for run in found),
            events_most=max((run.last_sequence for run in found), default=0),
            blocked=sum(run.blocked is not None for run in found),
            failing=sum(run.task_failures > 0 for run in found),
        )

    async def closed_runs(self, namespace: str, most: int) -> ClosedRuns:
        closed = [run for run in self._tables.runs.values() if run.namespace == namespace and not run.is_open]
        found = sorted(closed, key=lambda run: (run.closed_at_ms or 0, run.run_id), reverse=True)[:most]
        return ClosedRuns(
            Counter(run.status for run in found), sum(run.archived_at_ms is not None for run in found)
        )

    async def failing(self, namespace: str, most: int) -> Sequence[FailingType]:
        failing = sorted(
            (run for run in self._open(namespace) if run.task_failures), key=lambda run: run.run_id
        )
        by_type: dict[str, list[int]] = {}
        for run in failing[:most]:
            by_type.setdefault(run.workflow_type, []).append(run.task_failures)
        found = [FailingType(name, max(counts), len(counts)) for name, counts in by_type.items()]
        return sorted(found, key=lambda each: (-each.failures_most, each.workflow_type))

    async def without_task(self, namespace: str, looked: int, limit: int) -> Sequence[RunId]:
        found = [
            run.run_id
            for run in self._open(namespace)[:looked]
            if (run.owed or not (run.open_activities + run.open_timers + run.open_children))
            and not self._tables.tasks_live.of(run.run_id)
        ]
        return found[:limit]

    async def overdue_tasks(self, namespace: str, now_ms: int, limit: int) -> Sequence[Task]:
        found = [
            (task.lease_expires_at_ms or 0, task.task_id)
            for task in self._tables.tasks.values()
            if task.namespace == namespace
            and task.state is TaskState.LEASED
            and (task.lease_expires_at_ms or 0) <= now_ms
        ]
        return [self._tables.tasks[each] for _, each in sorted(found)[:limit]]

    async def overdue_activities(self, namespace: str, now_ms: int, limit: int) -> Sequence[ActivityId]:
        found = [
            (at_ms, activity_id)
            for activity_id, at_ms in self._tables.activities_with_deadline.items()
            if at_ms <= now_ms and self._namespace(activity_id) == namespace
        ]
        return [activity_id for _, activity_id in sorted(found)[:limit]]

    def _open(self, namespace: str) -> list[Run]:
        """Open workflow runs, oldest first."""
        found = [
            run
            for run in self._tables.runs.values()
            if run.namespace == namespace and run.is_open and run.host is not RunHost.ACTIVITY
        ]
        return sorted(found, key=lambda run: (run.started_at_ms, run.run_id))

    def _namespace(self, activity_id: ActivityId) -> str:
        return self._tables.runs[self._tables.activities[activity_id].run_id].namespace
