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
from penstock.wire.visibility import debug as wire
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
    run_id = text_path(call, "run_id") if "run_id" in call.path else None
    view = await run_debug.inspect(call.ctx, call.namespace, text_path(call, "workflow_id", 128), run_id)
    run = view.run
    workflow_tasks = [wire.workflow_task(task, run, view.now_ms) for task in view.workflow_tasks]
    activities = [
        wire.activity(activity, task, view.now_ms)
        | {"pause": responses.pause(view.run.waits.paused_steps.get(activity.step))}
        for activity, task in zip(view.activities, view.activity_tasks, strict=True)
    ]
    return Response(
        {
            "generated_at": iso(view.now_ms),
            "workflow_id": run.workflow_id,
            "run_id": run.run_id,
            "namespace": run.namespace,
            "diagnostic_status": view.diagnosis,
            "execution": _execution(call, view, with_payload=query.include_last_event_payload),
            "pending_workflow_tasks": workflow_tasks,
            "pending_activities": activities,
            "tasks": workflow_tasks,
            "activities": activities,
            "timers": [wire.timer(each) for each in view.timers],
            "waits": wire.waits(run),
            "task_queue": task_queues.description_body(call, view.queue),
            "recent_failures": list(view.failures),
            "compatibility": _compatibility(call, view),
            "findings": [_finding(each) for each in view.findings],
            "why": None if view.why is None else why.explanation_body(view.why.explanation, view.why.now_ms),
        }
    )


def _execution(call: OperationCall, view: RunDebugView, *, with_payload: bool) -> Body:
    run = view.run
    leased = any(task.state is TaskState.LEASED for task in view.workflow_tasks)
    status = "running" if leased and run.is_open else run.status.value
    attention = [each for each in view.findings if each.code == "repair_attention"]
    fires_at_ms = min((timer.fire_at_ms for timer in view.timers), default=None)
    located = view.located
    detail = responses.run_detail(
        run, status, located.instance.run_count, located.is_current, call.ctx.bounds
    )
    return wire.execution(
        run,
        status,
        {
            **{name: detail[name] for name in _FROM_DETAIL},
            "liveness_state": view.diagnosis,
            "liveness_reason": view.findings[0].message if view.findings else detail["wait_reason"],
            "repair_attention": bool(attention),
            "last_event": wire.last_event(view.last_event, with_payload=with_payload),
            "next_scheduled_event": None
            if fires_at_ms is None
            else {"event_type": "TimerFired", "at": iso_or_none(fires_at_ms)},
        },
    )


def _compatibility(call: OperationCall, view: RunDebugView) -> Body:
    stale_after_ms = call.ctx.settings.polls.worker_stale_after_ms
    workers = list(view.queue.workers)
    active = [
        each for each in workers if status_now(each, view.now_ms, stale_after_ms) is WorkerStatus.ACTIVE
    ]
    run = view.run
    return {
        "run": {
            "compatibility": run.compatibility,
            "summary_compatibility": run.compatibility,
            "task_queue": run.task_queue,
        },
        "task_queue_pollers": [responses.poller(each, view.now_ms, stale_after_ms) for each in workers],
        "namespace_worker_fleet": {
            "active_count": len(active),
            "total_count": len(workers),
            "build_ids": sorted({each.build_id for each in active if each.build_id is not None}),
        },
    }


def _finding(each: DebugFinding) -> Body:
    return {"severity": each.severity.value, "code": each.code, "message": each.message}
