"""The desk: questions to a run's replayed state, put in line by callers who wait, taken and answered by workers.

A question lives as long as its caller waits. How many may wait in one line is bounded.
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
_LINES = {QueryKind.QUERY: "queries", QueryKind.UPDATE_VALIDATION: "validations"}
_ANSWERED = (QueryState.ANSWERED, QueryState.FAILED)


class QueryTaskRequest(Struct, frozen=True):
    """A question, and how its caller is refused."""

    kind: QueryKind
    run: Run
    name: str
    arguments: Blob
    check_workers: Callable[[Sequence[WorkerRecord]], None]
    """Given the workers of the queue that are there now: raises when none of them could answer."""
    full: Callable[[int], PenstockError]
    """Given how many wait."""
    locked_out: Callable[[Unavailable], PenstockError]
    """The lock between servers cannot be had."""


class LeasedQuery(Struct, frozen=True):
    query: QueryTask
    run: Run
    events: Sequence[RecordedEvent]
    lease_ends_at: float = 0.0
    """When its lease ends at the earliest, by this process's monotonic clock."""


class LeaseReasons(Struct, frozen=True):
    """By which reasons an answer is refused that comes from the wrong worker, or at the wrong time."""

    kind: QueryKind
    noun: str
    not_found: Reason
    not_leased: Reason
    other_owner: Reason
    other_attempt: Reason
    expired: Reason


# Callers


async def ask(ctx: EngineContext, asking: QueryTaskRequest, draining: asyncio.Event) -> QueryTask | None:
    """Put the question in line, wait for a worker's answer, and forget both. A server that drains waits no more.

    Returns the question as it was seen last, answered or not.
    """
    query_id = f"{asking.kind.value}-{ctx.entropy.new_id()}"
    wait_ms = ctx.settings.polls.query_timeout_ms
    await _submit_unless_cancelled(ctx, asking, query_id, wait_ms)

    async def look() -> tuple[QueryTask | None, bool]:
        query = await _find(ctx, query_id)
        return query, query is None or query.state in _ANSWERED

    try:
        query, _ = await wait_until(ctx, _answer_topic(query_id), look, wait_ms, draining)
    finally:
        await _forget(ctx, query_id)
    if draining.is_set() and not is_answered(query):
        raise Unavailable(
            Reason.SERVER_DRAINING,
            "This server is stopping. Ask another, or again in a moment.",
            outcome="none",
        )
    return query


def is_answered(query: QueryTask | None) -> bool:
    return query is not None and query.state in _ANSWERED


def outcome_of(query: QueryTask) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(query.outcome or "{}")
    return outcome


def replays(worker: WorkerRecord, run: Run) -> bool:
    """Whether a worker has the code of a run, of whatever build."""
    return worker.knows(run.workflow_type)


def fits_build(worker: WorkerRecord, run: Run) -> bool:
    return run.compatibility in (None, worker.build_id)


async def _submit_unless_cancelled(
    ctx: EngineContext, asking: QueryTaskRequest, query_id: str, wait_ms: int
) -> None:
    """Put the question in line; if its caller hangs up meanwhile, take it out again."""
    putting = asyncio.ensure_future(_put(ctx, asking, query_id, wait_ms))
    try:
        await asyncio.shield(putting)
    except asyncio.CancelledError:
        await asyncio.wait([putting])
        if putting.exception() is None:
            await _forget(ctx, query_id)
        raise


async def _put(ctx: EngineContext, asking: QueryTaskRequest, query_id: str, wait_ms: int) -> None:
    run = asking.run

    async def check(tx: Tx) -> None:
        asking.check_workers(await _present(ctx, tx, run))
        most = ctx.settings.limits.pending_query_tasks_max
        pending = await tx.queries.count_pending(run.namespace, run.task_queue, tx.now_ms, asking.kind)
        if pending >= most:
            raise asking.full(pending)

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
                name=asking.name,
                arguments=asking.arguments,
                created_at_ms=tx.now_ms,
                expires_at_ms=tx.now_ms + wait_ms,
                kind=asking.kind,
            )
        )
        tx.wake(topic(asking.kind, run.namespace, run.task_queue))

    await ctx.store.read(check)  # a flood that is refused must not stand in the way of the queue's tasks
    async with _enqueued(ctx, asking):
        await ctx.store.transact(operation, key=_line(asking.kind, run), tx_class=TransactionClass.CLAIM)


async def _present(ctx: EngineContext, tx: Tx, run: Run) -> Sequence[WorkerRecord]:
    stale_after_ms = ctx.settings.polls.worker_stale_after_ms
    workers = await tx.workers.list(run.namespace, run.task_queue)
    return [each for each in workers if status_now(each, tx.now_ms, stale_after_ms) is WorkerStatus.ACTIVE]


@contextlib.asynccontextmanager
async def _enqueued(ctx: EngineContext, asking: QueryTaskRequest) -> AsyncIterator[None]:
    """Under the lock between servers that guards the line of questions, where there is one.

    How many may wait is decided by rows under the queue's own lock, so that a lock which ended early breaks
    nothing; one that cannot be had refuses the question.
    """
    try:
        async with ctx.coordination.lock(_line(asking.kind, asking.run)):
            yield
    except Unavailable as refusal:
        if refusal.reason is not Reason.COORDINATION_UNAVAILABLE:
            raise
        raise asking.locked_out(refusal) from refusal


async def _find(ctx: EngineContext, query_id: str) -> QueryTask | None:
    async def operation(tx: Tx) -> QueryTask | None:
        return await tx.queries.get(query_id)

    return await ctx.store.read(operation)


async def _forget(ctx: EngineContext, query_id: str) -> None:
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
    """Try to lease a question until there is one, or the wait is over.

    It waits for the bell alone: whoever looks for all polls rings where a question waits that nobody heard of.
    """

    async def look() -> tuple[LeasedQuery | None, bool]:
        leased = await lease()
        return leased, leased is not None

    line = (kind, request.namespace, request.task_queue)
    async with Deadline(wait_ms).kept():
        with ctx.query_polls.registered(line):
            leased, _ = await wait_until(ctx, topic(*line), look, wait_ms, draining, look_again_s=math.inf)
    return leased


async def lease_unless_cancelled(ctx: EngineContext, kind: QueryKind, request: Poll) -> LeasedQuery | None:
    """Lease the oldest question that the worker can answer; if the caller hangs up meanwhile, it waits again."""
    leasing = asyncio.ensure_future(_lease(ctx, kind, request))
    try:
        return await asyncio.shield(leasing)
    except asyncio.CancelledError:
        undoing = asyncio.ensure_future(_hand_back_once_leased(ctx, leasing))
        _with_rollback.add(undoing)
        undoing.add_done_callback(_with_rollback.discard)
        raise


_with_rollback: set[asyncio.Future[None]] = set()
"""Held while they run: the event loop alone does not keep tasks alive."""


async def _hand_back_once_leased(ctx: EngineContext, leasing: asyncio.Future[LeasedQuery | None]) -> None:
    """In the background: a caller that has gone, or whose time is over, does not wait for the database."""
    with contextlib.suppress(PenstockError):  # an error ends the lease in its own time
        leased = await leasing
        if leased is not None:
            await hand_back(ctx, leased)


async def hand_back(ctx: EngineContext, leased: LeasedQuery) -> None:
    """Undo a lease whose poller hung up before it was told."""

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
        worker_filter = dispatch.filter_for(worker, worker.workflow_types)
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

    line = f"{_LINES[kind]}:{request.namespace}:{request.task_queue}"
    ends_at = time.monotonic() + ctx.settings.leases.query_lease_ms / 1000
    query = await ctx.store.transact(operation, key=line, tx_class=TransactionClass.CLAIM)
    if query is None:
        return None
    equipped = await _equipped(ctx, query, ends_at)
    if equipped is None:
        await _refuse(ctx, query)
    return equipped


async def _equipped(ctx: EngineContext, query: QueryTask, lease_ends_at: float) -> LeasedQuery | None:
    """The question with the history that answers it, read after the lease so that nobody waits for the reading.

    None when the history is too long to be handed over at once.
    """

    async def operation(tx: Tx) -> LeasedQuery | None:
        run = await tx.runs.get(query.run_id)
        assert run is not None, "a question names a run that exists"
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


async def _refuse(ctx: EngineContext, query: QueryTask) -> None:
    """Tell whoever asks that the run has become too long to be asked."""

    async def operation(tx: Tx) -> None:
        held = await tx.queries.lock(query.query_id)
        if held is None or (held.state, held.attempt) != (QueryState.LEASED, query.attempt):
            return
        outcome = {
            "reason": Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE.value,
            "message": "The history is too long to be replayed for a question. Let the workflow continue as new.",
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
    holding: LeaseReasons,
    namespace: str,
    query_id: str,
    owner: str,
    attempt: int,
    state: QueryState,
    outcome: dict[str, Any],
) -> QueryTask:
    """Take a worker's answer, if it still holds the question."""

    async def operation(tx: Tx) -> QueryTask:
        query = _held(await tx.queries.lock(query_id), holding, namespace, owner, attempt, tx.now_ms)
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


def _held(
    query: QueryTask | None, holding: LeaseReasons, namespace: str, owner: str, attempt: int, now_ms: int
) -> QueryTask:
    noun = holding.noun
    if query is None or query.namespace != namespace or query.kind is not holding.kind:
        raise NotFound(
            holding.not_found, f"There is no such {noun}; its caller may have gone.", outcome="rejected"
        )
    if query.state is not QueryState.LEASED:
        raise LeaseLost(holding.not_leased, f"The {noun} is not leased to anybody.", outcome="rejected")
    if query.lease_owner != owner:
        raise LeaseLost(
            holding.other_owner,
            f"The {noun} is leased to {query.lease_owner!r}.",
            lease_owner=query.lease_owner,
            outcome="rejected",
        )
    if query.attempt != attempt:
        raise LeaseLost(
            holding.other_attempt,
            f"The {noun} is in attempt {query.attempt}.",
            current_attempt=query.attempt,
            outcome="rejected",
        )
    if (query.lease_expires_at_ms or 0) <= now_ms:
        raise LeaseLost(holding.expired, f"The lease of the {noun} has expired.", outcome="rejected")
    if query.expires_at_ms <= now_ms:
        raise NotFound(
            holding.not_found, f"The caller of the {noun} waits no longer for the answer.", outcome="rejected"
        )
    return query


async def expire(ctx: EngineContext, query_id: str) -> bool:
    """A question whose caller is gone disappears; one whose worker is gone waits again."""

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
    """Rung when a question is put in line."""
    return f"{_LINES[kind]}:{namespace}:{task_queue}".replace(",", ";")


async def notify_pollers(tx: Tx, namespace: str, task_queue: str) -> None:
    """Have all polls of a task queue look, whatever they wait for: who may poll has changed."""
    for queue in await tx.queues.find(namespace, task_queue):
        tx.wake(queue_topic(queue.queue_id))
    for kind in _LINES:
        tx.wake(topic(kind, namespace, task_queue))


def _line(kind: QueryKind, run: Run) -> str:
    return f"{_LINES[kind]}:{run.namespace}:{run.task_queue}"


def _answer_topic(query_id: str) -> Topic:
    return f"query:{query_id}"
