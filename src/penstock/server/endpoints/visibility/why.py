"""Why a workflow, an activity or a task waits."""

from __future__ import annotations

from penstock.engine.visibility import explanations
from penstock.engine.visibility.explanations import WhyResult
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire.visibility import why as shown


async def workflow(call: OperationCall) -> Response:
    found = await explanations.workflow(call.ctx, call.namespace, text_path(call, "workflow_id"))
    return Response(_whole(found))


async def activity(call: OperationCall) -> Response:
    found = await explanations.activity(call.ctx, call.namespace, text_path(call, "activity_id"))
    return Response(_whole(found))


async def task(call: OperationCall) -> Response:
    found = await explanations.task(call.ctx, call.namespace, text_path(call, "task_id"))
    return Response(_whole(found))


def _whole(found: WhyResult) -> Body:
    return _one(found) | {
        "activities": [_one(each) for each in found.parts],
        "timers": [shown.timer(each) for each in found.timers],
    }


def _one(found: WhyResult) -> Body:
    return shown.subject(found.run, found.task, found.activity) | shown.answer(
        found.explanation, found.now_ms
    )
