"""Runs, and instances: the workflow ids that name their current run."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.model import Instance, Run, RunId
from penstock.ports.tables.runs import RunFilter
from penstock.ports.tables.visibility import PageStart
from penstock.stores import mutable_columns
from penstock.stores.memory.immutable_columns import immutable_columns
from penstock.stores.memory.tables import MemoryRepository

_immutable_columns = immutable_columns(
    Run,
    changing=(*mutable_columns.RUNS, "memo", "search_attributes"),
)


class MemoryRuns(MemoryRepository):
    async def reserve(self, instance: Instance) -> Instance:
        self._changes.allow()
        name = (instance.namespace, instance.workflow_id)
        reserved = self._tables.instances.get(name)
        if reserved is not None:
            return reserved
        self._changes.put(self._tables.instances, name, instance)
        return instance

    async def reserve_all(self, instances: Sequence[Instance]) -> Sequence[Instance]:
        return [await self.reserve(each) for each in instances]

    async def instance(self, namespace: str, workflow_id: str) -> Instance | None:
        return self._tables.instances.get((namespace, workflow_id))

    async def named(
        self, namespace: str, workflow_id: str, run_id: RunId | None
    ) -> tuple[Instance, Run | None] | None:
        instance = self._tables.instances.get((namespace, workflow_id))
        return None if instance is None else (instance, self._tables.runs.get(run_id or instance.run_id))

    async def get(self, run_id: RunId) -> Run | None:
        return self._tables.runs.get(run_id)

    async def get_many(self, run_ids: Sequence[RunId]) -> Sequence[Run | None]:
        return [self._tables.runs.get(run_id) for run_id in run_ids]

    async def lock(self, run_id: RunId) -> Run | None:
        return self._tables.runs.get(run_id)

    async def of_instance(
        self, namespace: str, workflow_id: str, after: PageStart | None, limit: int
    ) -> Sequence[Run]:
        found = [self._tables.runs[run_id] for run_id in self._tables.runs_of.of((namespace, workflow_id))]
        place = (after.started_at_ms, after.run_id) if after else (-1, "")
        return sorted((run for run in found if _age(run) > place), key=_age)[:limit]

    async def page(self, narrow: RunFilter, after: PageStart | None, limit: int) -> Sequence[Run]:
        found = (run for run in self._tables.runs.values() if _matches(run, narrow) and _is_below(run, after))
        return heapq.nlargest(limit, found, key=_age)

    async def overdue(self, now_ms: int, limit: int) -> Sequence[RunId]:
        deadlines = self._tables.runs_with_deadline
        due = [(at_ms, run_id) for run_id, at_ms in deadlines.items() if at_ms <= now_ms]
        return [run_id for _, run_id in heapq.nsmallest(limit, due)]

    async def blocked(self, namespace: str, task_queue: str, limit: int) -> Sequence[RunId]:
        return heapq.nsmallest(limit, self._tables.runs_blocked.of((namespace, task_queue)))

    def insert(self, run: Run) -> None:
        def write() -> None:
            assert run.run_id not in self._tables.runs, f"run {run.run_id} exists"
            self._changes.add(self._tables.runs_of, (run.namespace, run.workflow_id), run.run_id, None)
            self._put(run)

        self._changes.record(write)

    def save(self, run: Run) -> None:
        def write() -> None:
            before = self._tables.runs[run.run_id]
            assert _immutable_columns(run) == _immutable_columns(before), (
                "what a run was started with does not change"
            )
            self._put(replace(run, memo=before.memo, search_attributes=before.search_attributes))

        self._changes.save("run", run.run_id, write)

    def save_attributes(self, run: Run) -> None:
        def write() -> None:
            before = self._tables.runs[run.run_id]
            self._put(replace(before, memo=run.memo, search_attributes=run.search_attributes))

        self._changes.save("attributes", run.run_id, write)

    def succeed(self, instance: Instance) -> None:
        def write() -> None:
            name = (instance.namespace, instance.workflow_id)
            before = self._tables.instances[name]
            assert instance.run_count == before.run_count + 1, "one run follows the other"
            self._changes.check_invariant(lambda: self._check_closed(before.run_id))
            self._changes.put(self._tables.instances, name, instance)

        self._changes.save("instance", (instance.namespace, instance.workflow_id), write)

    def _check_closed(self, run_id: RunId) -> None:
        run = self._tables.runs.get(run_id)
        assert run is None or not run.is_open, "one-open-run: a run is closed when another one takes its id"

    def _put(self, run: Run) -> None:
        assert run.is_open or run.deadline_at_ms is None, "a closed run has no deadline to miss"
        assert run.is_open or run.blocked is None, "a closed run waits for no other code"
        assert min(_counts(run)) >= 0, "more ended than was open"
        self._changes.put(self._tables.runs, run.run_id, run)
        self._note_deadline(run)
        self._note_block(run)

    def _note_deadline(self, run: Run) -> None:
        deadlines = self._tables.runs_with_deadline
        if run.deadline_at_ms is not None:
            self._changes.put(deadlines, run.run_id, run.deadline_at_ms)
        elif run.run_id in deadlines:
            self._changes.drop(deadlines, run.run_id)

    def _note_block(self, run: Run) -> None:
        queue, blocked = (run.namespace, run.task_queue), self._tables.runs_blocked
        if run.blocked is not None:
            self._changes.add(blocked, queue, run.run_id, None)
        elif run.run_id in blocked.of(queue):
            self._changes.remove(blocked, queue, run.run_id)


def _counts(run: Run) -> tuple[int, ...]:
    """The checks that the databases make as constraints."""
    return (
        run.open_activities,
        run.open_timers,
        run.open_children,
        run.open_updates,
        run.unseen_signals,
        run.buffered,
    )


def _age(run: Run) -> tuple[int, str]:
    return run.started_at_ms, run.run_id


def _is_below(run: Run, after: PageStart | None) -> bool:
    return after is None or _age(run) < (after.started_at_ms, after.run_id)


def _matches(run: Run, narrow: RunFilter) -> bool:
    return (
        run.namespace == narrow.namespace
        and run.host == narrow.host
        and narrow.type in (None, run.workflow_type)
        and narrow.bucket in (None, run.status.bucket)
        and (narrow.text is None or narrow.text in run.workflow_id or narrow.text in (run.business_key or ""))
    )
