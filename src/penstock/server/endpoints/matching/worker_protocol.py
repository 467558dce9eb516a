"""The worker protocol: register, heartbeat, poll, report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.core.history import divergence
from penstock.core.messaging.messages import Cursor
from penstock.core.model import PREFETCH_BUFFER, Blob, Run, Task, TaskId, TaskKind
from penstock.core.scheduling.leases import Report, lease_ends_after_ms
from penstock.core.scheduling.polls import HISTORY_PAGE_DEFAULT, Leased, Poll
from penstock.core.timestamps import iso, iso_or_none
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import ActivityReceipt, AttemptFailure
from penstock.engine.matching import combined_poll, permits
from penstock.engine.matching.dispatcher import PollAnswer
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.engine.runs import history_writer
from penstock.engine.visibility import run_reader
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import workflow_reports
from penstock.engine.workflows.workflow_reports import WorkflowTaskReceipt
from penstock.errors import PenstockError, Reason, Unavailable, ValidationFailed
from penstock.ports.store import Transaction
from penstock.server import rejected_reports
from penstock.server.endpoints import batch_requests
from penstock.server.endpoints.messaging import update_validation
from penstock.server.endpoints.page_tokens import decode_sequence
from penstock.server.endpoints.pending_operation import PendingOperation, PendingWork, run_operation
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import payloads, strict_json
from penstock.wire.matching.tasks import activity_task, workflow_task
from penstock.wire.messaging.update_validation import TASK_KIND as UPDATE_VALIDATION
from penstock.wire.numbers import to_micro, to_milli, whole_ms
from penstock.wire.request_parser import parse
from penstock.wire.requests import (
    ActivityFailure,
    ActivityLease,
    CompleteActivityTask,
    CompleteWorkflowTask,
    FailActivityTask,
    FailWorkflowTask,
    HeartbeatActivityTask,
    HeartbeatWorker,
    PollTasks,
    ReadTaskHistory,
    RegisterWorker,
    RequestModel,
    StartActivityTask,
    TaskLease,
)
from penstock.wire.responses import page_token, warnings, worker_event
from penstock.wire.unknown_fields import UnknownField, unknown_fields
from penstock.wire.workflows.commands import parse_commands

SLOTS_DEFAULT = 100
RETRY_AFTER_DEFAULT_MS = 5_000
HAND_BACK = "hand_back"
_COMMON_REPORT_FIELDS = frozenset({"task_id", "action"})
_WORKFLOW_REPORTS: Mapping[str, type[RequestModel]] = {
    "complete": CompleteWorkflowTask,
    "fail": FailWorkflowTask,
    HAND_BACK: TaskLease,
}
_ACTIVITY_REPORTS: Mapping[str, type[RequestModel]] = {
    "complete": CompleteActivityTask,
    "fail": FailActivityTask,
    HAND_BACK: ActivityLease,
}


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
    except PenstockError as refusal:
        if refusal.reason is Reason.WORKER_NOT_REGISTERED:
            raise refusal.with_details(http_status=404) from refusal
        raise
    return Response(
        {"worker_id": worker.worker_id, "acknowledged": True, "status": worker.status.value}
        | _heartbeat_hints(call)
    )


def _heartbeat_hints(call: OperationCall) -> dict[str, int]:
    """How often to be heard: three times in the window after which a worker counts as stale."""
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
    polls = call.ctx.settings.polls
    wait_ms = polls.poll_timeout_ms if request.timeout_seconds is None else request.timeout_seconds * 1000
    poll = Poll(
        namespace=call.namespace,
        worker_id=request.worker_id,
        task_queue=request.task_queue,
        kind=kind,
        build_id=request.build_id,
        poll_request_id=request.poll_request_id,
        tasks_max=request.max_tasks or 1,
        history_page=request.history_page_size or HISTORY_PAGE_DEFAULT,
        activities_per_second_micro=_reported_rate_micro(request) if kind is TaskKind.ACTIVITY else None,
        activities_burst_ms=_burst_ms(request),
        claim_lease_ms=request.claim_lease_ms if kind is TaskKind.ACTIVITY else None,
        lease_ms=request.lease_ms,
    )
    wait_ms = min(wait_ms, polls.poll_timeout_ms_max)
    batch = request.max_tasks is not None
    try:
        if kind is TaskKind.WORKFLOW and UPDATE_VALIDATION in (request.task_kinds or ()):
            answer = await combined_poll.poll(call.ctx, call.dispatcher, poll, wait_ms)
        else:
            answer = await call.dispatcher.poll(poll, wait_ms)
    except Unavailable as refusal:
        raise refusal.with_details(task=None, poll_status="unavailable") from refusal
    if isinstance(answer, LeasedQuery):
        return update_validation.task_response(call, answer, batch=batch)
    outcome = answer.status.value if answer.hold is None else answer.hold.value
    call.metrics.record_poll(kind, outcome, [leased.task.level for leased in answer.leased])
    return Response(
        _polled(answer, whole_ms(answer.claimed_at - call.arrived_at), batch=batch),
        on_undelivered=_release_undelivered(call, answer) if answer.leased else None,
    )


def _polled(answer: PollAnswer, claimed_after_ms: int, *, batch: bool) -> dict[str, Any]:
    tasks = [_task(leased, claimed_after_ms) for leased in answer.leased]
    body: dict[str, Any] = {"task": tasks[0] if tasks else None, "poll_status": answer.status.value}
    return body | {"tasks": tasks} if batch else body


def _task(leased: Leased, claimed_after_ms: int) -> dict[str, Any]:
    task = leased.task
    if leased.activity is not None:
        body = activity_task(task, leased.run, leased.activity)
    else:
        body = workflow_task(task, leased.run, leased.events, leased.seen)
    return body | _lease_ends_after(task, task.leased_at_ms, claimed_after_ms)


def _lease_ends_after(task: Task, looked_at_ms: int | None, looked_after_ms: int = 0) -> dict[str, int]:
    """When the lease of a task ends, for a worker that counts from the moment at which it sent its request.

    A renewal counts from the arrival of its request: nothing waits before it looks.
    """
    if task.lease_expires_at_ms is None or looked_at_ms is None:
        return {}
    return {
        "lease_ends_after_ms": lease_ends_after_ms(task.lease_expires_at_ms, looked_at_ms, looked_after_ms)
    }


def _release_undelivered(call: OperationCall, answer: PollAnswer) -> Callable[[], None]:
    return lambda: call.dispatcher.give_back(answer.leased)


async def read_task_history(call: OperationCall) -> Response:
    request: ReadTaskHistory = call.body
    task_id = _task_id(call)
    with _workflow_task_errors(call, request, task_id):
        held = await workflow_reports.hold(call.ctx, call.namespace, task_id, _report(request))
    after = decode_sequence(request.next_history_page_token)
    limit = request.history_page_size or HISTORY_PAGE_DEFAULT
    page = await run_reader.task_history(call.ctx, held.run.run_id, after, limit)
    return Response(
        {
            "task_id": held.task.task_id,
            "workflow_task_attempt": held.task.attempt,
            "history_events": [worker_event(event) for event in page.events],
            "total_history_events": page.run.last_sequence,
            "next_history_page_token": page_token(page.events[-1].sequence) if page.more else None,
        }
    )


async def heartbeat_workflow_task(call: OperationCall) -> Response:
    request: TaskLease = call.body
    task_id = _task_id(call)
    with _workflow_task_errors(call, request, task_id):
        receipt = await workflow_reports.heartbeat(call.ctx, call.namespace, task_id, _report(request))
    assert receipt.task.lease_expires_at_ms is not None
    return Response(
        {
            "task_id": receipt.task.task_id,
            "lease_owner": receipt.task.lease_owner,
            "workflow_task_attempt": receipt.task.attempt,
            "renewed": True,
            "lease_expires_at": iso(receipt.task.lease_expires_at_ms),
            "lease_ends_after_ms": call.ctx.settings.leases.workflow_lease_ms,
            "run_status": receipt.run.status.value,
            "task_status": receipt.task.state.value,
            "reason": None,
        }
    )


async def complete_workflow_task(call: OperationCall) -> Response:
    return await run_operation(
        call.ctx.store, _complete_workflow(call, _task_id(call), call.body, call.digest)
    )


async def fail_workflow_task(call: OperationCall) -> Response:
    return await run_operation(call.ctx.store, _fail_workflow(call, _task_id(call), call.body, call.digest))


async def report_workflow_tasks(call: OperationCall) -> Response:
    def one(item: dict[str, Any]) -> PendingWork:
        task_id, action, digest = _parse_report_item(item)
        if action == "complete":
            return _complete_workflow(call, task_id, parse(item, CompleteWorkflowTask), digest)
        if action == HAND_BACK:
            return _hand_back_workflow(call, task_id, parse(item, TaskLease), digest)
        return _fail_workflow(call, task_id, parse(item, FailWorkflowTask), digest)

    return await batch_requests.run_batch(call, one, _ignored_in_workflow_report)


def _complete_workflow(
    call: OperationCall, task_id: TaskId, request: CompleteWorkflowTask, digest: str
) -> PendingOperation[WorkflowTaskReceipt]:
    concurrent = bool(request.concurrent)
    done = workflow_reports.completion_transaction(
        call.ctx,
        call.namespace,
        task_id,
        _report(request, digest),
        parse_commands(request.commands, call.namespace, concurrent=concurrent),
        _cursors(request),
        concurrent=concurrent,
        cached=bool(request.cached),
        sticky_ms=request.sticky_timeout_ms or 0,
    )

    def completed(receipt: WorkflowTaskReceipt) -> Response:
        run = workflow_reports.check_recorded(receipt).run
        return Response(
            _workflow_receipt(receipt, request.workflow_task_attempt)
            | {
                "run_id": run.run_id,
                "run_status": run.status.value,
                "created_task_ids": list(receipt.created),
                "warnings": warnings(run, call.ctx.bounds),
            }
            | _cached_through(run, request)
        )

    return PendingOperation(done, completed, _workflow_task_errors(call, request, task_id).refusal)


def _cached_through(run: Run, request: CompleteWorkflowTask) -> dict[str, Any]:
    """Up to which event a worker that keeps the run knows its history: the next task tells what follows."""
    return {"cached_through": history_writer.cached_up_to(run, request.lease_owner)} if request.cached else {}


def _cursors(request: CompleteWorkflowTask) -> list[Cursor]:
    return [Cursor(each.stream_name, each.through_position) for each in request.message_stream_cursors or ()]


def _fail_workflow(
    call: OperationCall, task_id: TaskId, request: FailWorkflowTask, digest: str
) -> PendingWork:
    report, message, kind = _report(request, digest), _clean(request.failure.message), request.failure.type
    if divergence.of(kind, message) is not None:
        return _fail_diverged(call, task_id, request, report, message)
    failed = workflow_reports.failure_transaction(
        call.ctx, call.namespace, task_id, report, message, kind, stack=_stack(request)
    )
    return _requeued(call, task_id, request, failed)


async def _fail_diverged(
    call: OperationCall, task_id: TaskId, request: FailWorkflowTask, report: Report, message: str
) -> Response:
    """The code no longer fits the history, which is looked at first."""
    with _workflow_task_errors(call, request, task_id):
        receipt = await workflow_reports.fail(
            call.ctx, call.namespace, task_id, report, message, request.failure.type, _stack(request)
        )
    return _next_task_response(receipt, request)


def _stack(request: FailWorkflowTask) -> str | None:
    stack = request.failure.stack_trace
    return None if stack is None else _clean(stack)


def _hand_back_workflow(
    call: OperationCall, task_id: TaskId, request: TaskLease, digest: str
) -> PendingOperation[WorkflowTaskReceipt]:
    back = workflow_reports.hand_back_transaction(call.ctx, call.namespace, task_id, _report(request, digest))
    return _requeued(call, task_id, request, back)


def _requeued(
    call: OperationCall, task_id: TaskId, request: TaskLease, report: Transaction[WorkflowTaskReceipt]
) -> PendingOperation[WorkflowTaskReceipt]:
    return PendingOperation(
        report,
        lambda receipt: _next_task_response(receipt, request),
        lambda refusal: _workflow_task_errors(call, request, task_id).refusal(refusal),
    )


def _next_task_response(receipt: WorkflowTaskReceipt, request: TaskLease) -> Response:
    next_task = receipt.task.task_id if receipt.task.is_live else None
    return Response(_workflow_receipt(receipt, request.workflow_task_attempt) | {"next_task_id": next_task})


def _workflow_receipt(receipt: WorkflowTaskReceipt, attempt: int) -> dict[str, Any]:
    return {
        "task_id": receipt.task.task_id,
        "workflow_task_attempt": attempt,
        "outcome": receipt.outcome,
        "recorded": True,
        "already_accepted": receipt.repeated,
        "reason": None,
    }


async def complete_activity_task(call: OperationCall) -> Response:
    return await run_operation(
        call.ctx.store, _complete_activity(call, _task_id(call), call.body, call.digest)
    )


async def fail_activity_task(call: OperationCall) -> Response:
    return await run_operation(call.ctx.store, _fail_activity(call, _task_id(call), call.body, call.digest))


async def report_activity_tasks(call: OperationCall) -> Response:
    def one(item: dict[str, Any]) -> PendingWork:
        task_id, action, digest = _parse_report_item(item)
        if action == "complete":
            return _complete_activity(call, task_id, parse(item, CompleteActivityTask), digest)
        if action == HAND_BACK:
            return _hand_back_activity(call, task_id, parse(item, ActivityLease), digest)
        return _fail_activity(call, task_id, parse(item, FailActivityTask), digest)

    return await batch_requests.run_batch(call, one, _ignored_in_activity_report)


def _complete_activity(
    call: OperationCall, task_id: TaskId, request: CompleteActivityTask, digest: str
) -> PendingOperation[ActivityReceipt]:
    result = Blob(payloads.parse_value(request.result, "result").blob)
    done = activity_reports.completion_transaction(
        call.ctx, call.namespace, task_id, _attempt(request, digest), result, request.cost
    )
    return _reported(call, task_id, request, done)


def _reported(
    call: OperationCall, task_id: TaskId, request: ActivityLease, report: Transaction[ActivityReceipt]
) -> PendingOperation[ActivityReceipt]:
    return PendingOperation(
        report,
        lambda receipt: Response(
            _activity_receipt(activity_reports.check_recorded(receipt), request.activity_attempt_id)
        ),
        lambda refusal: _activity_task_errors(call, request, task_id).refusal(refusal),
    )


def _fail_activity(
    call: OperationCall, task_id: TaskId, request: FailActivityTask, digest: str
) -> PendingWork:
    failure, report = _failure(request.failure), _attempt(request, digest)
    if failure.throttled_ms is not None:
        return _fail_upstream(call, task_id, request, report, failure)
    failed = activity_reports.failure_transaction(
        call.ctx, call.namespace, task_id, report, failure, request.cost
    )
    return _reported(call, task_id, request, failed)


async def _fail_upstream(
    call: OperationCall, task_id: TaskId, request: FailActivityTask, report: Report, failure: AttemptFailure
) -> Response:
    """Refused upstream: what is to be closed is made sure of first."""
    with _activity_task_errors(call, request, task_id):
        receipt = await activity_reports.fail(
            call.ctx, call.namespace, task_id, report, failure, request.cost
        )
    return Response(_activity_receipt(receipt, request.activity_attempt_id))


def _failure(failure: ActivityFailure) -> AttemptFailure:
    extra = {
        name: value
        for name, value in {
            "code": failure.code,
            "kind": failure.kind,
            "timeout_type": failure.timeout_type,
            "stack_trace": failure.stack_trace,
            "details": failure.details,
            "cause": failure.cause,
            "next_retry_delay_seconds": failure.next_retry_delay_seconds,
            "cancelled": failure.cancelled,
            "malformed_output": failure.malformed_output,
        }.items()
        if value is not None
    }
    return AttemptFailure(
        message=_clean(failure.message),
        type=failure.type,
        cls=failure.cls or failure.type,
        non_retryable=bool(failure.non_retryable) or failure.retryable is False,
        extra=extra,
        throttled_ms=_throttled_ms(failure),
        next_ms=_next_ms(failure.next_retry_delay_seconds),
    )


def _hand_back_activity(
    call: OperationCall, task_id: TaskId, request: ActivityLease, digest: str
) -> PendingOperation[ActivityReceipt]:
    back = activity_reports.hand_back_transaction(
        call.ctx, call.namespace, task_id, _attempt(request, digest)
    )
    return _reported(call, task_id, request, back)


def _next_ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _throttled_ms(failure: ActivityFailure) -> int | None:
    """How long upstream asks to be left alone; a moment when it does not say."""
    if not failure.throttled:
        if failure.retry_after_seconds is not None:
            raise ValidationFailed({"failure.retry_after_seconds": ["goes with throttled: true"]})
        return None
    seconds = failure.retry_after_seconds
    return RETRY_AFTER_DEFAULT_MS if seconds is None else round(seconds * 1000)


async def start_activity_task(call: OperationCall) -> Response:
    """Take the permit of a task that was handed out ahead of time, or learn what is in the way."""
    request: StartActivityTask = call.body
    task_id = _task_id(call)
    with _TaskErrorDetails(
        call, request, task_id, activity_attempt_id=request.activity_attempt_id, started=False
    ):
        permit = await permits.start(
            call.ctx, call.namespace, task_id, _attempt(request, ""), request.lease_ms
        )
    hold = permit.hold
    again_ms = None if hold is None else hold.look_again_at_ms
    return Response(
        {
            "task_id": task_id,
            "activity_attempt_id": request.activity_attempt_id,
            "started": hold is None,
            "poll_status": "leased" if hold is None else hold.poll_status.value,
            "reason": None if hold is None else hold.reason.value,
            "scope": None if hold is None else hold.scope,
            "retry_after_seconds": None
            if again_ms is None
            else max(0.001, (again_ms - permit.now_ms) / 1000),
            "lease_expires_at": iso_or_none(permit.task.lease_expires_at_ms),
        }
        | _lease_ends_after(permit.task, permit.now_ms)
    )


def _activity_receipt(receipt: ActivityReceipt, attempt_id: str) -> dict[str, Any]:
    return {
        "task_id": receipt.task.task_id,
        "activity_attempt_id": attempt_id,
        "outcome": receipt.outcome,
        "recorded": True,
        "already_accepted": receipt.repeated,
        "reason": None,
        "next_task_id": receipt.next_task_id,
    }


async def heartbeat_activity_task(call: OperationCall) -> Response:
    request: HeartbeatActivityTask = call.body
    task_id = _task_id(call)
    details = {
        name: value
        for name, value in msgspec.to_builtins(request).items()
        if name not in ("activity_attempt_id", "lease_owner", "lease_ms") and value is not None
    }
    with _TaskErrorDetails(call, request, task_id, activity_attempt_id=request.activity_attempt_id):
        beat = await activity_reports.heartbeat(
            call.ctx,
            call.namespace,
            task_id,
            _attempt(request, ""),
            json.dumps(details) if details.keys() - {"sequence"} else None,
            request.lease_ms,
        )
    stopped = beat.reason == Reason.ACTIVITY_CANCELLED.value or not beat.run.is_open
    return Response(
        {
            "task_id": task_id,
            "activity_attempt_id": request.activity_attempt_id,
            "lease_owner": beat.task.lease_owner,
            "cancel_requested": stopped or beat.cancel_requested,
            "can_continue": beat.recorded,
            "heartbeat_recorded": beat.recorded,
            "reason": beat.reason,
            "run_closed_reason": beat.run.closed_reason,
            "run_closed_at": iso_or_none(beat.run.closed_at_ms),
            "lease_expires_at": iso_or_none(beat.task.lease_expires_at_ms),
            "last_heartbeat_at": iso_or_none(beat.activity.heartbeat_at_ms),
        }
        | (_lease_ends_after(beat.task, beat.activity.heartbeat_at_ms) if beat.recorded else {})
    )


class _TaskErrorDetails:
    """Adds to a refusal what it is about, as the contract asks, and notes it if no honest worker meets it."""

    def __init__(
        self, call: OperationCall, lease: TaskLease | ActivityLease, task_id: TaskId, **facts: Any
    ) -> None:
        self._namespace, self._owner = call.namespace, lease.lease_owner
        self._facts = {"task_id": task_id, **facts}

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, PenstockError):
            raise self.refusal(error) from error

    def refusal(self, error: PenstockError) -> PenstockError:
        refusal = error.with_details(**self._facts)
        rejected_reports.log_rejected_report(refusal, self._namespace, self._owner)
        return refusal


def _workflow_task_errors(call: OperationCall, lease: TaskLease, task_id: TaskId) -> _TaskErrorDetails:
    return _TaskErrorDetails(call, lease, task_id, workflow_task_attempt=lease.workflow_task_attempt)


def _activity_task_errors(call: OperationCall, lease: ActivityLease, task_id: TaskId) -> _TaskErrorDetails:
    """About a report that ends an attempt."""
    attempt_id = lease.activity_attempt_id
    return _TaskErrorDetails(
        call, lease, task_id, activity_attempt_id=attempt_id, outcome="ignored", recorded=False
    )


def _task_id(call: OperationCall) -> TaskId:
    return TaskId(text_path(call, "task_id"))


def _report(request: TaskLease, digest: str = "") -> Report:
    return Report(request.lease_owner, str(request.workflow_task_attempt), digest)


def _attempt(request: ActivityLease, digest: str) -> Report:
    return Report(request.lease_owner, request.activity_attempt_id, digest)


def _parse_report_item(item: dict[str, Any]) -> tuple[TaskId, str, str]:
    task_id, action = item.get("task_id"), item.get("action", "complete")
    if not isinstance(task_id, str) or not task_id or len(task_id) > 255 or not task_id.isprintable():
        raise ValidationFailed({"task_id": ["is required: the task that is reported on"]})
    if action not in ("complete", "fail", HAND_BACK):
        raise ValidationFailed({"action": ["must be complete, fail or hand_back"]})
    return TaskId(task_id), action, hashlib.sha256(strict_json.dumps(item)).hexdigest()


def _ignored_in_workflow_report(item: dict[str, Any]) -> list[UnknownField]:
    return _ignored(item, _WORKFLOW_REPORTS)


def _ignored_in_activity_report(item: dict[str, Any]) -> list[UnknownField]:
    return _ignored(item, _ACTIVITY_REPORTS)


def _ignored(item: dict[str, Any], shapes: Mapping[str, type[RequestModel]]) -> list[UnknownField]:
    action = item.get("action", "complete")
    shape = shapes.get(action) if isinstance(action, str) else None
    return [] if shape is None else unknown_fields(item, shape, _COMMON_REPORT_FIELDS)


def _clean(message: str) -> str:
    return message.replace("\x00", "\\x00")
