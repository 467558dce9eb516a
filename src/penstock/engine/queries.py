"""Queries: a bounded number of questions to replayed state, answered by a worker while the caller waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.model import (
    Blob,
    Host,
    QueryState,
    QueryTask,
    RecordedEvent,
    Run,
    RunId,
    TaskKind,
    WorkerStatus,
)
from penstock.core.scheduling import dispatch
from penstock.core.scheduling.cohorts import check_may_poll, status_now
from penstock.engine.house import House
from penstock.engine.polls import Poll
from penstock.errors import Conflict, Exhausted, LeaseLost, NotFound, PenstockError, Reason, Unavailable
from penstock.ports.store import Line, Tx

LOOK_AGAIN_S = 1.0
RETRY_AFTER_S = 1
HISTORY_EVENTS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class Question:
    namespace: str
    workflow_id: str
    name: str
    arguments: Blob
    run_id: RunId | None = None
    """None: the current run."""


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    run: Run
    outcome: dict[str, Any]


async def ask(house: House, question: Question, draining: asyncio.Event) -> QueryAnswer:
    """Put the question in line, wait for a worker's answer, and forget both. A server that drains waits no more."""
    query_id = f"query-{house.entropy.new_id()}"
    wait_ms = house.settings.polls.query_timeout_ms
    run = await _enqueue_unless_gone(house, question, query_id, wait_ms)
    try:
        answered = await _wait(house, query_id, wait_ms, draining)
    finally:
        await _forget(house, query_id)
    if answered is None and draining.is_set():
        raise Unavailable(
            Reason.SERVER_DRAINING,
            "This server is stopping. Ask another, or again in a moment.",
            outcome="none",
        )
    if answered is None:
        raise Unavailable(
            Reason.QUERY_WORKER_TIMEOUT,
            f"No worker answered within {wait_ms // 1000} s.",
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            query_name=question.name,
            result=None,
            outcome="none",
        )
    outcome: dict[str, Any] = json.loads(answered.outcome or "{}")
    if answered.state is QueryState.FAILED:
        raise _failed(run, question.name, outcome)
    return QueryAnswer(run, outcome)


async def _enqueue_unless_gone(house: House, question: Question, query_id: str, wait_ms: int) -> Run:
    """Put the question in line; if its caller hangs up meanwhile, take it out again."""
    putting = asyncio.ensure_future(_enqueue(house, question, query_id, wait_ms))
    try:
        return await asyncio.shield(putting)
    except asyncio.CancelledError:
        await asyncio.wait([putting])
        if putting.exception() is None:
            await _forget(house, query_id)
        raise


async def _enqueue(house: House, question: Question, query_id: str, wait_ms: int) -> Run:
    async def find(tx: Tx) -> Run:
        return await _target(tx, question)

    run = await house.store.read(find)

    async def operation(tx: Tx) -> Run:
        await _require_worker(house, tx, run)
        queue = await tx.queues.ensure(run.namespace, run.task_queue, TaskKind.WORKFLOW)
        await tx.queues.lock(queue.queue_id)
        most = house.settings.limits.pending_query_tasks_max
        pending = await tx.queries.count_pending(run.namespace, run.task_queue, tx.now_ms)
        if pending >= most:
            raise _full(house, run, question.name, pending)
        tx.queries.insert(
            QueryTask(
                query_id=query_id,
                namespace=run.namespace,
                task_queue=run.task_queue,
                run_id=run.run_id,
                workflow_type=run.workflow_type,
                compatibility=run.compatibility,
                name=question.name,
                arguments=question.arguments,
                created_at_ms=tx.now_ms,
                expires_at_ms=tx.now_ms + wait_ms,
            )
        )
        tx.wake(_desk_bell(run.namespace, run.task_queue))
        return run

    async with _at_the_desk(house, run, question.name):
        return await house.store.transact(
            operation, key=f"queries:{run.namespace}:{run.task_queue}", line=Line.CLAIM
        )


@contextlib.asynccontextmanager
async def _at_the_desk(house: House, run: Run, name: str) -> AsyncIterator[None]:
    """Under the lock between servers that guards the line of questions, where there is one.

    How many may wait is decided by rows under the queue's own lock, so that a lock which ended early breaks
    nothing; one that cannot be had refuses the question.
    """
    try:
        async with house.coordination.lock(f"queries:{run.namespace}:{run.task_queue}"):
            yield
    except Unavailable as refusal:
        if refusal.reason is not Reason.COORDINATION_UNAVAILABLE:
            raise
        raise Unavailable(
            Reason.QUERY_TASK_QUEUE_UNAVAILABLE,
            refusal.message,
            workflow_id=run.workflow_id,
            query_name=name,
            result=None,
            outcome="none",
            retry_after_seconds=RETRY_AFTER_S,
        ) from refusal


def _full(house: House, run: Run, name: str, pending: int) -> Exhausted:
    """A refusal that says when to come back. At the latest then a caller of those who wait has given up."""
    seconds = house.answer_pace.retry_after_s(
        run.namespace,
        run.task_queue,
        default_ms=house.settings.leases.query_lease_ms,
        longest_ms=house.settings.polls.query_timeout_ms,
    )
    return Exhausted(
        Reason.QUERY_TASK_QUEUE_FULL,
        f"{pending} queries wait on this queue, which is as many as may. Try again in {seconds} s.",
        workflow_id=run.workflow_id,
        query_name=name,
        result=None,
        retry_after_seconds=seconds,
    )


async def _target(tx: Tx, question: Question) -> Run:
    instance = await tx.runs.instance(question.namespace, question.workflow_id)
    run = await tx.runs.get(instance.run_id) if instance else None
    if instance is None or run is None or run.host is not Host.WORKFLOW:
        raise NotFound(
            Reason.INSTANCE_NOT_FOUND,
            f"There is no workflow {question.workflow_id!r}.",
            workflow_id=question.workflow_id,
        )
    if question.run_id is not None and question.run_id != instance.run_id:
        raise Conflict(
            Reason.HISTORICAL_RUN_COMMAND_REJECTED,
            f"{question.run_id} is not the current run of {question.workflow_id!r}.",
            workflow_id=question.workflow_id,
            run_id=instance.run_id,
        )
    return run


async def _require_worker(house: House, tx: Tx, run: Run) -> None:
    stale_after_ms = house.settings.polls.worker_stale_after_ms
    for worker in await tx.workers.list(run.namespace, run.task_queue):
        knows = not worker.workflow_types or run.workflow_type in worker.workflow_types
        fits_build = run.compatibility in (None, worker.build_id)
        if knows and fits_build and status_now(worker, tx.now_ms, stale_after_ms) is WorkerStatus.ACTIVE:
            return
    raise Conflict(
        Reason.QUERY_WORKER_UNAVAILABLE,
        f"No active worker on {run.task_queue!r} can replay {run.workflow_type!r}. Start one, then ask again.",
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        task_queue=run.task_queue,
        result=None,
    )


async def _wait(house: House, query_id: str, wait_ms: int, draining: asyncio.Event) -> QueryTask | None:
    async def operation(tx: Tx) -> QueryTask | None:
        return await tx.queries.get(query_id)

    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_ms / 1000
    changed = asyncio.Event()
    silence = house.wakeups.listen(_answer_bell(query_id), changed.set)
    try:
        while True:
            changed.clear()
            query = await house.store.read(operation)
            if query is not None and query.state in (QueryState.ANSWERED, QueryState.FAILED):
                return query
            left = ends_at - loop.time()
            if query is None or left <= 0 or draining.is_set():
                return None
            await _either(changed, draining, min(left, LOOK_AGAIN_S))
    finally:
        silence()


async def _forget(house: House, query_id: str) -> None:
    async def operation(tx: Tx) -> None:
        tx.queries.delete(query_id)

    with contextlib.suppress(PenstockError):
        await house.store.transact(operation, key=query_id)


def _failed(run: Run, name: str, outcome: dict[str, Any]) -> PenstockError:
    said = str(outcome.get("reason") or "")
    details: dict[str, Any] = {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "query_name": name,
        "result": None,
        "failure": outcome,
    }
    message = str(outcome.get("message") or "The worker rejected the query.")
    if said == Reason.REJECTED_UNKNOWN_QUERY.value:
        return NotFound(Reason.REJECTED_UNKNOWN_QUERY, message, **details)
    return Conflict(Reason.QUERY_REJECTED, message, **details, worker_reason=said or None)


@dataclass(frozen=True, slots=True)
class LeasedQuery:
    query: QueryTask
    run: Run
    events: Sequence[RecordedEvent]


async def poll(house: House, request: Poll, wait_ms: int, draining: asyncio.Event) -> LeasedQuery | None:
    """Lease the oldest query that the worker can answer, or None when the wait is over."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_ms / 1000
    changed = asyncio.Event()
    silence = house.wakeups.listen(_desk_bell(request.namespace, request.task_queue), changed.set)
    try:
        while True:
            changed.clear()
            leased = await _lease_unless_gone(house, request)
            left = ends_at - loop.time()
            if leased is not None or draining.is_set():
                return leased
            _require_locks(house)
            if left <= 0:
                return None
            await _either(changed, draining, min(left, LOOK_AGAIN_S))
    finally:
        silence()


def _require_locks(house: House) -> None:
    """A poll that finds nothing while no question can be taken in is told so, and does not wait for any."""
    if not house.coordination.is_supported():
        raise Unavailable(
            Reason.QUERY_TASK_QUEUE_UNAVAILABLE,
            f"No query can be put in line now: {house.coordination.kind} lends no locks. Poll again shortly.",
            outcome="none",
            retry_after_seconds=RETRY_AFTER_S,
        )


async def _lease_unless_gone(house: House, request: Poll) -> LeasedQuery | None:
    """Lease a query; if the caller hangs up meanwhile, the query waits again."""
    leasing = asyncio.ensure_future(_lease(house, request))
    try:
        return await asyncio.shield(leasing)
    except asyncio.CancelledError:
        leased = await leasing
        if leased is not None:
            await hand_back(house, leased)
        raise


async def hand_back(house: House, leased: LeasedQuery) -> None:
    """Undo a lease whose poller hung up before it was told."""

    async def operation(tx: Tx) -> None:
        query = await tx.queries.lock(leased.query.query_id)
        if query is None or query.state is not QueryState.LEASED or query.attempt != leased.query.attempt:
            return
        tx.queries.save(replace(query, state=QueryState.PENDING, lease_owner=None, lease_expires_at_ms=None))
        tx.wake(_desk_bell(query.namespace, query.task_queue))

    await house.store.transact(operation, key=leased.query.query_id)


async def _lease(house: House, request: Poll) -> LeasedQuery | None:
    async def operation(tx: Tx) -> QueryTask | None:
        found = await tx.workers.get(request.namespace, request.worker_id)
        intents = {
            each.build_id: each for each in await tx.cohorts.list(request.namespace, request.task_queue)
        }
        worker = check_may_poll(found, request.worker_id, request.task_queue, request.build_id, intents)
        if tx.now_ms - worker.heartbeat_at_ms > house.settings.polls.worker_stale_after_ms // 6:
            tx.workers.touch(request.namespace, worker.worker_id, tx.now_ms)
        fit = dispatch.fit(worker, worker.workflow_types)
        query = await tx.queries.lock_next(request.namespace, request.task_queue, fit, tx.now_ms)
        if query is None:
            return None
        leased = replace(
            query,
            state=QueryState.LEASED,
            attempt=query.attempt + 1,
            lease_owner=worker.worker_id,
            lease_expires_at_ms=tx.now_ms + house.settings.leases.query_lease_ms,
        )
        tx.queries.save(leased)
        return leased

    query = await house.store.transact(
        operation, key=f"queries:{request.namespace}:{request.task_queue}", line=Line.CLAIM
    )
    return None if query is None else await _equipped(house, query)


async def _equipped(house: House, query: QueryTask) -> LeasedQuery:
    """The query with the history that answers it, read after the lease so that nobody waits for the reading."""

    async def operation(tx: Tx) -> LeasedQuery:
        run = await tx.runs.get(query.run_id)
        assert run is not None, "a query names a run that exists"
        return LeasedQuery(query, run, await tx.histories.page(run.run_id, 0, HISTORY_EVENTS_MAX))

    return await house.store.read(operation)


async def report(
    house: House,
    namespace: str,
    query_id: str,
    owner: str,
    attempt: int,
    state: QueryState,
    outcome: dict[str, Any],
) -> QueryTask:
    """Take a worker's answer, if it still holds the question."""

    async def operation(tx: Tx) -> QueryTask:
        query = _held(await tx.queries.lock(query_id), namespace, owner, attempt, tx.now_ms)
        done = replace(
            query,
            state=state,
            lease_owner=None,
            lease_expires_at_ms=None,
            outcome=json.dumps(outcome, ensure_ascii=False),
        )
        tx.queries.save(done)
        tx.wake(_answer_bell(query_id))
        return done

    done = await house.store.transact(operation, key=query_id)
    house.answer_pace.answered(done.namespace, done.task_queue)
    return done


def _held(query: QueryTask | None, namespace: str, owner: str, attempt: int, now_ms: int) -> QueryTask:
    if query is None or query.namespace != namespace:
        raise NotFound(
            Reason.QUERY_TASK_NOT_FOUND,
            "There is no such query; its caller may have gone.",
            outcome="rejected",
        )
    if query.state is not QueryState.LEASED:
        raise LeaseLost(
            Reason.QUERY_TASK_NOT_LEASED, "The query is not leased to anybody.", outcome="rejected"
        )
    if query.lease_owner != owner:
        raise LeaseLost(
            Reason.LEASE_OWNER_MISMATCH,
            f"The query is leased to {query.lease_owner!r}.",
            lease_owner=query.lease_owner,
            outcome="rejected",
        )
    if query.attempt != attempt:
        raise LeaseLost(
            Reason.QUERY_TASK_ATTEMPT_MISMATCH,
            f"The query is in attempt {query.attempt}.",
            current_attempt=query.attempt,
            outcome="rejected",
        )
    if (query.lease_expires_at_ms or 0) <= now_ms:
        raise LeaseLost(Reason.LEASE_EXPIRED, "The lease of the query has expired.", outcome="rejected")
    return query


async def mend(house: House, query_id: str) -> bool:
    """A query whose caller is gone disappears; one whose worker is gone waits again."""

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
            tx.wake(_desk_bell(query.namespace, query.task_queue))
            return True
        return False

    return await house.store.transact(operation, key=query_id)


async def _either(changed: asyncio.Event, draining: asyncio.Event, seconds: float) -> None:
    """Until something changed, the server drains, or it is time to look anyway."""
    waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(draining.wait())]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


def _desk_bell(namespace: str, task_queue: str) -> str:
    return f"queries:{namespace}:{task_queue}".replace(",", ";")


def _answer_bell(query_id: str) -> str:
    return f"query:{query_id}"
