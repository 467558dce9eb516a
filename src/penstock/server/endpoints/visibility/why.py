"""Why a workflow, an activity or a task waits."""

from __future__ import annotations

from penstock.engine.context import EngineContext
from penstock.engine.visibility import explanations
from penstock.engine.visibility.explanations import WhyResult
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire.visibility import why as wire


async def workflow(call: OperationCall) -> Response:
    found = await explanations.workflow(call.ctx, call.namespace, text_path(call, "workflow_id"))
    return Response(_explanation_with_parts(call.ctx, found))


async def activity(call: OperationCall) -> Response:
    found = await explanations.activity(call.ctx, call.namespace, text_path(call, "activity_id"))
    return Response(_explanation_with_parts(call.ctx, found))


async def task(call: OperationCall) -> Response:
    found = await explanations.task(call.ctx, call.namespace, text_path(call, "task_id"))
    return Response(_explanation_with_parts(call.ctx, found))


def _explanation_with_parts(ctx: EngineContext, found: WhyResult) -> Body:
    return _explanation_body(found) | {
        "activities": [_explanation_body(each) for each in found.parts],
        "timers": [wire.timer(each) for each in found.timers],
        "forecasts": wire.coverage(ctx.starts.coverage()),
    }


def _explanation_body(found: WhyResult) -> Body:
    return wire.subject(found.run, found.task, found.activity) | wire.explanation_body(
        found.explanation, found.now_ms
    )
