"""The waiting tasks of a queue, in the order in which they would be dispatched."""

from __future__ import annotations

from penstock.core.model import TaskKind
from penstock.core.timestamps import iso
from penstock.engine.visibility import waiting_tasks
from penstock.engine.visibility.waiting_tasks import WaitingTask
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire.limits.limit_requests import ReadWaiting
from penstock.wire.responses import priority
from penstock.wire.visibility.why import expected


async def read(call: OperationCall) -> Response:
    query: ReadWaiting = call.query
    name, kind = text_path(call, "name"), TaskKind(query.task_queue_type)
    view = await waiting_tasks.waiting(call.ctx, call.namespace, name, kind, query.limit)
    return Response(
        {
            "task_queue": name,
            "task_queue_type": kind.value,
            "as_of": iso(view.now_ms),
            "tasks": [_entry(each, view.now_ms) for each in view.tasks],
        }
    )


def _entry(each: WaitingTask, now_ms: int) -> Body:
    task = each.task
    return {
        "task_id": task.task_id,
        "type": task.type,
        "workflow_id": None if each.run is None else each.run.workflow_id,
        "run_id": task.run_id,
        "fairness_key": task.key or None,
        **priority(task.level),
        "attempt": task.attempt,
        "ahead": each.ahead,
        "waited_seconds": max(0, now_ms - task.enqueued_at_ms) / 1000,
        "enqueued_at": iso(task.enqueued_at_ms),
        "expected_start": expected(each.expected),
    }
