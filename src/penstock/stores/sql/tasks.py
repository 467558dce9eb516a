"""Tasks in SQL: their rows, and the count of their lane."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.core import journal
from penstock.core.model import QueueId, RunId, Standing, Task, TaskId, TaskKind, TaskState
from penstock.core.scheduling.dispatch import Fit
from penstock.core.scheduling.slots import Held
from penstock.core.timers import MINUTE_MS
from penstock.ports.wakeups import queue_bell, scope_bell
from penstock.stores.sql.journal import SqlJournal
from penstock.stores.sql.kept import Table, length_of
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
    "reserved_for",
    "reserved_until_ms",
)
_CHANGING = (
    "task_id",
    "state",
    "available_at_ms",
    "attempt",
    "lease_owner",
    "lease_token",
    "lease_expires_at_ms",
    "leased_at_ms",
    "poll_request_id",
    "done_token",
    "done_digest",
    "done_outcome",
    "last_error",
    "counted",
    "scopes",
    "claimed",
    "granted_at_ms",
    "retry_due_at_ms",
    "reserved_for",
    "reserved_until_ms",
)
_changing = attrgetter(*_CHANGING)
SEPARATOR = "\x1f"
"""Stands in no name."""
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
        return [task_of(row) for row in await self._session.ask("lock_live_tasks", run_id)]

    async def lock_workflow_task(self, run_id: RunId) -> Task | None:
        return await self._session.only("lock_workflow_task", TASKS, run_id)

    async def redelivered(self, namespace: str, polls: Sequence[tuple[str, str]]) -> Sequence[Sequence[Task]]:
        answers = await self._session.ask_each("redelivered_tasks", ((namespace, *poll) for poll in polls))
        return [[task_of(row) for row in rows] for rows in answers]

    async def leased_by(self, namespace: str, worker_id: str) -> Sequence[TaskId]:
        return [TaskId(row[1]) for row in await self._session.ask("tasks_leased_by", namespace, worker_id)]

    async def held(
        self, namespace: str, kind: TaskKind, sessions: Sequence[tuple[str, int]]
    ) -> Sequence[Held]:
        asked = ((namespace, worker_id, kind, since_ms) for worker_id, since_ms in sessions)
        answers = await self._session.ask_each("held_by_worker", asked)
        return [Held(*rows[0][1:]) if rows else Held() for rows in answers]

    async def ring_at_ends(self, namespace: str, kind: TaskKind, worker_ids: Sequence[str]) -> None:
        await self._session.ask_each("ring_at_ends", ((namespace, each, kind) for each in worker_ids))

    async def leases_on(self, queue_id: QueueId, limit: int) -> Sequence[Task]:
        return [task_of(row) for row in await self._session.ask("leases_on_queue", queue_id, limit)]

    async def expired(self, now_ms: int, limit: int) -> Sequence[TaskId]:
        return [TaskId(row[1]) for row in await self._session.ask("expired_tasks", now_ms, limit)]

    async def due(self, now_ms: int, limit: int) -> Sequence[TaskId]:
        return [TaskId(row[1]) for row in await self._session.ask("due_tasks", now_ms, limit)]

    async def next_due_at_ms(self) -> int | None:
        rows = await self._session.ask("next_due_task")
        return None if rows[0][1] is None else int(rows[0][1])

    async def any_ready(self, queue_id: QueueId, fit: Fit) -> bool:
        return await self.ready_part(queue_id, fit) is not None

    async def ready_on(self, queue_ids: Sequence[QueueId]) -> Sequence[QueueId]:
        if not queue_ids:
            return ()
        rows = await self._session.ask("ready_queues", json.dumps(queue_ids))
        return [QueueId(int(row[1])) for row in rows]

    async def ready_part(self, queue_id: QueueId, fit: Fit) -> Fit | None:
        now = (keepers_of(fit), self._session.now_ms)
        if not fit.types:
            return fit if await self._session.ask("any_ready_task", queue_id, fit.build_id, *now) else None
        rows = await self._session.ask("ready_routes", queue_id, routes_of(fit), *now)
        found = {str(row[1]).partition(SEPARATOR)[0] for row in rows}
        return replace(fit, types=tuple(each for each in fit.types if each in found)) if found else None

    async def reserved(self, queue_id: QueueId) -> Mapping[str, int]:
        rows = await self._session.ask("reserved_tasks", queue_id, self._session.now_ms)
        return {str(row[1]): int(row[2]) for row in rows}

    def insert(self, task: Task, standing: Standing) -> None:
        record = self._session.record
        record("insert_task", *_WHAT(task), route(task.type, task.compatibility), *_PLACE(task))
        self._session.appeared(TASKS, task)
        record("count_added", task.queue_id, self._session.now_ms // MINUTE_MS)
        if task.state is TaskState.READY:
            record("join_lane", task.queue_id, task.level, task.key, standing.weight_milli)

    def save(self, task: Task, was: TaskState) -> None:
        ended = was is TaskState.LEASED and task.state is not TaskState.LEASED
        counted = ended and (task.counted or task.scopes or task.claimed)
        kept = replace(task, counted=0, scopes="", claimed=0) if counted else task
        self._session.record("save_task", *_changing(kept))
        self._session.saved(TASKS, kept)
        if ended:
            self._uncount(task)
        if task.state is TaskState.READY and was is not TaskState.READY:
            self._session.record("rejoin_lane", task.queue_id, task.level, task.key)
        elif was is TaskState.READY and task.state is not TaskState.READY:
            self._session.record("leave_lane", task.queue_id, task.level, task.key)

    def lease(self, task: Task) -> None:
        self._session.record("save_task", *_changing(task))
        self._session.saved(TASKS, task)

    def _uncount(self, task: Task) -> None:
        if self._session.journals:
            SqlJournal(self._session).append(journal.ended(task, self._session.now_ms))
        if task.counted == 1:
            self._session.record("uncount_key", task.queue_id, task.key)
            self._session.record("release_lanes", task.queue_id, task.key)
        if task.counted:
            self._session.wake(queue_bell(task.queue_id))
        for scope_id in task.scopes.split():
            self._session.record("end_in_scope", int(scope_id), self._session.shard)
            self._session.wake(scope_bell(int(scope_id)))


def route(type_: str, build_id: str | None) -> str:
    """What a worker must know and be to take a task, as one text."""
    return f"{type_}{SEPARATOR}{build_id or ''}"


def routes(fit: Fit) -> list[str]:
    """Every route that a worker which names its types can take."""
    builds = [None] if fit.build_id is None else [None, fit.build_id]
    return [route(type_, build) for type_ in fit.types for build in builds]


def routes_of(fit: Fit) -> str:
    return msgspec.json.encode(routes(fit)).decode()


def keepers_of(fit: Fit) -> str:
    """The workers whose reserved tasks a fit takes, as one text."""
    return SEPARATOR + SEPARATOR.join(fit.keepers) + SEPARATOR if fit.keepers else ""


def types_of(fit: Fit) -> str:
    """The types of a fit as one text, so that it travels beside other fits in one statement."""
    return SEPARATOR + SEPARATOR.join(fit.types) + SEPARATOR if fit.types else ""


def task_of(row: Row) -> Task:
    values: list[Any]
    _, *values = row
    values[4] = _KINDS[values[4]]
    values[11] = _STATES[values[11]]
    return Task(*values)


TASKS = Table(
    "tasks",
    Task.__struct_fields__,
    _CHANGING,
    task_of,
    size=length_of("last_error", "scopes"),
    is_over=lambda task: not task.is_live,
    told=("save_task", "insert_task"),
    owner_of=lambda task: task.run_id if task.kind is TaskKind.WORKFLOW else None,
)
"""A task has its place in line from the database, so that it is at hand only after it was read."""
