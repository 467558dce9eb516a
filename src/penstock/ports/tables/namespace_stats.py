"""Statistics of a namespace for operators. Every query is bounded, and nothing is locked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.core.model import ActivityId, RunId, Task
from penstock.core.operations.run_counts import ClosedRuns, FailingType, OpenRuns


class NamespaceStats(Protocol):
    async def live_tasks(self, run_id: RunId, limit: int) -> Sequence[Task]:
        """The tasks of a run that are ready, delayed or leased."""
        ...

    async def open_runs(self, namespace: str, most: int) -> OpenRuns: ...
    async def closed_runs(self, namespace: str, most: int) -> ClosedRuns: ...
    async def failing(self, namespace: str, most: int) -> Sequence[FailingType]:
        """Workflow types by failures, most first."""
        ...

    async def without_task(self, namespace: str, looked: int, limit: int) -> Sequence[RunId]:
        """Among the `looked` oldest open runs: those that need a workflow task and have no live task."""
        ...

    async def overdue_tasks(self, namespace: str, now_ms: int, limit: int) -> Sequence[Task]:
        """Expired leases that were not released yet."""
        ...

    async def overdue_activities(self, namespace: str, now_ms: int, limit: int) -> Sequence[ActivityId]: ...
