"""Cohorts, by queue and build."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import Cohort
from penstock.stores.memory.tables import MemoryRepository


class MemoryCohorts(MemoryRepository):
    async def get(self, namespace: str, task_queue: str, build_id: str) -> Cohort | None:
        return self._tables.cohorts.get((namespace, task_queue, build_id))

    async def promoted(self, namespace: str, task_queue: str) -> Cohort | None:
        return next(
            (each for each in await self.list(namespace, task_queue) if each.new_start_selected), None
        )

    async def list(self, namespace: str, task_queue: str) -> Sequence[Cohort]:
        found = [
            cohort
            for cohort in self._tables.cohorts.values()
            if (cohort.namespace, cohort.task_queue) == (namespace, task_queue)
        ]
        return sorted(found, key=lambda cohort: cohort.build_id)

    def save(self, cohort: Cohort) -> None:
        name = (cohort.namespace, cohort.task_queue, cohort.build_id)
        self._changes.record(lambda: self._changes.put(self._tables.cohorts, name, cohort))
