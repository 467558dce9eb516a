"""Tasks in SQL, and the counts of their lanes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.core.model import QueueId, RunId, Task, TaskId, TaskKind, TaskPriority, TaskState
from penstock.core.operations import journal_lines
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.core.scheduling.slots import SlotUsage
from penstock.core.timeline.values import TaskTimes
from penstock.core.timestamps import MINUTE_MS
from penstock.core.visibility.live_tasks import LiveTasks
from penstock.ports.wakeups import queue_topic, scope_topic
from penstock.stores import mutable_columns
from penstock.stores.sql.operations.journal import SqlJournal
from penstock.stores.sql.row_cache import CachedTable, TableCache, length_of
from penstock.stores.sql.session import CachedRepository, Row

_WHAT = attrgetter(
    "task_id",
    "queue_id",
    "namespace",
    "task_queue",
    "kind",
    "run_id",
    "activity_id",
    "type",
    "compatibility",
)
_PLACE = attrgetter(
    "level",
    "key",
    "state",
    "available_at_ms",
    "enqueued_at_ms",
    "attempt",
    "cost",
    "update_id",
    "retry_due_at_ms",
    "sticky_worker_id",
    "sticky_until_ms",
)
_SAVED = ("task_id", *mutable_columns.TASKS)
_saved = attrgetter(*_SAVED)
SEPARATOR = "\x1f"
"""Does not occur in names."""
_KINDS = {each.value: each for each in TaskKind}
_STATES = {each.value: each for each in TaskState}
_WAITING = (TaskState.READY, TaskState.DELAYED)


def route(type_: str, build_id: str | None) -> str:
    """The type and build that a worker needs to take a task, as one text."""
    return f"{type_}{SEPARATOR}{build_id or ''}"


class FilterValues(NamedTuple):
    """A worker filter as the values of statements."""

    routes: Sequence[str]
    """The routes that a worker with registered types can take."""
    wanted: str | None
    """The routes as a JSON list; the build where the worker takes any type."""
    sticky_workers: str


@lru_cache(maxsize=1024)
def filter_values(worker_filter: WorkerFilter) -> FilterValues:
    """Cached, because the same workers poll again and again."""
    builds = [None] if worker_filter.build_id is None else [None, worker_filter.build_id]
    routes = [route(type_, build) for type_ in worker_filter.types for build in builds]
    wanted = msgspec.json.encode(routes).decode() if routes else worker_filter.build_id
    return FilterValues(routes, wanted, enclosed(worker_filter.sticky_workers))


def matching(
    name: str, queue_id: QueueId, worker_filter: WorkerFilter
) -> tuple[str, QueueId, str | None, str]:
    """The statement about the tasks that match a filter, and its first values.

    There are two of each: `name_of_routes` for workers that have registered types, `name` for those that take any type.
    """
    values = filter_values(worker_filter)
    name = f"{name}_of_routes" if worker_filter.types else name
    return name, queue_id, values.wanted, values.sticky_workers


def enclosed(names: Sequence[str]) -> str:
    """Some names as one text, in which each is enclosed by separators; empty if there are none."""
    return SEPARATOR.join(("", *names, "")) if names else ""


def task_of(row: Row) -> Task:
    values: list[Any]
    _, *values = row
    values[4] = _KINDS[values[4]]
    values[11] = _STATES[values[11]]
    return Task(*values)


TASKS = CachedTable(
    "tasks",
    "get_task",
    Task.__struct_fields__,
    _SAVED,
    task_of,
    size=length_of("last_error", "scopes"),
    is_finished=lambda task: not task.is_live,
    written_by={"insert_task": TableCache.forget_owner, "save_task": TableCache.update},
    owner_of=lambda task: task.run_id if task.kind is TaskKind.WORKFLOW else None,
)
"""The database assigns the sequence number of a task, so a task is cached only after it was read."""


class SqlTasks(CachedRepository[Task]):
    _table = TASKS

    async def lock(self, task_id: TaskId) -> Task | None:
        return await self._one("lock_task", task_id)

    async def times_of(self, run_id: RunId, limit: int) -> Sequence[TaskTimes]:
        return [TaskTimes(*row[1:]) for row in await self._session.fetch("task_times", run_id, limit)]

    async def live_by_state(self, run_ids: Sequence[RunId]) -> Sequence[Sequence[LiveTasks]]:
        found = await self._session.fetch_each("live_tasks_by_state", [(each,) for each in run_ids])
        return [[LiveTasks(*row[1:]) for row in rows] for rows in found]

    async def lock_live_of(self, run_id: RunId) -> Sequence[Task]:
        return [task_of(row) for row in await self._session.fetch("lock_live_tasks", run_id)]

    async def lock_workflow_task(self, run_id: RunId) -> Task | None:
        cached = self._session.row_cache.tables.get(TASKS)
        is_known, task = (False, None) if cached is None else cached.only_of(run_id)
        if is_known:
            return task
        rows = await self._session.fetch("lock_workflow_task", run_id)
        task = task_of(rows[0]) if rows else None
        if cached is not None:
            cached.note_none(run_id) if task is None else cached.add(task)
        return task

    async def redelivered(self, namespace: str, polls: Sequence[tuple[str, str]]) -> Sequence[Sequence[Task]]:
        answers = await self._session.fetch_each("redelivered_tasks", ((namespace, *poll) for poll in polls))
        return [[task_of(row) for row in rows] for rows in answers]

    async def leased_by(self, namespace: str, worker_id: str) -> Sequence[TaskId]:
        return [TaskId(row[1]) for row in await self._session.fetch("tasks_leased_by", namespace, worker_id)]

    async def held(
        self, namespace: str, kind: TaskKind, sessions: Sequence[tuple[str, int]]
    ) -> Sequence[SlotUsage]:
        parameters = ((namespace, worker_id, kind, since_ms) for worker_id, since_ms in sessions)
        answers = await self._session.fetch_each("held_by_worker", parameters)
        return [SlotUsage(*rows[0][1:]) if rows else SlotUsage() for rows in answers]

    async def notify_at_ends(self, namespace: str, kind: TaskKind, worker_ids: Sequence[str]) -> None:
        await self._session.fetch_each(
            "notify_at_lease_end", ((namespace, each, kind) for each in worker_ids)
        )

    async def leases_on(self, queue_id: QueueId, limit: int) -> Sequence[Task]:
        return [task_of(row) for row in await self._session.fetch("leases_on_queue", queue_id, limit)]

    async def expired(self, now_ms: int, limit: int) -> Sequence[TaskId]:
        return [TaskId(row[1]) for row in await self._session.fetch("expired_tasks", now_ms, limit)]

    async def due(self, now_ms: int, limit: int) -> Sequence[TaskId]:
        return [TaskId(row[1]) for row in await self._session.fetch("due_tasks", now_ms, limit)]

    async def next_due_at_ms(self) -> int | None:
        rows = await self._session.fetch("next_due_task")
        return None if rows[0][1] is None else int(rows[0][1])

    async def any_ready(self, queue_id: QueueId, worker_filter: WorkerFilter) -> bool:
        return await self.matchable(queue_id, worker_filter) is not None

    async def ready_on(self, queue_ids: Sequence[QueueId]) -> Sequence[QueueId]:
        if not queue_ids:
            return ()
        rows = await self._session.fetch("ready_queues", json.dumps(queue_ids))
        return [QueueId(int(row[1])) for row in rows]

    async def matchable(self, queue_id: QueueId, worker_filter: WorkerFilter) -> WorkerFilter | None:
        rows = await self._session.fetch(
            *matching("ready_tasks", queue_id, worker_filter), self._session.now_ms
        )
        if not rows or not worker_filter.types:
            return worker_filter if rows else None
        found = {str(row[1]).partition(SEPARATOR)[0] for row in rows}
        return replace(worker_filter, types=tuple(each for each in worker_filter.types if each in found))

    async def sticky(self, queue_id: QueueId) -> Mapping[str, int]:
        rows = await self._session.fetch("sticky_tasks", queue_id, self._session.now_ms)
        return {str(row[1]): int(row[2]) for row in rows}

    def insert(self, task: Task, priority: TaskPriority) -> None:
        record = self._session.record
        values = (*_WHAT(task), route(task.type, task.compatibility), *_PLACE(task))
        self._session.save("insert_task", task, values)
        record("count_added", task.queue_id, self._session.now_ms // MINUTE_MS)
        if task.state is TaskState.READY:
            record("join_lane", task.queue_id, task.level, task.key, priority.weight_milli)
            if self._session.journals:
                SqlJournal(self._session).append_ready(task, priority.weight_milli)

    def save(self, task: Task, was: TaskState) -> None:
        ended = was is TaskState.LEASED and task.state is not TaskState.LEASED
        counted = ended and (task.counted or task.scopes or task.claimed)
        saved = replace(task, counted=0, scopes="", claimed=0) if counted else task
        self._session.save("save_task", saved, _saved(saved))
        if ended:
            self._uncount(task)
        if (was is TaskState.READY) != (task.state is TaskState.READY):
            move = "leave_lane" if was is TaskState.READY else "rejoin_lane"
            self._session.record(move, task.queue_id, task.level, task.key)
        if self._session.journals and not (was is TaskState.LEASED and not ended):
            self._journal_wait(task, was)

    def _journal_wait(self, task: Task, was: TaskState) -> None:
        """Write that a task waits from now on, or not any more: it will not be granted, or is held by a pause."""
        journal = SqlJournal(self._session)
        if task.state is TaskState.READY and was is not TaskState.READY:
            is_due = was is TaskState.DELAYED
            journal.append_ready(
                task, None, (task.retry_due_at_ms or task.available_at_ms) if is_due else None
            )
        elif was in _WAITING and (not task.is_live or (was is TaskState.READY and task.state is not was)):
            journal.append(journal_lines.gone(task, self._session.now_ms))

    def lease(self, task: Task) -> None:
        self._session.save("save_task", task, _saved(task))

    def _uncount(self, task: Task) -> None:
        if self._session.journals:
            SqlJournal(self._session).append_end(task)
        if task.counted == 1:
            self._session.record("uncount_key", task.queue_id, task.key)
            self._session.record("release_lanes", task.queue_id, task.key)
        if task.counted:
            self._session.wake(queue_topic(task.queue_id))
        for scope_id in task.scopes.split():
            self._session.record("end_in_scope", int(scope_id), self._session.shard)
            self._session.wake(scope_topic(int(scope_id)))
