"""Pause, resume and reset of one activity, a change of its options, and its run now."""

from __future__ import annotations

from penstock.engine.activities import activity_control
from penstock.engine.activities.activity_control import ControlResult
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import responses
from penstock.wire.fields import WORKFLOW_ID_MAX
from penstock.wire.workflows import activity_operations
from penstock.wire.workflows.activity_operations import UpdateActivity
from penstock.wire.workflows.run_operations import PauseRun


async def pause(call: OperationCall) -> Response:
    request: PauseRun = call.body
    return _done(await activity_control.pause(call.ctx, call.namespace, _id(call), request.reason))


async def resume(call: OperationCall) -> Response:
    request: PauseRun = call.body
    return _done(await activity_control.resume(call.ctx, call.namespace, _id(call), request.reason))


async def reset(call: OperationCall) -> Response:
    request: PauseRun = call.body
    return _done(await activity_control.reset(call.ctx, call.namespace, _id(call), request.reason))


async def run_now(call: OperationCall) -> Response:
    request: PauseRun = call.body
    return _done(await activity_control.run_now(call.ctx, call.namespace, _id(call), request.reason))


async def update(call: OperationCall) -> Response:
    request: UpdateActivity = call.body
    activity_operations.check_any_option(request)
    done = await activity_control.update_options(
        call.ctx,
        call.namespace,
        _id(call),
        lambda activity: activity_operations.with_options(activity, request),
        request.reason,
    )
    return _done(done)


def _id(call: OperationCall) -> str:
    return text_path(call, "activity_id", WORKFLOW_ID_MAX)


def _done(done: ControlResult) -> Response:
    activity, run = done.activity, done.run
    return Response(
        {
            "activity_execution_id": activity.activity_id,
            "activity_type": activity.activity_type,
            "workflow_id": run.workflow_id,
            "run_id": run.run_id,
            "status": activity.status.value,
            "task_queue": activity.task_queue,
            "attempt_count": activity.attempt,
            "pause": responses.pause(run.waits.paused_steps.get(activity.step)),
            "outcome": done.outcome.value,
        }
    )
