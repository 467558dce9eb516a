"""Tasks in SQL, and the counts of their lanes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.core.model import QueueId, RunId, Task, TaskId, TaskKind, TaskPriority, TaskState
from penstock.core.operations import journal_lines
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.core.scheduling.slots import SlotUsage
from penstock.core.timestamps import MINUTE_MS
from penstock.ports.wakeups import queue_topic, scope_topic
from penstock.stores import mutable_columns
from penstock.stores.sql.operations.journal import SqlJournal
from penstock.stores.sql.row_cache import CachedTable, length_of
from penstock.stores.sql.session import Row, Session

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
    "sticky_worker_id",
    "sticky_until_ms",
)
_SAVED = ("task_id", *mutable_columns.TASKS)
_saved = attrgetter(*_SAVED)
SEPARATOR = "\x1f"
"""Does not occur in names."""
_KINDS = {each.value: each for each in TaskKind}
_STATES = {each.value: each for each in TaskState}


class SqlTasks:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, task_id: TaskId) -> Task | None:
        return await self._session.one("get_task", TASKS, task_id)

    async def lock(self, task_id: TaskId) -> Task | None:
        return await self._session.one("lock_task", TASKS, task_id)

    async def lock_live_of(self, run_id: RunId) -> Sequence[Task]:
        return [task_of(row) for row in await self._session.fetch("lock_live_tasks", run_id)]

    async def lock_workflow_task(self, run_id: RunId) -> Task | None:
        return await self._session.only("lock_workflow_task", TASKS, run_id)

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
        now = (sticky_workers_of(worker_filter), self._session.now_ms)
        if not worker_filter.types:
            return (
                worker_filter
                if await self._session.fetch("any_ready_task", queue_id, worker_filter.build_id, *now)
                else None
            )
        rows = await self._session.fetch("ready_routes", queue_id, routes_of(worker_filter), *now)
        found = {str(row[1]).partition(SEPARATOR)[0] for row in rows}
        return (
            replace(worker_filter, types=tuple(each for each in worker_filter.types if each in found))
            if found
            else None
        )

    async def sticky(self, queue_id: QueueId) -> Mapping[str, int]:
        rows = await self._session.fetch("sticky_tasks", queue_id, self._session.now_ms)
        return {str(row[1]): int(row[2]) for row in rows}

    def insert(self, task: Task, priority: TaskPriority) -> None:
        record = self._session.record
        record("insert_task", *_WHAT(task), route(task.type, task.compatibility), *_PLACE(task))
        self._session.inserted_partially(TASKS, task)
        record("count_added", task.queue_id, self._session.now_ms // MINUTE_MS)
        if task.state is TaskState.READY:
            record("join_lane", task.queue_id, task.level, task.key, priority.weight_milli)

    def save(self, task: Task, was: TaskState) -> None:
        ended = was is TaskState.LEASED and task.state is not TaskState.LEASED
        counted = ended and (task.counted or task.scopes or task.claimed)
        saved = replace(task, counted=0, scopes="", claimed=0) if counted else task
        self._session.record("save_task", *_saved(saved))
        self._session.saved(TASKS, saved)
        if ended:
            self._uncount(task)
        if (was is TaskState.READY) != (task.state is TaskState.READY):
            move = "leave_lane" if was is TaskState.READY else "rejoin_lane"
            self._session.record(move, task.queue_id, task.level, task.key)

    def lease(self, task: Task) -> None:
        self._session.record("save_task", *_saved(task))
        self._session.saved(TASKS, task)

    def _uncount(self, task: Task) -> None:
        if self._session.journals:
            SqlJournal(self._session).append(journal_lines.ended(task, self._session.now_ms))
        if task.counted == 1:
            self._session.record("uncount_key", task.queue_id, task.key)
            self._session.record("release_lanes", task.queue_id, task.key)
        if task.counted:
            self._session.wake(queue_topic(task.queue_id))
        for scope_id in task.scopes.split():
            self._session.record("end_in_scope", int(scope_id), self._session.shard)
            self._session.wake(scope_topic(int(scope_id)))


def route(type_: str, build_id: str | None) -> str:
    """The type and build that a worker needs to take a task, as one text."""
    return f"{type_}{SEPARATOR}{build_id or ''}"


def routes(worker_filter: WorkerFilter) -> list[str]:
    """The routes that a worker with registered types can take."""
    builds = [None] if worker_filter.build_id is None else [None, worker_filter.build_id]
    return [route(type_, build) for type_ in worker_filter.types for build in builds]


def routes_of(worker_filter: WorkerFilter) -> str:
    return msgspec.json.encode(routes(worker_filter)).decode()


def sticky_workers_of(worker_filter: WorkerFilter) -> str:
    """The workers whose sticky tasks match a filter, as one text."""
    return (
        SEPARATOR + SEPARATOR.join(worker_filter.sticky_workers) + SEPARATOR
        if worker_filter.sticky_workers
        else ""
    )


def types_of(worker_filter: WorkerFilter) -> str:
    """The types of a filter as one text, so that several filters can be sent in one statement."""
    return SEPARATOR + SEPARATOR.join(worker_filter.types) + SEPARATOR if worker_filter.types else ""


def task_of(row: Row) -> Task:
    values: list[Any]
    _, *values = row
    values[4] = _KINDS[values[4]]
    values[11] = _STATES[values[11]]
    return Task(*values)


TASKS = CachedTable(
    "tasks",
    Task.__struct_fields__,
    _SAVED,
    task_of,
    size=length_of("last_error", "scopes"),
    is_finished=lambda task: not task.is_live,
    written_by=("save_task", "insert_task"),
    owner_of=lambda task: task.run_id if task.kind is TaskKind.WORKFLOW else None,
)
"""The database assigns the sequence number of a task, so a task is cached only after it was read."""
