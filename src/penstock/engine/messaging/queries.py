"""Queries: reads of replayed workflow state, answered by a worker while the caller waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.core.model import Blob, QueryKind, QueryState, QueryTask, Run, RunId, WorkerRecord
from penstock.core.scheduling.polls import Poll
from penstock.engine.context import EngineContext
from penstock.engine.long_poll import wait_until
from penstock.engine.matching import query_tasks
from penstock.engine.matching.query_tasks import LeasedQuery, LeaseReasons, QueryTaskRequest
from penstock.engine.runs.address import Address, check_workflow, find
from penstock.engine.runs.idempotency import IdempotentRequest, check_arguments, contracts_of
from penstock.errors import Conflict, Exhausted, NotFound, PenstockError, Reason, Unavailable
from penstock.ports.store import Tx
from penstock.ports.wakeups import run_topic

RETRY_AFTER_S = 1
_REASONS = LeaseReasons(
    kind=QueryKind.QUERY,
    noun="query",
    not_found=Reason.QUERY_TASK_NOT_FOUND,
    not_leased=Reason.QUERY_TASK_NOT_LEASED,
    other_owner=Reason.LEASE_OWNER_MISMATCH,
    other_attempt=Reason.QUERY_TASK_ATTEMPT_MISMATCH,
    expired=Reason.LEASE_EXPIRED,
)


class QuerySubmission(Struct, frozen=True):
    """A query of a run."""

    namespace: str
    workflow_id: str
    name: str
    arguments: Blob
    run_id: RunId | None = None
    """None: the current run."""
    chain: RunId | None = None


class QueryResult(Struct, frozen=True):
    """A worker's answer to a query."""

    run: Run
    outcome: dict[str, Any]


async def ask(ctx: EngineContext, query_request: QuerySubmission, draining: asyncio.Event) -> QueryResult:
    """Submit a query and wait for a worker's answer. Raises if no worker can or does answer, or the query fails."""
    run = await _target(ctx, query_request)
    if run.buffered:
        await _until_recorded(ctx, run, draining)
    query = await query_tasks.ask(ctx, _task_request(ctx, run, query_request), draining)
    if query is None or not query_tasks.is_answered(query):
        wait_s = ctx.settings.polls.query_timeout_ms // 1000
        raise Unavailable(
            Reason.QUERY_WORKER_TIMEOUT,
            f"No worker answered within {wait_s} s.",
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            query_name=query_request.name,
            result=None,
            outcome="none",
        )
    outcome = query_tasks.outcome_of(query)
    if query.state is QueryState.FAILED:
        raise _failed(run, query_request.name, outcome)
    return QueryResult(run, outcome)


async def _until_recorded(ctx: EngineContext, run: Run, draining: asyncio.Event) -> None:
    """Wait until the history has what was acknowledged before the query: a worker answers from the history.

    A workflow task that takes long does not keep the query from being asked: half of its time is for the answer.
    """

    async def check() -> tuple[bool, bool]:
        found = await ctx.store.read(lambda tx: tx.runs.get(run.run_id))
        is_recorded = found is None or not found.buffered
        return is_recorded, is_recorded

    await wait_until(ctx, run_topic(run.run_id), check, ctx.settings.polls.query_timeout_ms // 2, draining)


async def _target(ctx: EngineContext, query_request: QuerySubmission) -> Run:
    async def operation(tx: Tx) -> Run:
        run = await find(
            tx,
            Address(
                query_request.namespace, query_request.workflow_id, query_request.run_id, query_request.chain
            ),
        )
        check_workflow(run)
        declared = await contracts_of(ctx, tx, run)
        check_arguments(
            declared, run, IdempotentRequest("query", query_request.name, query_request.arguments)
        )
        return run

    return await ctx.store.read(operation)


def _task_request(ctx: EngineContext, run: Run, query_request: QuerySubmission) -> QueryTaskRequest:
    def check_workers(workers: Sequence[WorkerRecord]) -> None:
        if not any(query_tasks.replays(each, run) and query_tasks.fits_build(each, run) for each in workers):
            raise Conflict(
                Reason.QUERY_WORKER_UNAVAILABLE,
                f"No active worker on {run.task_queue!r} can replay {run.workflow_type!r}. "
                "Start one, then try again.",
                workflow_id=run.workflow_id,
                run_id=run.run_id,
                task_queue=run.task_queue,
                result=None,
            )

    def full(pending: int) -> Exhausted:
        """The error with `Retry-After`: at the latest by then a waiting caller has timed out and freed a slot."""
        seconds = ctx.query_pace.retry_after_s(
            run.namespace,
            run.task_queue,
            default_ms=ctx.settings.leases.query_lease_ms,
            longest_ms=ctx.settings.polls.query_timeout_ms,
        )
        return Exhausted(
            Reason.QUERY_TASK_QUEUE_FULL,
            f"{pending} queries already wait on this queue, which is the limit. Try again in {seconds} s.",
            workflow_id=run.workflow_id,
            query_name=query_request.name,
            result=None,
            retry_after_seconds=seconds,
        )

    def locked_out(refusal: Unavailable) -> Unavailable:
        return Unavailable(
            Reason.QUERY_TASK_QUEUE_UNAVAILABLE,
            refusal.message,
            workflow_id=run.workflow_id,
            query_name=query_request.name,
            result=None,
            outcome="none",
            retry_after_seconds=RETRY_AFTER_S,
        )

    return QueryTaskRequest(
        QueryKind.QUERY,
        run,
        query_request.name,
        query_request.arguments,
        check_workers,
        full,
        locked_out=locked_out,
    )


def _failed(run: Run, name: str, outcome: dict[str, Any]) -> PenstockError:
    reported = str(outcome.get("reason") or "")
    details: dict[str, Any] = {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "query_name": name,
        "result": None,
        "failure": outcome,
    }
    message = str(outcome.get("message") or "The worker rejected the query.")
    if reported == Reason.REJECTED_UNKNOWN_QUERY.value:
        return NotFound(Reason.REJECTED_UNKNOWN_QUERY, message, **details)
    if reported == Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE.value:
        return Conflict(Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE, message, **details)
    return Conflict(Reason.QUERY_REJECTED, message, **details, worker_reason=reported or None)


async def poll(
    ctx: EngineContext, request: Poll, wait_ms: int, draining: asyncio.Event
) -> LeasedQuery | None:
    """Lease the oldest query that the worker can answer, or None when the wait is over."""

    async def lease() -> LeasedQuery | None:
        leased = await query_tasks.lease_unless_cancelled(ctx, QueryKind.QUERY, request)
        if leased is None and not draining.is_set():
            _require_locks(ctx)
        return leased

    return await query_tasks.wait_for(ctx, QueryKind.QUERY, request, lease, wait_ms, draining)


def _require_locks(ctx: EngineContext) -> None:
    """Raise `Unavailable` for a poll while no query can be submitted, rather than let it wait in vain."""
    if not ctx.coordination.is_supported:
        raise Unavailable(
            Reason.QUERY_TASK_QUEUE_UNAVAILABLE,
            f"No query can be submitted now: {ctx.coordination.kind} grants no locks. Poll again shortly.",
            outcome="none",
            retry_after_seconds=RETRY_AFTER_S,
        )


async def report(
    ctx: EngineContext,
    namespace: str,
    query_id: str,
    owner: str,
    attempt: int,
    state: QueryState,
    outcome: dict[str, Any],
) -> QueryTask:
    """Record a worker's answer, if it still holds the query task."""
    done = await query_tasks.report(ctx, _REASONS, namespace, query_id, owner, attempt, state, outcome)
    ctx.query_pace.answered(done.namespace, done.task_queue)
    return done
