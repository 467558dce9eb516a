"""The worker protocol: registration, heartbeats of workers, and polls."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from msgspec.structs import replace

from penstock.core.model import PREFETCH_BUFFER, TaskKind
from penstock.core.scheduling.dispatch import PollStatus
from penstock.core.scheduling.leases import ASYNC_OWNER, lease_ends_after_ms
from penstock.core.scheduling.polls import HISTORY_PAGE_DEFAULT, Leased, Poll
from penstock.engine.matching import combined_poll
from penstock.engine.matching.dispatcher import PollAnswer
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import cancellation_requests
from penstock.errors import PenstockError, Reason, Unavailable
from penstock.server.endpoints.messaging import update_validation
from penstock.server.operation import OperationCall, Response
from penstock.wire.matching.tasks import activity_task, workflow_task
from penstock.wire.messaging.update_validation import TASK_KIND as UPDATE_VALIDATION
from penstock.wire.numbers import to_micro, to_milli
from penstock.wire.request_parser import field_error
from penstock.wire.requests import (
    HeartbeatWorker,
    PollTasks,
    RegisterWorker,
)

SLOTS_DEFAULT = 100
SLOW_CLAIM_S = 1.0
"""A claim that took longer may have been interrupted by a freeze of this process."""
DISCONNECT_GRACE_S = 0.02
"""How long the event loop gets to notice a disconnect before the tasks of a slow claim are sent."""


async def register(call: OperationCall) -> Response:
    request: RegisterWorker = call.body
    if request.worker_id == ASYNC_OWNER:
        raise field_error("worker_id", f"{ASYNC_OWNER} names the owner of leases that no worker holds")
    advertised = {
        "capabilities": request.capabilities or [],
        "capability_manifest": request.capability_manifest or {},
        "workflow_command_contracts": request.workflow_command_contracts or {},
        "max_concurrent_worker_sessions": request.max_concurrent_worker_sessions,
        "max_activities_per_second": request.max_activities_per_second,
        PREFETCH_BUFFER: request.max_claimed_activity_tasks,
    }
    rate_micro, burst_ms = _reported_rate(request)
    worker = await worker_registry.register(
        call.ctx,
        Registration(
            namespace=call.namespace,
            worker_id=request.worker_id,
            task_queue=request.task_queue,
            runtime=request.runtime,
            sdk_version=request.sdk_version,
            build_id=request.build_id,
            workflow_types=tuple(request.supported_workflow_types or ()),
            activity_types=tuple(request.supported_activity_types or ()),
            fingerprints=request.workflow_definition_fingerprints,
            workflow_slots=request.max_concurrent_workflow_tasks or SLOTS_DEFAULT,
            activity_slots=request.max_concurrent_activity_tasks or SLOTS_DEFAULT,
            advertised=advertised,
            task_slots=request.task_slots,
            process_metrics=request.process_metrics,
            heartbeat_interval_s=_whole_seconds(request.heartbeat_interval_seconds),
            activities_per_second_micro=rate_micro,
            activities_burst_ms=burst_ms,
        ),
    )
    body = {
        "worker_id": worker.worker_id,
        "task_queue": worker.task_queue,
        "runtime": worker.runtime,
        "status": worker.status.value,
        "registered": True,
    }
    return Response(body | _heartbeat_hints(call), 201)


async def heartbeat(call: OperationCall) -> Response:
    request: HeartbeatWorker = call.body
    rate_micro, burst_ms = _reported_rate(request)
    try:
        worker = await worker_registry.heartbeat(
            call.ctx,
            call.namespace,
            request.worker_id,
            request.task_slots,
            request.process_metrics,
            _whole_seconds(request.heartbeat_interval_seconds),
            rate_micro,
            burst_ms,
            (request.max_concurrent_workflow_tasks, request.max_concurrent_activity_tasks),
        )
    except PenstockError as error:
        if error.reason is Reason.WORKER_NOT_REGISTERED:
            raise error.with_details(http_status=404) from error
        raise
    return Response(
        {"worker_id": worker.worker_id, "acknowledged": True, "status": worker.status.value}
        | _heartbeat_hints(call)
    )


def _heartbeat_hints(call: OperationCall) -> dict[str, int | bool]:
    """The heartbeat interval to use: three per window after which a worker counts as stale; and what to report."""
    stale_s = call.ctx.settings.polls.worker_stale_after_ms // 1000
    asks = {"source_lines": True} if call.ctx.settings.dashboard.asks_source_lines else {}
    return {"heartbeat_interval_seconds": max(1, stale_s // 3), "stale_after_seconds": stale_s} | asks


def _whole_seconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds))


def _reported_rate(request: RegisterWorker | HeartbeatWorker | PollTasks) -> tuple[int | None, int | None]:
    """The dispatch rate of the queue that a worker asks for, per million seconds, and its burst in milliseconds."""
    rate, burst_s = request.max_task_queue_activities_per_second, request.queue_rate_burst_seconds
    return None if rate is None else to_micro(rate), None if burst_s is None else to_milli(burst_s)


async def poll_workflow_tasks(call: OperationCall) -> Response:
    return await _poll(call, TaskKind.WORKFLOW)


async def poll_activity_tasks(call: OperationCall) -> Response:
    return await _poll(call, TaskKind.ACTIVITY)


async def _poll(call: OperationCall, kind: TaskKind) -> Response:
    request: PollTasks = call.body
    poll = _engine_poll(call, request, kind)
    batch = request.max_tasks is not None
    try:
        if kind is TaskKind.WORKFLOW and UPDATE_VALIDATION in (request.task_kinds or ()):
            answer = await combined_poll.poll(call.ctx, call.dispatcher, poll, call.wait_ms)
        else:
            answer = await call.dispatcher.poll(poll, call.wait_ms)
    except Unavailable as error:
        raise error.with_details(task=None, poll_status="unavailable") from error
    if isinstance(answer, LeasedQuery):
        return update_validation.task_response(call, answer, batch=batch)
    if answer.leased and time.monotonic() - answer.claimed_at > SLOW_CLAIM_S:
        await _notice_disconnect(call, answer)
    if kind is TaskKind.WORKFLOW and [
        each for each in answer.leased if each.run.waits.cancellation is not None
    ]:
        kept = await cancellation_requests.withhold(call.ctx, answer.leased)
        answer = replace(answer, leased=kept, status=answer.status if kept else PollStatus.EMPTY)
    outcome = answer.status.value if answer.hold is None else answer.hold.value
    call.metrics.polls.labels(kind.value, outcome).inc()
    for leased in answer.leased:
        call.metrics.dispatches.labels(kind.value, str(leased.task.level)).inc()
    tasks = [_task(leased, int((answer.claimed_at - call.arrived_at) * 1000)) for leased in answer.leased]
    body: dict[str, Any] = {"task": tasks[0] if tasks else None, "poll_status": answer.status.value}
    return Response(
        body | {"tasks": tasks} if batch else body,
        on_undelivered=(lambda: call.dispatcher.give_back(answer.leased)) if tasks else None,
    )


def _engine_poll(call: OperationCall, request: PollTasks, kind: TaskKind) -> Poll:
    is_activity = kind is TaskKind.ACTIVITY
    rate_micro, burst_ms = _reported_rate(request)
    return Poll(
        namespace=call.namespace,
        worker_id=request.worker_id,
        task_queue=request.task_queue,
        kind=kind,
        build_id=request.build_id,
        poll_request_id=request.poll_request_id,
        tasks_max=request.max_tasks or 1,
        history_page=request.history_page_size or HISTORY_PAGE_DEFAULT,
        activities_per_second_micro=rate_micro if is_activity else None,
        activities_burst_ms=burst_ms,
        claim_lease_ms=request.claim_lease_ms if is_activity else None,
        lease_ms=request.lease_ms,
    )


async def _notice_disconnect(call: OperationCall, answer: PollAnswer) -> None:
    """After a slow claim, give the event loop time to notice that the worker has disconnected before tasks are sent.

    A server that was frozen during a claim finds both the response to write and the disconnect to read when it
    resumes. If it wrote first, the tasks would stay leased until their leases expire.
    """
    try:
        await asyncio.sleep(DISCONNECT_GRACE_S)
    except asyncio.CancelledError:
        call.dispatcher.give_back(answer.leased)
        raise


def _task(leased: Leased, claimed_after_ms: int) -> dict[str, Any]:
    task = leased.task
    assert task.lease_expires_at_ms is not None
    assert task.leased_at_ms is not None
    if leased.activity is not None:
        body = activity_task(task, leased.run, leased.activity)
    else:
        body = workflow_task(task, leased.run, leased.events, leased.seen)
    body["lease_ends_after_ms"] = lease_ends_after_ms(
        task.lease_expires_at_ms, task.leased_at_ms, claimed_after_ms
    )
    return body
