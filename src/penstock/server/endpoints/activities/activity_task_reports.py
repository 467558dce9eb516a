"""The worker protocol: permits, heartbeats and outcomes of activity tasks."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penstock.core.model import Blob, TaskId
from penstock.core.scheduling.leases import Report
from penstock.core.timestamps import iso_or_none
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import ActivityReceipt, AttemptFailure, Heartbeat
from penstock.engine.matching import permits
from penstock.errors import Reason, ValidationFailed
from penstock.ports.store import Transaction
from penstock.server.endpoints.pending_operation import PendingOperation, PendingWork, run_operation
from penstock.server.endpoints.task_reports import (
    HAND_BACK,
    ReportsByAction,
    TaskErrorDetails,
    lease_end,
    path_task_id,
    run_reports,
    without_nul,
)
from penstock.server.operation import OperationCall, Response
from penstock.wire import payloads
from penstock.wire.matching.tasks import activity_task
from penstock.wire.requests import (
    ActivityFailure,
    ActivityLease,
    CompleteActivityTask,
    FailActivityTask,
    HeartbeatActivityTask,
    StartActivityTask,
)

RETRY_AFTER_DEFAULT_MS = 5_000


async def start_activity_task(call: OperationCall) -> Response:
    """Take the permit to start a prefetched task; if there is none, return the limit that holds it back."""
    request: StartActivityTask = call.body
    task_id = path_task_id(call)
    with TaskErrorDetails(
        call, request, task_id, activity_attempt_id=request.activity_attempt_id, started=False
    ):
        permit = await permits.start(
            call.ctx, call.namespace, task_id, attempt_of(request, ""), request.lease_ms
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
        | lease_end(permit.task, permit.now_ms)
    )


async def heartbeat_activity_task(call: OperationCall) -> Response:
    request: HeartbeatActivityTask = call.body
    task_id = path_task_id(call)
    details = {
        name: value
        for name, value in msgspec.to_builtins(request).items()
        if name not in ("activity_attempt_id", "lease_owner", "lease_ms") and value is not None
    }
    with TaskErrorDetails(call, request, task_id, activity_attempt_id=request.activity_attempt_id):
        heartbeat = await activity_reports.heartbeat(
            call.ctx,
            call.namespace,
            task_id,
            attempt_of(request, ""),
            json.dumps(details) if details.keys() - {"sequence"} else None,
            request.lease_ms,
        )
    stopped = heartbeat.reason == Reason.ACTIVITY_CANCELLED.value or not heartbeat.run.is_open
    return Response(
        {
            "task_id": task_id,
            "activity_attempt_id": request.activity_attempt_id,
            "lease_owner": heartbeat.task.lease_owner,
            "cancel_requested": stopped or heartbeat.cancel_requested,
            "activity_paused": heartbeat.activity.step in heartbeat.run.waits.paused_steps,
            "can_continue": heartbeat.recorded,
            "heartbeat_recorded": heartbeat.recorded,
            "reason": heartbeat.reason,
            "run_closed_reason": heartbeat.run.closed_reason,
            "run_closed_at": iso_or_none(heartbeat.run.closed_at_ms),
            "lease_expires_at": iso_or_none(heartbeat.task.lease_expires_at_ms),
            "last_heartbeat_at": iso_or_none(heartbeat.activity.heartbeat_at_ms),
        }
        | (lease_end(heartbeat.task, heartbeat.activity.heartbeat_at_ms) if heartbeat.recorded else {})
    )


async def read_activity_task_status(call: OperationCall) -> Response:
    """Whether the attempt may go on, for workers that watch it from outside its process."""
    request: ActivityLease = call.body
    task_id = path_task_id(call)
    with TaskErrorDetails(call, request, task_id, activity_attempt_id=request.activity_attempt_id):
        found = await activity_reports.status(call.ctx, call.namespace, task_id, attempt_of(request, ""))
    stopped = found.reason == Reason.ACTIVITY_CANCELLED.value or not found.run.is_open
    cancelled = stopped or found.cancel_requested
    return Response(
        {
            "task_id": task_id,
            "activity_attempt_id": request.activity_attempt_id,
            "lease_owner": found.task.lease_owner,
            "cancel_requested": cancelled,
            "can_continue": found.reason is None and not cancelled,
            "heartbeat_recorded": False,
            "reason": found.reason,
            "lease_expires_at": iso_or_none(found.task.lease_expires_at_ms),
            "last_heartbeat_at": iso_or_none(found.activity.heartbeat_at_ms),
            "deadlines": None if found.reason else _deadlines(found),
        }
    )


def _deadlines(held: Heartbeat) -> object:
    return activity_task(held.task, held.run, held.activity)["deadlines"]


async def complete_activity_task(call: OperationCall) -> Response:
    return await run_operation(
        call.ctx.store, _complete_activity(call, path_task_id(call), call.body, call.digest)
    )


async def fail_activity_task(call: OperationCall) -> Response:
    return await run_operation(
        call.ctx.store, _fail_activity(call, path_task_id(call), call.body, call.digest)
    )


async def report_activity_tasks(call: OperationCall) -> Response:
    return await run_reports(call, _REPORTS)


def _complete_activity(
    call: OperationCall, task_id: TaskId, request: CompleteActivityTask, digest: str
) -> PendingOperation[ActivityReceipt]:
    result = Blob(payloads.parse_value(request.result, "result").blob)
    transaction = activity_reports.completion_transaction(
        call.ctx, call.namespace, task_id, attempt_of(request, digest), result, request.cost
    )
    return _pending_report(call, task_id, request, transaction)


def _pending_report(
    call: OperationCall, task_id: TaskId, request: ActivityLease, transaction: Transaction[ActivityReceipt]
) -> PendingOperation[ActivityReceipt]:
    return PendingOperation(
        transaction,
        lambda receipt: Response(
            _activity_receipt(activity_reports.check_recorded(receipt), request.activity_attempt_id)
        ),
        lambda error: _activity_task_errors(call, request, task_id).add(error),
    )


def _fail_activity(
    call: OperationCall, task_id: TaskId, request: FailActivityTask, digest: str
) -> PendingWork:
    failure, report = attempt_failure(request.failure), attempt_of(request, digest)
    if failure.throttled_ms is not None:
        return _fail_upstream(call, task_id, request, report, failure)
    transaction = activity_reports.failure_transaction(
        call.ctx, call.namespace, task_id, report, failure, request.cost
    )
    return _pending_report(call, task_id, request, transaction)


async def _fail_upstream(
    call: OperationCall, task_id: TaskId, request: FailActivityTask, report: Report, failure: AttemptFailure
) -> Response:
    """Fail an attempt that an upstream service throttled, and cool down its budget group."""
    with _activity_task_errors(call, request, task_id):
        receipt = await activity_reports.fail(
            call.ctx, call.namespace, task_id, report, failure, request.cost
        )
    return Response(_activity_receipt(receipt, request.activity_attempt_id))


def attempt_failure(failure: ActivityFailure) -> AttemptFailure:
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
            "category": failure.category,
            "encoded_attributes": failure.encoded_attributes,
        }.items()
        if value is not None
    }
    return AttemptFailure(
        message=without_nul(failure.message),
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
    transaction = activity_reports.hand_back_transaction(
        call.ctx, call.namespace, task_id, attempt_of(request, digest)
    )
    return _pending_report(call, task_id, request, transaction)


def _next_ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _throttled_ms(failure: ActivityFailure) -> int | None:
    """The cool-down that the upstream service requested, or the default."""
    if not failure.throttled:
        if failure.retry_after_seconds is not None:
            raise ValidationFailed({"failure.retry_after_seconds": ["requires throttled: true"]})
        return None
    seconds = failure.retry_after_seconds
    return RETRY_AFTER_DEFAULT_MS if seconds is None else round(seconds * 1000)


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


def _activity_task_errors(call: OperationCall, lease: ActivityLease, task_id: TaskId) -> TaskErrorDetails:
    """Error details of reports that end an attempt."""
    attempt_id = lease.activity_attempt_id
    return TaskErrorDetails(
        call, lease, task_id, activity_attempt_id=attempt_id, outcome="ignored", recorded=False
    )


def attempt_of(request: ActivityLease, digest: str) -> Report:
    return Report(request.lease_owner, request.activity_attempt_id, digest)


_REPORTS: ReportsByAction = {
    "complete": (CompleteActivityTask, _complete_activity),
    "fail": (FailActivityTask, _fail_activity),
    HAND_BACK: (ActivityLease, _hand_back_activity),
}
