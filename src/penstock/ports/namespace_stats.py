"""What an operator counts and looks for in a namespace. Every look is bounded, and nothing is locked."""

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
        """The types with the most failures first."""
        ...

    async def without_task(self, namespace: str, looked: int, limit: int) -> Sequence[RunId]:
        """Open runs without any live task that owe one or have nothing open, among the oldest `looked`."""
        ...

    async def overdue_tasks(self, namespace: str, now_ms: int, limit: int) -> Sequence[Task]:
        """Leases that have ended and were not taken back yet."""
        ...

    async def overdue_activities(self, namespace: str, now_ms: int, limit: int) -> Sequence[ActivityId]: ...
