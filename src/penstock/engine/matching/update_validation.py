"""Validation of updates by workflow code before they are accepted; a rejected update leaves no trace in the history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.core.model import Blob, QueryKind, QueryState, QueryTask, Run, WorkerRecord
from penstock.core.scheduling.polls import Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching import query_tasks
from penstock.engine.matching.query_tasks import LeasedQuery, LeaseReasons, QueryTaskRequest
from penstock.errors import Conflict, InvalidInput, PenstockError, Reason, Unavailable
from penstock.ports.store import Tx

CAPABILITY = "update_validation_tasks"
"""The capability that a worker advertises if it validates updates."""
RETRY_AFTER_S = 1
_KIND = QueryKind.UPDATE_VALIDATION
_REASONS = LeaseReasons(
    kind=_KIND,
    noun="validation",
    not_found=Reason.UPDATE_VALIDATION_TASK_NOT_FOUND,
    not_leased=Reason.UPDATE_VALIDATION_TASK_NOT_LEASED,
    other_owner=Reason.STALE_UPDATE_VALIDATION_COMPLETION,
    other_attempt=Reason.STALE_UPDATE_VALIDATION_COMPLETION,
    expired=Reason.UPDATE_VALIDATION_LEASE_EXPIRED,
)


async def require_approval(
    ctx: EngineContext, run: Run, name: str, arguments: Blob, draining: asyncio.Event
) -> None:
    """Have a worker validate an update against the run's state. Raises if it is rejected or no worker answers."""
    query = await query_tasks.ask(ctx, _task_request(run, name, arguments), draining)
    if query is None or not query_tasks.is_answered(query):
        raise _timed_out(ctx, run, name, query)
    if query.state is QueryState.FAILED:
        raise _rejected(run, name, query_tasks.outcome_of(query))


async def poll(
    ctx: EngineContext, request: Poll, wait_ms: int, draining: asyncio.Event
) -> LeasedQuery | None:
    """Lease the oldest update that the worker can validate, or None when the wait is over."""

    async def lease() -> LeasedQuery | None:
        return await query_tasks.lease_unless_cancelled(ctx, _KIND, request)

    return await query_tasks.wait_for(ctx, _KIND, request, lease, wait_ms, draining)


async def poll_alongside(
    ctx: EngineContext, request: Poll, wait_ms: int, draining: asyncio.Event
) -> LeasedQuery | None:
    """`poll` for a request that also waits for workflow tasks: a cheap read precedes the lease."""

    async def lease() -> LeasedQuery | None:
        found = await ctx.store.read(lambda tx: _any_pending(tx, request.namespace, request.task_queue))
        return await query_tasks.lease_unless_cancelled(ctx, _KIND, request) if found else None

    return await query_tasks.wait_for(ctx, _KIND, request, lease, wait_ms, draining)


async def report(
    ctx: EngineContext,
    namespace: str,
    validation_id: str,
    owner: str,
    attempt: int,
    state: QueryState,
    outcome: dict[str, Any],
) -> QueryTask:
    """Record a worker's approval (answered) or rejection (failed), if it still holds the task."""
    return await query_tasks.report(ctx, _REASONS, namespace, validation_id, owner, attempt, state, outcome)


async def waits_for(tx: Tx, worker: WorkerRecord) -> bool:
    """Whether an update waits on the worker's queue that it could validate."""
    return can_validate(worker) and await _any_pending(tx, worker.namespace, worker.task_queue)


async def _any_pending(tx: Tx, namespace: str, task_queue: str) -> bool:
    return bool(await tx.queries.count_pending(namespace, task_queue, tx.now_ms, _KIND))


def can_validate(worker: WorkerRecord) -> bool:
    reported = worker.advertised.get("capabilities")
    return isinstance(reported, list | tuple) and CAPABILITY in reported


def _task_request(run: Run, name: str, arguments: Blob) -> QueryTaskRequest:
    def check_workers(workers: Sequence[WorkerRecord]) -> None:
        refusal = _no_validator(run, name, workers)
        if refusal is not None:
            raise refusal

    def full(pending: int) -> Conflict:
        return Conflict(
            Reason.UPDATE_VALIDATOR_WORKER_UNAVAILABLE,
            f"{pending} updates already wait on this queue for validation, which is the limit.",
            **_about(run, name, retryable=True),
            retry_after_seconds=RETRY_AFTER_S,
        )

    def locked_out(refusal: Unavailable) -> Unavailable:
        return refusal.with_details(**_about(run, name, retryable=True), retry_after_seconds=RETRY_AFTER_S)

    return QueryTaskRequest(_KIND, run, name, arguments, check_workers, full, locked_out)


def _no_validator(run: Run, name: str, workers: Sequence[WorkerRecord]) -> Conflict | None:
    """Why none of the active workers can validate, the nearest miss first; None if one can."""
    knowing = [each for each in workers if query_tasks.replays(each, run)]
    fitting = [each for each in knowing if query_tasks.fits_build(each, run)]
    if any(can_validate(each) for each in fitting):
        return None
    queue, kind = run.task_queue, run.workflow_type
    if fitting:
        return Conflict(
            Reason.UPDATE_VALIDATION_CAPABILITY_UNSUPPORTED,
            f"The workers on {queue!r} that run {kind!r} do not advertise update validation.",
            **_about(run, name, retryable=False),
        )
    if knowing:
        return Conflict(
            Reason.UPDATE_VALIDATOR_WORKER_INCOMPATIBLE,
            f"No active worker on {queue!r} has build {run.compatibility!r}, which the run is pinned to.",
            **_about(run, name, retryable=True),
        )
    return Conflict(
        Reason.UPDATE_VALIDATOR_WORKER_UNAVAILABLE,
        f"No active worker on {queue!r} can replay {kind!r}. Start one, then try again.",
        **_about(run, name, retryable=True),
    )


def _timed_out(ctx: EngineContext, run: Run, name: str, query: QueryTask | None) -> Unavailable:
    within = f"within {ctx.settings.polls.query_timeout_ms // 1000} s"
    if query is not None and query.attempt:
        return Unavailable(
            Reason.UPDATE_VALIDATION_EXECUTION_TIMEOUT,
            f"A worker took the update for validation but did not answer {within}.",
            **_about(run, name, retryable=True),
        )
    return Unavailable(
        Reason.UPDATE_VALIDATION_TASK_NOT_CLAIMED,
        f"No worker took the update for validation {within}.",
        **_about(run, name, retryable=True),
    )


_KNOWN = {
    reason.value: reason
    for reason in (
        Reason.UNKNOWN_UPDATE,
        Reason.UPDATE_VALIDATOR_WORKER_INCOMPATIBLE,
        Reason.UPDATE_VALIDATION_CAPABILITY_UNSUPPORTED,
    )
}
"""The reasons that a worker's rejection may use itself."""


def _rejected(run: Run, name: str, outcome: dict[str, Any]) -> PenstockError:
    reported = str(outcome.get("reason") or "")
    message = str(outcome.get("message") or "The workflow rejected the update.")
    about = _about(run, name, retryable=False) | {"failure": outcome}
    if reported in ("", Reason.UPDATE_VALIDATOR_REJECTED.value):
        errors = outcome.get("validation_errors") or {}
        return InvalidInput(
            Reason.UPDATE_VALIDATOR_REJECTED,
            message,
            **about,
            validation_errors=errors,
            update_status="rejected",
        )
    return Conflict(
        _KNOWN.get(reported, Reason.UPDATE_VALIDATION_WORKER_FAILED), message, **about, worker_reason=reported
    )


def _about(run: Run, name: str, *, retryable: bool) -> dict[str, Any]:
    return {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "update_name": name,
        "retryable": retryable,
        "outcome": "rejected",
        "command_status": "rejected",
    }
