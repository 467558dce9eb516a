"""Tasks: each is in exactly one state, and its indexes and the count of its lane agree."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from penstock.core.model import QueueId, RunId, Task, TaskId, TaskKind, TaskPriority, TaskState
from penstock.core.operations import journal_lines
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.core.scheduling.slots import SlotUsage
from penstock.core.timestamps import MINUTE_MS
from penstock.ports.wakeups import Topic, queue_topic, scope_topic
from penstock.stores import mutable_columns
from penstock.stores.memory.changes import Changes, Index, Phase
from penstock.stores.memory.immutable_columns import immutable_columns
from penstock.stores.memory.operations.journal import MemoryJournal
from penstock.stores.memory.tables import LaneId, Meter, Tables
from penstock.stores.memory.tasks import fairness_keys, lanes, lease_counts
from penstock.stores.memory.tasks.worker_filters import fits

_immutable_columns = immutable_columns(
    Task,
    changing=(*mutable_columns.TASKS, "ended_lease", "ended_how", "ended_cost", "ended_refunded", "seq"),
)


class MemoryTasks:
    def __init__(
        self,
        tables: Tables,
        changes: Changes,
        now_ms: int,
        wake: Callable[[Topic], None],
        journal: MemoryJournal | None,
    ) -> None:
        self._tables = tables
        self._changes = changes
        self._now_ms = now_ms
        self._wake = wake
        self._journal = journal
        """Where ends of leases are recorded; None if the store keeps no journal."""

    async def get(self, task_id: TaskId) -> Task | None:
        return self._tables.tasks.get(task_id)

    async def lock(self, task_id: TaskId) -> Task | None:
        return self._tables.tasks.get(task_id)

    async def lock_live_of(self, run_id: RunId) -> Sequence[Task]:
        return [self._tables.tasks[task_id] for task_id in sorted(self._tables.tasks_live.of(run_id))]

    async def lock_workflow_task(self, run_id: RunId) -> Task | None:
        return next(iter(self._deciders(run_id)), None)

    async def redelivered(self, namespace: str, polls: Sequence[tuple[str, str]]) -> Sequence[Sequence[Task]]:
        return [self._held_by_poll(namespace, worker_id, poll_id) for worker_id, poll_id in polls]

    async def leased_by(self, namespace: str, worker_id: str) -> Sequence[TaskId]:
        return sorted(task.task_id for task in self._held_by(namespace, worker_id))

    async def held(
        self, namespace: str, kind: TaskKind, sessions: Sequence[tuple[str, int]]
    ) -> Sequence[SlotUsage]:
        return [self._count_held(namespace, kind, worker_id, since_ms) for worker_id, since_ms in sessions]

    async def notify_at_ends(self, namespace: str, kind: TaskKind, worker_ids: Sequence[str]) -> None:
        self._changes.allow()
        for worker_id in worker_ids:
            for task in [*self._held_by(namespace, worker_id)]:
                if task.kind is kind and not task.counted:
                    self._changes.put(self._tables.tasks, task.task_id, replace(task, counted=2))

    async def leases_on(self, queue_id: QueueId, limit: int) -> Sequence[Task]:
        leases = [(at_ms, task_id) for task_id, at_ms in self._tables.tasks_leased.of(queue_id).items()]
        return [self._tables.tasks[task_id] for _, task_id in heapq.nsmallest(limit, leases)]

    async def expired(self, now_ms: int, limit: int) -> Sequence[TaskId]:
        return _first_due(self._tables.tasks_leased, now_ms, limit)

    async def due(self, now_ms: int, limit: int) -> Sequence[TaskId]:
        return _first_due(self._tables.tasks_delayed, now_ms, limit)

    async def next_due_at_ms(self) -> int | None:
        return min((at_ms for at_ms, _ in _moments(self._tables.tasks_delayed)), default=None)

    async def any_ready(self, queue_id: QueueId, worker_filter: WorkerFilter) -> bool:
        ready, tasks = self._tables.tasks_ready, self._tables.tasks
        busy = self._tables.lanes_busy.of(queue_id)
        waiting = (tasks[task_id] for lane_id in busy for task_id in ready.of(lane_id).values())
        return any(fits(task, worker_filter, self._now_ms) for task in waiting)

    async def ready_on(self, queue_ids: Sequence[QueueId]) -> Sequence[QueueId]:
        return [each for each in queue_ids if self._tables.lanes_busy.of(each)]

    async def matchable(self, queue_id: QueueId, worker_filter: WorkerFilter) -> WorkerFilter | None:
        ready, tasks = self._tables.tasks_ready, self._tables.tasks
        busy = self._tables.lanes_busy.of(queue_id)
        waiting = [tasks[task_id] for lane_id in busy for task_id in ready.of(lane_id).values()]
        found = {task.type for task in waiting if fits(task, worker_filter, self._now_ms)}
        if not found:
            return None
        return replace(worker_filter, types=tuple(each for each in worker_filter.types if each in found))

    async def sticky(self, queue_id: QueueId) -> Mapping[str, int]:
        ready, tasks = self._tables.tasks_ready, self._tables.tasks
        busy = self._tables.lanes_busy.of(queue_id)
        waiting = [tasks[task_id] for lane_id in busy for task_id in ready.of(lane_id).values()]
        first: dict[str, int] = {}
        for task in waiting:
            if task.is_sticky(self._now_ms):
                assert task.sticky_worker_id is not None
                assert task.sticky_until_ms is not None
                until_ms = first.get(task.sticky_worker_id, task.sticky_until_ms)
                first[task.sticky_worker_id] = min(until_ms, task.sticky_until_ms)
        return first

    def insert(self, task: Task, priority: TaskPriority) -> None:
        assert (task.level, task.key) == (priority.level, priority.key)

        def write() -> None:
            assert task.task_id not in self._tables.tasks, f"task {task.task_id} exists"
            self._put(replace(task, seq=next(self._tables.task_numbers)))
            self._count_added(task.queue_id)

        self._changes.save("task", task.task_id, write)
        if task.state is TaskState.READY:
            join = partial(lanes.enter, self._tables, self._changes, _lane_of(task), priority.weight_milli)
            self._changes.record(join, Phase.JOIN_LANES)

    def save(self, task: Task, was: TaskState) -> None:
        ended = was is TaskState.LEASED and task.state is not TaskState.LEASED

        def write() -> None:
            before = self._tables.tasks[task.task_id]
            assert before.state is was, f"task {task.task_id} is {before.state}, not {was}"
            assert was is not TaskState.READY or task.state is not TaskState.LEASED, "a grant is a `lease`"
            self._replace(before, replace(task, counted=0, scopes="", claimed=0) if ended else task)

        self._changes.save("task", task.task_id, write)
        if ended:
            self._uncount(task)
        if (was is TaskState.READY) == (task.state is TaskState.READY):
            return
        if task.state is TaskState.READY:
            rejoin = partial(lanes.enter, self._tables, self._changes, _lane_of(task), None)
            self._changes.record(rejoin, Phase.REJOIN_LANES)
        else:
            leave = partial(lanes.leave, self._tables, self._changes, _lane_of(task))
            self._changes.record(leave, Phase.LEAVE_LANES)

    def lease(self, task: Task) -> None:
        def write() -> None:
            before = self._tables.tasks[task.task_id]
            assert before.state is TaskState.READY, f"task {task.task_id} is {before.state}: `one-live-lease`"
            assert task.state is TaskState.LEASED
            self._replace(before, task)

        self._changes.save("task", task.task_id, write)

    def _uncount(self, task: Task) -> None:
        """Lower the counts of the key and the scopes that counted the lease."""
        if self._journal is not None:
            self._journal.append(journal_lines.ended(task, self._now_ms))
        if task.counted == 1:
            uncount = partial(fairness_keys.uncount, self._tables, self._changes, task.queue_id, task.key)
            release = partial(lanes.release, self._tables, self._changes, task.queue_id, task.key)
            self._changes.record(uncount, Phase.UNCOUNT_KEYS)
            self._changes.record(release, Phase.TOUCH_LANES)
        if task.counted:
            self._wake(queue_topic(task.queue_id))
        for scope_id in map(int, task.scopes.split()):
            self._changes.record(partial(lease_counts.end, self._tables, self._changes, scope_id))
            self._wake(scope_topic(scope_id))

    def _replace(self, before: Task, task: Task) -> None:
        assert _immutable_columns(task) == _immutable_columns(before), (
            "only the mutable columns of a task may change"
        )
        self._forget(before)
        self._put(
            replace(
                task,
                seq=before.seq,
                ended_lease=None,
                ended_how=None,
                ended_cost=None,
                ended_refunded=False,
            )
        )

    def _put(self, task: Task) -> None:
        """Write the row and its index entries."""
        tables, changes = self._tables, self._changes
        leased = task.state is TaskState.LEASED
        assert leased == (task.lease_token is not None), "one-live-lease"
        assert leased == (task.lease_expires_at_ms is not None), "one-live-lease"
        changes.put(tables.tasks, task.task_id, task)
        if not task.is_live:
            return
        changes.add(tables.tasks_live, task.run_id, task.task_id, None)
        changes.check_invariant(partial(self._check_one_workflow_task, task.run_id))
        if task.state is TaskState.READY:
            changes.add(tables.tasks_ready, _lane_of(task), task.seq, task.task_id)
        elif task.state is TaskState.DELAYED:
            changes.add(tables.tasks_delayed, task.queue_id, task.task_id, task.available_at_ms)
        else:
            assert task.lease_expires_at_ms is not None
            changes.add(tables.tasks_leased, task.queue_id, task.task_id, task.lease_expires_at_ms)

    def _forget(self, task: Task) -> None:
        """Remove the index entries of a row in its present state."""
        tables, changes = self._tables, self._changes
        if task.is_live:
            changes.remove(tables.tasks_live, task.run_id, task.task_id)
        if task.state is TaskState.READY:
            changes.remove(tables.tasks_ready, _lane_of(task), task.seq)
        elif task.state is TaskState.DELAYED:
            changes.remove(tables.tasks_delayed, task.queue_id, task.task_id)
        elif task.state is TaskState.LEASED:
            changes.remove(tables.tasks_leased, task.queue_id, task.task_id)

    def _count_added(self, queue_id: QueueId) -> None:
        slot = (queue_id, self._now_ms // MINUTE_MS)
        meter = self._tables.meters.get(slot, Meter())
        self._changes.put(self._tables.meters, slot, replace(meter, added=meter.added + 1))

    def _deciders(self, run_id: RunId) -> list[Task]:
        live = (self._tables.tasks[task_id] for task_id in self._tables.tasks_live.of(run_id))
        return [task for task in live if task.kind is TaskKind.WORKFLOW]

    def _check_one_workflow_task(self, run_id: RunId) -> None:
        assert len(self._deciders(run_id)) <= 1, f"run {run_id} has two live workflow tasks"

    def _held_by(self, namespace: str, worker_id: str) -> Iterator[Task]:
        for leases in self._tables.tasks_leased.groups.values():
            for task_id in leases:
                task = self._tables.tasks[task_id]
                if task.namespace == namespace and task.lease_owner == worker_id:
                    yield task

    def _count_held(self, namespace: str, kind: TaskKind, worker_id: str, since_ms: int) -> SlotUsage:
        held = [
            task
            for task in self._held_by(namespace, worker_id)
            if task.kind is kind and task.granted_at_ms is not None and task.granted_at_ms >= since_ms
        ]
        ahead = sum(task.claimed > 0 for task in held)
        return SlotUsage(len(held) - ahead, ahead, sum(not task.counted for task in held))

    def _held_by_poll(self, namespace: str, worker_id: str, poll_request_id: str) -> Sequence[Task]:
        held = self._held_by(namespace, worker_id)
        same = [task for task in held if task.poll_request_id == poll_request_id]
        return sorted(same, key=lambda task: task.seq)


def _lane_of(task: Task) -> LaneId:
    return task.queue_id, task.level, task.key


def _moments(index: Index[QueueId, TaskId, int]) -> Iterator[tuple[int, TaskId]]:
    for rows in index.groups.values():
        for task_id, at_ms in rows.items():
            yield at_ms, task_id


def _first_due(index: Index[QueueId, TaskId, int], now_ms: int, limit: int) -> Sequence[TaskId]:
    due = (moment for moment in _moments(index) if moment[0] <= now_ms)
    return [task_id for _, task_id in heapq.nsmallest(limit, due)]
