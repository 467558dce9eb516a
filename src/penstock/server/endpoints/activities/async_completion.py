"""Reports on activities that are completed from outside their worker."""

from __future__ import annotations

import json

from penstock.core.model import Blob
from penstock.engine.activities import async_completion
from penstock.engine.activities.activity_reports import ActivityReceipt
from penstock.engine.activities.async_completion import ActivityAddress
from penstock.errors import Reason
from penstock.server.endpoints.activities.activity_task_reports import attempt_failure, attempt_of
from penstock.server.endpoints.task_reports import TaskErrorDetails, path_task_id
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import payloads
from penstock.wire.fields import WORKFLOW_ID_MAX
from penstock.wire.requests import (
    ActivityLease,
    ActivityReport,
    CompleteActivity,
    FailActivity,
    HeartbeatActivity,
)


async def let_go(call: OperationCall) -> Response:
    """Free the slot of the worker that holds the task."""
    request: ActivityLease = call.body
    task_id = path_task_id(call)
    with TaskErrorDetails(call, request, task_id, activity_attempt_id=request.activity_attempt_id):
        task = await async_completion.detach(call.ctx, call.namespace, task_id, attempt_of(request, ""))
    return Response(
        {
            "task_id": task_id,
            "activity_attempt_id": request.activity_attempt_id,
            "lease_owner": task.lease_owner,
            "outcome": "completes_async",
        }
    )


async def complete(call: OperationCall) -> Response:
    request: CompleteActivity = call.body
    result = Blob(payloads.parse_value(request.result, "result").blob)
    return _done(await async_completion.complete(call.ctx, _address(call, request), result, call.digest))


async def fail(call: OperationCall) -> Response:
    request: FailActivity = call.body
    failure = attempt_failure(request.failure)
    return _done(await async_completion.fail(call.ctx, _address(call, request), failure, call.digest))


async def heartbeat(call: OperationCall) -> Response:
    request: HeartbeatActivity = call.body
    details = None if request.details is None else json.dumps({"details": request.details})
    found = await async_completion.heartbeat(call.ctx, _address(call, request), details, call.digest)
    stopped = found.reason == Reason.ACTIVITY_CANCELLED or not found.run.is_open
    return Response(
        {
            "activity_id": found.activity.activity_id,
            "heartbeat_recorded": found.recorded,
            "can_continue": found.recorded,
            "cancel_requested": stopped or found.cancel_requested,
            "activity_paused": found.activity.step in found.run.waits.paused_steps,
            "reason": found.reason,
        }
    )


def _address(call: OperationCall, request: ActivityReport) -> ActivityAddress:
    return ActivityAddress(
        call.namespace,
        text_path(call, "activity_id", WORKFLOW_ID_MAX),
        request.workflow_id,
        request.run_id,
        request.activity_attempt_id,
    )


def _done(receipt: ActivityReceipt) -> Response:
    return Response(
        {
            "activity_id": receipt.activity.activity_id,
            "workflow_id": receipt.run.workflow_id,
            "run_id": receipt.run.run_id,
            "outcome": receipt.outcome,
            "recorded": True,
            "already_accepted": receipt.repeated,
        }
    )
