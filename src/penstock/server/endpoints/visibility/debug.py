"""Debug view of a run: tasks, activities, queue, recent failures and findings."""

from __future__ import annotations

from penstock.core.model import TaskState, WorkerStatus
from penstock.core.scheduling.cohorts import status_now
from penstock.core.timestamps import iso, iso_or_none
from penstock.engine.visibility import run_debug
from penstock.engine.visibility.run_debug import DebugFinding, RunDebugView
from penstock.server.endpoints.matching import task_queues
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire import responses
from penstock.wire.operations.system import ReadDebug
from penstock.wire.visibility import debug as shown
from penstock.wire.visibility import why

_FROM_DETAIL = (
    "wait_kind",
    "wait_reason",
    "pending",
    "warnings",
    "blocked",
    "parent",
    "continued_from_run_id",
)


async def describe(call: OperationCall) -> Response:
    query: ReadDebug = call.query
    named = text_path(call, "run_id") if "run_id" in call.path else None
    seen = await run_debug.inspect(call.ctx, call.namespace, text_path(call, "workflow_id", 128), named)
    run = seen.run
    return Response(
        {
            "generated_at": iso(seen.now_ms),
            "workflow_id": run.workflow_id,
            "run_id": run.run_id,
            "namespace": run.namespace,
            "diagnostic_status": seen.diagnosis,
            "execution": _execution(call, seen, with_payload=query.include_last_event_payload),
            "pending_workflow_tasks": [
                shown.workflow_task(task, run, seen.now_ms) for task in seen.workflow_tasks
            ],
            "pending_activities": [
                shown.activity(activity, task, seen.now_ms)
                for activity, task in zip(seen.activities, seen.activity_tasks, strict=True)
            ],
            "task_queue": task_queues.description_body(call, seen.queue),
            "recent_failures": list(seen.failures),
            "compatibility": _compatibility(call, seen),
            "findings": [_finding(each) for each in seen.findings],
            "why": None if seen.why is None else why.answer(seen.why.explanation, seen.why.now_ms),
        }
    )


def _execution(call: OperationCall, seen: RunDebugView, *, with_payload: bool) -> Body:
    run = seen.run
    leased = any(task.state is TaskState.LEASED for task in seen.workflow_tasks)
    status = "running" if leased and run.is_open else run.status.value
    attention = [each for each in seen.findings if each.code == "repair_attention"]
    fires_at_ms = min((timer.fire_at_ms for timer in seen.timers), default=None)
    located = seen.located
    detail = responses.run_detail(
        run, status, located.instance.run_count, located.is_current, call.ctx.bounds
    )
    return shown.execution(
        run,
        status,
        {
            **{name: detail[name] for name in _FROM_DETAIL},
            "liveness_state": seen.diagnosis,
            "liveness_reason": seen.findings[0].message if seen.findings else detail["wait_reason"],
            "repair_attention": bool(attention),
            "last_event": shown.last_event(seen.last_event, with_payload=with_payload),
            "next_scheduled_event": None
            if fires_at_ms is None
            else {"event_type": "TimerFired", "at": iso_or_none(fires_at_ms)},
        },
    )


def _compatibility(call: OperationCall, seen: RunDebugView) -> Body:
    stale_after_ms = call.ctx.settings.polls.worker_stale_after_ms
    workers = list(seen.queue.workers)
    active = [
        each for each in workers if status_now(each, seen.now_ms, stale_after_ms) is WorkerStatus.ACTIVE
    ]
    run = seen.run
    return {
        "run": {
            "compatibility": run.compatibility,
            "summary_compatibility": run.compatibility,
            "task_queue": run.task_queue,
        },
        "task_queue_pollers": [responses.poller(each, seen.now_ms, stale_after_ms) for each in workers],
        "namespace_worker_fleet": {
            "active_count": len(active),
            "total_count": len(workers),
            "build_ids": sorted({each.build_id for each in active if each.build_id is not None}),
        },
    }


def _finding(each: DebugFinding) -> Body:
    return {"severity": each.severity.value, "code": each.code, "message": each.message}
