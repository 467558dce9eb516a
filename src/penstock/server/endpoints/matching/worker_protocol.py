"""The worker protocol: registration, heartbeats of workers, and polls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.model import PREFETCH_BUFFER, TaskKind
from penstock.core.scheduling.polls import HISTORY_PAGE_DEFAULT, Leased, Poll
from penstock.engine.matching import combined_poll
from penstock.engine.matching.dispatcher import PollAnswer
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.errors import PenstockError, Reason, Unavailable
from penstock.server.endpoints.messaging import update_validation
from penstock.server.endpoints.poll_requests import poll_wait_ms
from penstock.server.endpoints.task_reports import (
    lease_end,
)
from penstock.server.operation import OperationCall, Response
from penstock.wire.matching.tasks import activity_task, workflow_task
from penstock.wire.messaging.update_validation import TASK_KIND as UPDATE_VALIDATION
from penstock.wire.numbers import to_micro, to_milli, whole_ms
from penstock.wire.requests import (
    HeartbeatWorker,
    PollTasks,
    RegisterWorker,
)

SLOTS_DEFAULT = 100


async def register(call: OperationCall) -> Response:
    request: RegisterWorker = call.body
    advertised = {
        "capabilities": request.capabilities or [],
        "capability_manifest": request.capability_manifest or {},
        "workflow_command_contracts": request.workflow_command_contracts or {},
        "max_concurrent_worker_sessions": request.max_concurrent_worker_sessions,
        "max_activities_per_second": request.max_activities_per_second,
        PREFETCH_BUFFER: request.max_claimed_activity_tasks,
    }
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
            activities_per_second_micro=_reported_rate_micro(request),
            activities_burst_ms=_burst_ms(request),
        ),
    )
    return Response({"worker_id": worker.worker_id, "registered": True} | _heartbeat_hints(call), 201)


async def heartbeat(call: OperationCall) -> Response:
    request: HeartbeatWorker = call.body
    try:
        worker = await worker_registry.heartbeat(
            call.ctx,
            call.namespace,
            request.worker_id,
            request.task_slots,
            request.process_metrics,
            _whole_seconds(request.heartbeat_interval_seconds),
            _reported_rate_micro(request),
            _burst_ms(request),
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


def _heartbeat_hints(call: OperationCall) -> dict[str, int]:
    """The heartbeat interval to use: three per window after which a worker counts as stale."""
    stale_s = call.ctx.settings.polls.worker_stale_after_ms // 1000
    return {"heartbeat_interval_seconds": max(1, stale_s // 3), "stale_after_seconds": stale_s}


def _whole_seconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds))


def _reported_rate_micro(request: RegisterWorker | HeartbeatWorker | PollTasks) -> int | None:
    rate = request.max_task_queue_activities_per_second
    return None if rate is None else to_micro(rate)


def _burst_ms(request: RegisterWorker | HeartbeatWorker | PollTasks) -> int | None:
    burst_s = request.queue_rate_burst_seconds
    return None if burst_s is None else to_milli(burst_s)


async def poll_workflow_tasks(call: OperationCall) -> Response:
    return await _poll(call, TaskKind.WORKFLOW)


async def poll_activity_tasks(call: OperationCall) -> Response:
    return await _poll(call, TaskKind.ACTIVITY)


async def _poll(call: OperationCall, kind: TaskKind) -> Response:
    request: PollTasks = call.body
    poll = _engine_poll(call, request, kind)
    wait_ms = poll_wait_ms(call, request)
    batch = request.max_tasks is not None
    try:
        if kind is TaskKind.WORKFLOW and UPDATE_VALIDATION in (request.task_kinds or ()):
            answer = await combined_poll.poll(call.ctx, call.dispatcher, poll, wait_ms)
        else:
            answer = await call.dispatcher.poll(poll, wait_ms)
    except Unavailable as error:
        raise error.with_details(task=None, poll_status="unavailable") from error
    if isinstance(answer, LeasedQuery):
        return update_validation.task_response(call, answer, batch=batch)
    outcome = answer.status.value if answer.hold is None else answer.hold.value
    call.metrics.record_poll(kind, outcome, [leased.task.level for leased in answer.leased])
    return Response(
        _poll_body(answer, whole_ms(answer.claimed_at - call.arrived_at), batch=batch),
        on_undelivered=_release_undelivered(call, answer) if answer.leased else None,
    )


def _engine_poll(call: OperationCall, request: PollTasks, kind: TaskKind) -> Poll:
    is_activity = kind is TaskKind.ACTIVITY
    return Poll(
        namespace=call.namespace,
        worker_id=request.worker_id,
        task_queue=request.task_queue,
        kind=kind,
        build_id=request.build_id,
        poll_request_id=request.poll_request_id,
        tasks_max=request.max_tasks or 1,
        history_page=request.history_page_size or HISTORY_PAGE_DEFAULT,
        activities_per_second_micro=_reported_rate_micro(request) if is_activity else None,
        activities_burst_ms=_burst_ms(request),
        claim_lease_ms=request.claim_lease_ms if is_activity else None,
        lease_ms=request.lease_ms,
    )


def _poll_body(answer: PollAnswer, claimed_after_ms: int, *, batch: bool) -> dict[str, Any]:
    tasks = [_task(leased, claimed_after_ms) for leased in answer.leased]
    body: dict[str, Any] = {"task": tasks[0] if tasks else None, "poll_status": answer.status.value}
    return body | {"tasks": tasks} if batch else body


def _task(leased: Leased, claimed_after_ms: int) -> dict[str, Any]:
    task = leased.task
    if leased.activity is not None:
        body = activity_task(task, leased.run, leased.activity)
    else:
        body = workflow_task(task, leased.run, leased.events, leased.seen)
    return body | lease_end(task, task.leased_at_ms, claimed_after_ms)


def _release_undelivered(call: OperationCall, answer: PollAnswer) -> Callable[[], None]:
    return lambda: call.dispatcher.give_back(answer.leased)
