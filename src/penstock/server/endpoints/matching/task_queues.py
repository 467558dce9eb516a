"""Task queues: list, describe, and the builds that serve them."""

from __future__ import annotations

from typing import Any

from penstock.core.limits.admission import queue_scope
from penstock.core.model import QueueStats, Task, TaskKind
from penstock.core.scheduling.backlog import oldest_wait_ms
from penstock.core.scheduling.cohorts import is_stale
from penstock.core.series.drain_forecast import drain_forecast
from penstock.core.timestamps import iso
from penstock.engine.visibility import task_queues
from penstock.engine.visibility.task_queues import QueueView
from penstock.engine.workers import cohorts
from penstock.server.endpoints.matching.backlogs import backlog
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import responses
from penstock.wire.limits import queue_settings
from penstock.wire.limits.admission import QueueAdmissionState, admission, query_section
from penstock.wire.requests import ChangeCohort


async def list_all(call: OperationCall) -> Response:
    views = await task_queues.list_queues(call.ctx, call.namespace)
    return Response({"namespace": call.namespace, "task_queues": [_summary(call, view) for view in views]})


async def describe(call: OperationCall) -> Response:
    return Response(
        description_body(call, await task_queues.describe(call.ctx, call.namespace, text_path(call, "name")))
    )


def description_body(call: OperationCall, view: QueueView) -> dict[str, Any]:
    """The full description of one queue."""
    stale_after_ms = call.ctx.settings.polls.worker_stale_after_ms
    fresh_first = sorted(
        view.workers, key=lambda each: (is_stale(each, view.now_ms, stale_after_ms), -each.heartbeat_at_ms)
    )
    runs = view.runs or {}
    summary = _summary(call, view)
    for kind in TaskKind:
        summary["stats"][f"{kind.value}_tasks"] |= backlog(view, kind, stale_after_ms)
    return summary | {
        "pollers": [responses.poller(each, view.now_ms, stale_after_ms) for each in fresh_first],
        "current_leases": [responses.lease(task, runs.get(task.run_id), view.now_ms) for task in view.leases],
    }


def _summary(call: OperationCall, view: QueueView) -> dict[str, Any]:
    return {
        "name": view.name,
        "namespace": call.namespace,
        "stats": _stats(call, view),
        "settings": {
            f"{kind.value}_tasks": queue_settings.in_force(queue.policy.at(view.now_ms))
            for kind, queue in view.queues.items()
        },
        "repair": _repair(view),
        "admission": admission_body(call, view),
    }


def admission_body(call: OperationCall, view: QueueView) -> dict[str, Any]:
    """The admission section of a queue, for each kind of task."""
    ctx = call.ctx
    supported = ctx.coordination.is_supported
    lines = {kind: _admission_state(view, kind) for kind in TaskKind}
    stale_after_ms = ctx.settings.polls.worker_stale_after_ms
    sections = admission(lines, list(view.workers), view.now_ms, stale_after_ms, lock_supported=supported)
    most = ctx.settings.limits.pending_query_tasks_max
    return sections | {"query_tasks": query_section(view.pending_queries, most, lock_supported=supported)}


def _admission_state(view: QueueView, kind: TaskKind) -> QueueAdmissionState:
    queue = view.queues[kind]
    own = [task for task in view.leases if task.kind is kind and not task.claimed]
    leased, given = view.totals[kind]
    return QueueAdmissionState(
        queue=queue,
        stats=view.stats.get(kind, QueueStats()),
        gates=view.gates[kind],
        namespace_leases=leased,
        namespace_dispatches=given,
        holders={**view.holders, queue_scope(queue.namespace, queue.name, kind): own},
        waits=view.waits.get(kind, ()),
    )


def _stats(call: OperationCall, view: QueueView) -> dict[str, Any]:
    stale_after_ms = call.ctx.settings.polls.worker_stale_after_ms
    stale = sum(is_stale(each, view.now_ms, stale_after_ms) for each in view.workers)
    workflow = view.stats.get(TaskKind.WORKFLOW, QueueStats())
    activity = view.stats.get(TaskKind.ACTIVITY, QueueStats())
    waiting = [each.oldest for each in (workflow, activity) if each.oldest is not None]
    oldest = min(waiting, key=lambda task: task.enqueued_at_ms, default=None)
    age_s = (view.now_ms - oldest.enqueued_at_ms) // 1000 if oldest else None
    return {
        "approximate_backlog_count": workflow.ready + activity.ready,
        "approximate_backlog_age": None if age_s is None else f"{age_s}s",
        "approximate_backlog_age_seconds": age_s,
        "oldest_ready_task": _oldest(oldest, view) if oldest else None,
        "workflow_tasks": _counts(workflow, view.now_ms),
        "activity_tasks": _counts(activity, view.now_ms),
        "pollers": {
            "active_count": len(view.workers) - stale,
            "stale_count": stale,
            "stale_after_seconds": stale_after_ms // 1000,
        },
        "tasks_added_last_minute": workflow.added_last_minute + activity.added_last_minute,
        "tasks_dispatched_last_minute": workflow.dispatched_last_minute + activity.dispatched_last_minute,
    }


def _counts(stats: QueueStats, now_ms: int) -> dict[str, Any]:
    return {
        "ready_count": stats.ready,
        "delayed_count": stats.delayed,
        "leased_count": stats.leased,
        "claimed_count": stats.claimed,
        "expired_lease_count": stats.expired,
        "added_last_minute": stats.added_last_minute,
        "dispatched_last_minute": stats.dispatched_last_minute,
        "oldest_wait_seconds": None if stats.oldest is None else oldest_wait_ms(stats, now_ms) / 1000,
        "forecast": _forecast(stats),
    }


def _forecast(stats: QueueStats) -> dict[str, Any]:
    """Whether the backlog drains by itself, if the last minute goes on."""
    found = drain_forecast(stats.ready, stats.added_last_minute, stats.dispatched_last_minute)
    return {
        "state": found.state.value,
        "clear_in_seconds": None if found.clear_in_s is None else round(found.clear_in_s, 1),
        "grows_per_second": None if found.grows_per_s is None else round(found.grows_per_s, 3),
    }


def _oldest(task: Task, view: QueueView) -> dict[str, Any]:
    run = (view.runs or {}).get(task.run_id)
    return {
        "task_id": task.task_id,
        "task_type": task.kind.value,
        "workflow_id": run.workflow_id if run else None,
        "run_id": task.run_id,
        "available_at": iso(task.available_at_ms),
        "age_seconds": (view.now_ms - task.enqueued_at_ms) // 1000,
    }


def _repair(view: QueueView) -> dict[str, Any]:
    """The sweeper requeues expired leases; only tasks that no worker can take need an operator."""
    expired = sum(each.expired for each in view.stats.values())
    return {
        "candidates": expired,
        "dispatch_failed": 0,
        "oldest_dispatch_failed_at": None,
        "max_dispatch_failed_age_ms": 0,
        "expired_leases": expired,
        "oldest_lease_expired_at": None,
        "max_lease_expired_age_ms": 0,
        "dispatch_overdue": 0,
        "oldest_dispatch_overdue_since": None,
        "max_dispatch_overdue_age_ms": 0,
        "needs_attention": bool(view.unserved),
        "policy": {"redispatch_after_seconds": 1},
    }


async def build_ids(call: OperationCall) -> Response:
    name = text_path(call, "name")
    views = await cohorts.list_cohorts(call.ctx, call.namespace, name)
    return Response(
        {
            "namespace": call.namespace,
            "task_queue": name,
            "stale_after_seconds": call.ctx.settings.polls.worker_stale_after_ms // 1000,
            "build_ids": [responses.cohort_view(view) for view in views],
        }
    )


async def drain(call: OperationCall) -> Response:
    return Response(responses.cohort_change(await cohorts.drain(call.ctx, call.namespace, *_cohort(call))))


async def resume(call: OperationCall) -> Response:
    return Response(responses.cohort_change(await cohorts.resume(call.ctx, call.namespace, *_cohort(call))))


async def promote(call: OperationCall) -> Response:
    return Response(responses.cohort_change(await cohorts.promote(call.ctx, call.namespace, *_cohort(call))))


def _cohort(call: OperationCall) -> tuple[str, str | None]:
    request: ChangeCohort = call.body
    build_id = (request.build_id or "").strip() or None
    return text_path(call, "name"), build_id
