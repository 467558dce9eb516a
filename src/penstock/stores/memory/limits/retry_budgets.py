"""Retry budgets: the next free slot of each queue that has one."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.limits.rates import NANO_PER_MS, Rate
from penstock.core.model import QueueId
from penstock.core.scheduling.retries import RetrySlot
from penstock.stores.memory.tables import MemoryRepository


class MemoryRetryBudgets(MemoryRepository):
    @property
    def _now_ns(self) -> int:
        return self._now_ms * NANO_PER_MS

    async def take_place(self, queue_id: QueueId) -> RetrySlot | None:
        self._changes.allow()
        free = self._tables.retry_budgets.get(queue_id)
        if free is None:
            return None
        place = replace(free, from_ns=max(free.from_ns, self._now_ns))
        following = replace(place, from_ns=place.from_ns + place.for_ns)
        self._changes.put(self._tables.retry_budgets, queue_id, following)
        return place

    async def change(self, queue_id: QueueId, rate: Rate | None) -> None:
        self._changes.allow()
        if rate is not None:
            first = RetrySlot(self._now_ns + rate.interval_ns, rate.interval_ns)
            self._changes.put(self._tables.retry_budgets, queue_id, first)
        elif queue_id in self._tables.retry_budgets:
            self._changes.drop(self._tables.retry_budgets, queue_id)
        self._give_back_places(queue_id)

    def _give_back_places(self, queue_id: QueueId) -> None:
        tables = self._tables
        for task_id in [*tables.tasks_delayed.of(queue_id)]:
            task = tables.tasks[task_id]
            if task.retry_due_at_ms is not None:
                due = replace(task, available_at_ms=task.retry_due_at_ms, retry_due_at_ms=None)
                self._changes.put(tables.tasks, task_id, due)
                self._changes.add(tables.tasks_delayed, queue_id, task_id, due.available_at_ms)
