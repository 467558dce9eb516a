"""Query tasks: short-lived requests to replayed workflow state, answered by a worker while the caller waits.

A query task exists only while its caller waits: it is inserted, leased by a polling worker together with the run's
history, answered, and deleted. It never enters a history. The number of pending tasks per queue is bounded. Queries
(`messaging.queries`) and update validations (`update_validation`) are the two kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import (
    Blob,
    QueryKind,
    QueryState,
    QueryTask,
    RecordedEvent,
    Run,
    TaskKind,
    WorkerRecord,
    WorkerStatus,
)
from penstock.core.scheduling import dispatch
from penstock.core.scheduling.cohorts import check_may_poll, is_known_dead, status_now
from penstock.core.scheduling.polls import Poll
from penstock.engine.context import EngineContext
from penstock.engine.long_poll import wait_until
from penstock.engine.runtime.deadlines import Deadline
from penstock.errors import LeaseLost, NotFound, PenstockError, Reason, Unavailable
from penstock.ports.store import TransactionClass, Tx
from penstock.ports.wakeups import Topic, queue_topic

HISTORY_EVENTS_MAX = 50_000
HISTORY_BYTES_MAX = 64_000_000
HISTORY_PORTION = 1_000
_TOPICS = {QueryKind.QUERY: "queries", QueryKind.UPDATE_VALIDATION: "validations"}
_ANSWERED = (QueryState.ANSWERED, QueryState.FAILED)


class QueryTaskRequest(Struct, frozen=True):
    """A query task to be submitted, and the errors its caller gets."""

    kind: QueryKind
    run: Run
    name: str
    arguments: Blob
    check_workers: Callable[[Sequence[WorkerRecord]], None]
    """Raises if none of the queue's active workers can answer."""
    full: Callable[[int], PenstockError]
    """The error when the queue is full, given the number of pending tasks."""
    locked_out: Callable[[Unavailable], PenstockError]
    """The error when the lock between servers is unavailable."""


class LeasedQuery(Struct, frozen=True):
    """A leased query task with the history to replay."""

    query: QueryTask
    run: Run
    events: Sequence[RecordedEvent]
    lease_ends_at: float = 0.0
    """The earliest end of its lease on this process's monotonic clock."""


class LeaseReasons(Struct, frozen=True):
    """The reasons with which an answer is refused that comes from the wrong worker or too late."""

    kind: QueryKind
    noun: str
    not_found: Reason
    not_leased: Reason
    other_owner: Reason
    other_attempt: Reason
    expired: Reason


# Callers


async def ask(ctx: EngineContext, request: QueryTaskRequest, draining: asyncio.Event) -> QueryTask | None:
    """Submit a query task, wait for a worker's answer, and delete the task.

    Returns the task as last read, answered or not. Raises `Unavailable` if the server drains meanwhile.
    """
    query_id = f"{request.kind.value}-{ctx.entropy.new_id()}"
    wait_ms = ctx.settings.polls.query_timeout_ms
    await _submit_unless_cancelled(ctx, request, query_id, wait_ms)

    async def check() -> tuple[QueryTask | None, bool]:
        query = await _find(ctx, query_id)
        return query, query is None or query.state in _ANSWERED

    try:
        query, _ = await wait_until(ctx, _answer_topic(query_id), check, wait_ms, draining)
    finally:
        await _delete(ctx, query_id)
    if draining.is_set() and not is_answered(query):
        raise Unavailable(
            Reason.SERVER_DRAINING,
            "This server is stopping. Retry, or send the request to another server.",
            outcome="none",
        )
    return query


def is_answered(query: QueryTask | None) -> bool:
    return query is not None and query.state in _ANSWERED


def outcome_of(query: QueryTask) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(query.outcome or "{}")
    return outcome


def replays(worker: WorkerRecord, run: Run) -> bool:
    """Whether a worker has the code of a run's workflow type, of any build."""
    return worker.knows(run.workflow_type)


def fits_build(worker: WorkerRecord, run: Run) -> bool:
    return run.compatibility in (None, worker.build_id)


async def _submit_unless_cancelled(
    ctx: EngineContext, request: QueryTaskRequest, query_id: str, wait_ms: int
) -> None:
    """Submit a task; if the caller disconnects meanwhile, delete it again."""
    submission = asyncio.ensure_future(_submit(ctx, request, query_id, wait_ms))
    try:
        await asyncio.shield(submission)
    except asyncio.CancelledError:
        await asyncio.wait([submission])
        if submission.exception() is None:
            await _delete(ctx, query_id)
        raise


async def _submit(ctx: EngineContext, request: QueryTaskRequest, query_id: str, wait_ms: int) -> None:
    run = request.run

    async def check(tx: Tx) -> None:
        request.check_workers(await active_workers(ctx, tx, run))
        most = ctx.settings.limits.pending_query_tasks_max
        pending = await tx.queries.count_pending(run.namespace, run.task_queue, tx.now_ms, request.kind)
        if pending >= most:
            raise request.full(pending)

    async def operation(tx: Tx) -> None:
        queue = await tx.queues.ensure(run.namespace, run.task_queue, TaskKind.WORKFLOW)
        await tx.queues.lock(queue.queue_id)
        await check(tx)
        tx.queries.insert(
            QueryTask(
                query_id=query_id,
                namespace=run.namespace,
                task_queue=run.task_queue,
                run_id=run.run_id,
                workflow_type=run.workflow_type,
                compatibility=run.compatibility,
                name=request.name,
                arguments=request.arguments,
                created_at_ms=tx.now_ms,
                expires_at_ms=tx.now_ms + wait_ms,
                kind=request.kind,
            )
        )
        tx.wake(topic(request.kind, run.namespace, run.task_queue))

    await ctx.store.read(check)  # without locks: refused floods must not delay the queue's tasks
    async with _submission_lock(ctx, request):
        await ctx.store.transact(operation, key=_lock_key(request.kind, run), tx_class=TransactionClass.CLAIM)


async def active_workers(ctx: EngineContext, tx: Tx, run: Run) -> Sequence[WorkerRecord]:
    """The active workers on the queue of a run."""
    stale_after_ms = ctx.settings.polls.worker_stale_after_ms
    workers = await tx.workers.list(run.namespace, run.task_queue)
    return [each for each in workers if status_now(each, tx.now_ms, stale_after_ms) is WorkerStatus.ACTIVE]


@contextlib.asynccontextmanager
async def _submission_lock(ctx: EngineContext, request: QueryTaskRequest) -> AsyncIterator[None]:
    """Hold the lock between servers that guards submissions to a query queue, where there is one.

    The bound itself is checked on rows under the queue's row lock, so a coordination lock that is lost early breaks
    nothing. If the lock is unavailable the submission is refused.
    """
    try:
        async with ctx.coordination.lock(_lock_key(request.kind, request.run)):
            yield
    except Unavailable as refusal:
        if refusal.reason is not Reason.COORDINATION_UNAVAILABLE:
            raise
        raise request.locked_out(refusal) from refusal


async def _find(ctx: EngineContext, query_id: str) -> QueryTask | None:
    return await ctx.store.read(lambda tx: tx.queries.get(query_id))


async def _delete(ctx: EngineContext, query_id: str) -> None:
    async def operation(tx: Tx) -> None:
        tx.queries.delete(query_id)

    with contextlib.suppress(PenstockError):
        await ctx.store.transact(operation, key=query_id)


# Workers


async def wait_for(
    ctx: EngineContext,
    kind: QueryKind,
    request: Poll,
    lease: Callable[[], Awaitable[LeasedQuery | None]],
    wait_ms: int,
    draining: asyncio.Event,
) -> LeasedQuery | None:
    """Call `lease` until it returns a task or the wait is over.

    It waits for notifications only: the dispatcher's periodic read notifies queues with pending tasks
    (`QueryPollRegistry`), so one read per second serves all polls of this server.
    """

    async def check() -> tuple[LeasedQuery | None, bool]:
        leased = await lease()
        return leased, leased is not None

    line = (kind, request.namespace, request.task_queue)
    async with Deadline(wait_ms).kept():
        with ctx.query_polls.registered(line):
            leased, _ = await wait_until(ctx, topic(*line), check, wait_ms, draining, look_again_s=math.inf)
    return leased


async def lease_unless_cancelled(ctx: EngineContext, kind: QueryKind, request: Poll) -> LeasedQuery | None:
    """Lease the oldest task that the worker can answer; if the poller disconnects meanwhile, requeue it."""
    lease = asyncio.ensure_future(_lease(ctx, kind, request))
    try:
        return await asyncio.shield(lease)
    except asyncio.CancelledError:
        rollback = asyncio.ensure_future(_hand_back_once_leased(ctx, lease))
        _rollbacks.add(rollback)
        rollback.add_done_callback(_rollbacks.discard)
        raise


_rollbacks: set[asyncio.Future[None]] = set()
"""Strong references while they run: the event loop keeps only weak ones."""


async def _hand_back_once_leased(ctx: EngineContext, lease: asyncio.Future[LeasedQuery | None]) -> None:
    """Requeue in the background: a poller that has left must not wait for the database."""
    with contextlib.suppress(PenstockError):  # on an error the lease expires
        leased = await lease
        if leased is not None:
            await hand_back(ctx, leased)


async def hand_back(ctx: EngineContext, leased: LeasedQuery) -> None:
    """Requeue a task whose poller disconnected before it got the answer."""

    async def operation(tx: Tx) -> None:
        query = await tx.queries.lock(leased.query.query_id)
        if query is None or query.state is not QueryState.LEASED or query.attempt != leased.query.attempt:
            return
        tx.queries.save(replace(query, state=QueryState.PENDING, lease_owner=None, lease_expires_at_ms=None))
        tx.wake(topic(query.kind, query.namespace, query.task_queue))

    await ctx.store.transact(operation, key=leased.query.query_id)


async def _lease(ctx: EngineContext, kind: QueryKind, request: Poll) -> LeasedQuery | None:
    async def operation(tx: Tx) -> QueryTask | None:
        found = await tx.workers.get(request.namespace, request.worker_id)
        intents = {
            each.build_id: each for each in await tx.cohorts.list(request.namespace, request.task_queue)
        }
        worker = check_may_poll(found, request.worker_id, request.task_queue, request.build_id, intents)
        late_ms = ctx.settings.polls.worker_stale_after_ms // 6
        if tx.now_ms - worker.heartbeat_at_ms > late_ms or is_known_dead(worker):
            tx.workers.touch(request.namespace, worker.worker_id, tx.now_ms)
        worker_filter = dispatch.filter_for(worker, TaskKind.WORKFLOW)
        query = await tx.queries.lock_next(
            request.namespace, request.task_queue, worker_filter, tx.now_ms, kind
        )
        if query is None:
            return None
        leased = replace(
            query,
            state=QueryState.LEASED,
            attempt=query.attempt + 1,
            lease_owner=worker.worker_id,
            lease_expires_at_ms=tx.now_ms + ctx.settings.leases.query_lease_ms,
        )
        tx.queries.save(leased)
        return leased

    line = f"{_TOPICS[kind]}:{request.namespace}:{request.task_queue}"
    lease_ends_at = time.monotonic() + ctx.settings.leases.query_lease_ms / 1000
    query = await ctx.store.transact(operation, key=line, tx_class=TransactionClass.CLAIM)
    if query is None:
        return None
    equipped = await _with_history(ctx, query, lease_ends_at)
    if equipped is None:
        await _fail_too_long(ctx, query)
    return equipped


async def _with_history(ctx: EngineContext, query: QueryTask, lease_ends_at: float) -> LeasedQuery | None:
    """Add the run's history, read after the lease is committed so that no lock is held. None if it is too long."""

    async def operation(tx: Tx) -> LeasedQuery | None:
        run = await tx.runs.get(query.run_id)
        assert run is not None, "a query task has a run"
        events: list[RecordedEvent] = []
        size = 0
        while (events[-1].sequence if events else 0) < run.last_sequence:
            if len(events) > HISTORY_EVENTS_MAX or size > HISTORY_BYTES_MAX:
                return None
            page = await tx.histories.page(run.run_id, events[-1].sequence if events else 0, HISTORY_PORTION)
            events += page
            size += sum(len(event.payload) for event in page)
        return LeasedQuery(query, run, events, lease_ends_at)

    return await ctx.store.read(operation, long=True)


async def _fail_too_long(ctx: EngineContext, query: QueryTask) -> None:
    """Fail a task whose history exceeds the bounds."""

    async def operation(tx: Tx) -> None:
        held = await tx.queries.lock(query.query_id)
        if held is None or (held.state, held.attempt) != (QueryState.LEASED, query.attempt):
            return
        outcome = {
            "reason": Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE.value,
            "message": "The history is too long to be replayed for a query. Let the workflow continue as new.",
        }
        tx.queries.save(
            replace(
                held,
                state=QueryState.FAILED,
                lease_owner=None,
                lease_expires_at_ms=None,
                outcome=json.dumps(outcome),
            )
        )
        tx.wake(_answer_topic(query.query_id))

    await ctx.store.transact(operation, key=query.query_id)


async def report(
    ctx: EngineContext,
    reasons: LeaseReasons,
    namespace: str,
    query_id: str,
    owner: str,
    attempt: int,
    state: QueryState,
    outcome: dict[str, Any],
) -> QueryTask:
    """Record a worker's answer. Raises `LeaseLost` or `NotFound` if it no longer holds the task."""

    async def operation(tx: Tx) -> QueryTask:
        query = _check_lease(await tx.queries.lock(query_id), reasons, namespace, owner, attempt, tx.now_ms)
        done = replace(
            query,
            state=state,
            lease_owner=None,
            lease_expires_at_ms=None,
            outcome=json.dumps(outcome, ensure_ascii=False),
        )
        tx.queries.save(done)
        tx.wake(_answer_topic(query_id))
        return done

    return await ctx.store.transact(operation, key=query_id)


def _check_lease(
    query: QueryTask | None, reasons: LeaseReasons, namespace: str, owner: str, attempt: int, now_ms: int
) -> QueryTask:
    """The task, if the reporter holds its live lease and the caller still waits."""
    noun = reasons.noun
    if query is None or query.namespace != namespace or query.kind is not reasons.kind:
        raise NotFound(
            reasons.not_found,
            f"There is no such {noun}; its caller may have stopped waiting.",
            outcome="rejected",
        )
    if query.state is not QueryState.LEASED:
        raise LeaseLost(reasons.not_leased, f"The {noun} is not leased.", outcome="rejected")
    if query.lease_owner != owner:
        raise LeaseLost(
            reasons.other_owner,
            f"The {noun} is leased to {query.lease_owner!r}.",
            lease_owner=query.lease_owner,
            outcome="rejected",
        )
    if query.attempt != attempt:
        raise LeaseLost(
            reasons.other_attempt,
            f"The {noun} is in attempt {query.attempt}.",
            current_attempt=query.attempt,
            outcome="rejected",
        )
    if (query.lease_expires_at_ms or 0) <= now_ms:
        raise LeaseLost(reasons.expired, f"The lease of the {noun} has expired.", outcome="rejected")
    if query.expires_at_ms <= now_ms:
        raise NotFound(
            reasons.not_found, f"The caller of the {noun} no longer waits for the answer.", outcome="rejected"
        )
    return query


async def expire(ctx: EngineContext, query_id: str) -> bool:
    """Delete a task whose caller's wait has ended; requeue one whose lease has expired."""

    async def operation(tx: Tx) -> bool:
        query = await tx.queries.lock(query_id)
        if query is None:
            return False
        if query.expires_at_ms <= tx.now_ms:
            tx.queries.delete(query_id)
            return True
        if query.state is QueryState.LEASED and (query.lease_expires_at_ms or 0) <= tx.now_ms:
            tx.queries.save(
                replace(query, state=QueryState.PENDING, lease_owner=None, lease_expires_at_ms=None)
            )
            tx.wake(topic(query.kind, query.namespace, query.task_queue))
            return True
        return False

    return await ctx.store.transact(operation, key=query_id)


def topic(kind: QueryKind, namespace: str, task_queue: str) -> Topic:
    """The topic notified when a query task is submitted."""
    return f"{_TOPICS[kind]}:{namespace}:{task_queue}".replace(",", ";")


async def notify_pollers(tx: Tx, namespace: str, task_queue: str) -> None:
    """Wake all polls of a task queue, because the set of workers that may poll has changed."""
    for queue in await tx.queues.find(namespace, task_queue):
        tx.wake(queue_topic(queue.queue_id))
    for kind in _TOPICS:
        tx.wake(topic(kind, namespace, task_queue))


def _lock_key(kind: QueryKind, run: Run) -> str:
    return f"{_TOPICS[kind]}:{run.namespace}:{run.task_queue}"


def _answer_topic(query_id: str) -> Topic:
    return f"query:{query_id}"
