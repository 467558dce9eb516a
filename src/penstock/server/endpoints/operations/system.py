"""System operations: metrics of a namespace, and passes that repair, time out and delete on request."""

from __future__ import annotations

from penstock.core.model import RunId
from penstock.core.operations.run_counts import PurgedRows
from penstock.core.timestamps import iso
from penstock.engine.activities import timeouts
from penstock.engine.operations import namespace_stats, retention
from penstock.engine.operations.namespace_stats import COUNTED_MAX, NamespaceCounts
from penstock.engine.workflows import run_repair
from penstock.engine.workflows.run_repair import RepairFailure
from penstock.errors import PenstockError
from penstock.server.operation import Body, OperationCall, Response
from penstock.wire import responses
from penstock.wire.operations import system
from penstock.wire.visibility import why

PARTLY = 207
_POLICY: Body = {
    "redispatch_after_seconds": 1,
    "loop_throttle_seconds": 0,
    "scan_limit": system.AT_ONCE_MAX,
    "scan_strategy": "oldest_first",
    "failure_backoff_max_seconds": 600,
    "failure_backoff_strategy": "exponential",
}


async def metrics(call: OperationCall) -> Response:
    found = await namespace_stats.health(call.ctx, call.namespace)
    return Response(
        {
            "generated_at": iso(found.now_ms),
            "namespace": call.namespace,
            "metrics": {
                "dw_workflow_task_consecutive_failures": system.failing(
                    found.failing, truncated=found.truncated
                ),
                "dw_projection_drift_total": system.NO_DRIFT,
            },
            "cardinality": {
                "metric_label_sets": {
                    "dw_workflow_task_consecutive_failures": min(len(found.failing), system.TYPES_SHOWN),
                    "dw_projection_drift_total": 0,
                }
            },
        }
    )


async def operator_metrics(call: OperationCall) -> Response:
    return Response(operator_metrics_body(call, await namespace_stats.stats(call.ctx, call.namespace)))


def operator_metrics_body(call: OperationCall, found: NamespaceCounts) -> Body:
    ctx = call.ctx
    workflow, activity = found.workflow_tasks, found.activity_tasks
    ready, delayed = workflow.ready + activity.ready, workflow.delayed + activity.delayed
    leased, expired = workflow.leased + activity.leased, workflow.expired + activity.expired
    added = workflow.added_last_minute + activity.added_last_minute
    given = workflow.dispatched_last_minute + activity.dispatched_last_minute
    stale_after_ms = ctx.settings.polls.worker_stale_after_ms
    active = responses.active_workers([*found.workers], found.now_ms, stale_after_ms)
    limits = ctx.settings.limits
    return {
        "namespace": call.namespace,
        "operator_metrics": {
            "generated_at": iso(found.now_ms),
            "runs": system.runs(found.open_runs, found.closed_runs, COUNTED_MAX, found.stranded_runs),
            "tasks": {
                "open": ready + delayed + leased,
                "ready": ready,
                "ready_due": ready,
                "delayed": delayed,
                "leased": leased,
                "lease_expired": expired,
                "unhealthy": expired,
            },
            "activities": {
                "open": activity.ready + activity.delayed + activity.leased,
                "pending": activity.ready + activity.delayed,
                "running": activity.running,
                "claimed": activity.claimed,
                "retrying": activity.delayed,
                "timeout_overdue": found.overdue_activities,
            },
            "backlog": {
                "runnable_tasks": ready,
                "delayed_tasks": delayed,
                "leased_tasks": leased,
                "tasks_added_last_minute": added,
                "tasks_dispatched_last_minute": given,
                "retrying_activities": activity.delayed,
                "unhealthy_tasks": expired,
                "repair_needed_runs": found.stranded_runs,
            },
            "forecasts": why.coverage(ctx.starts.coverage()),
            "repair": {
                "existing_task_candidates": expired,
                "missing_task_candidates": found.stranded_runs,
            },
            "history": {
                "events": found.open_runs.events,
                "max_event_count": found.open_runs.events_most,
                "event_limit": limits.history_events_max,
            },
            "workers": {
                "active_workers": len(active),
                "registered_workers": len(found.workers),
                "registrations": len(found.workers),
                "active_worker_scopes": len({each.task_queue for each in active}),
            },
            "backend": {"store": ctx.settings.store.kind.value},
            "retention": _maintenance_body(call),
            "structural_limits": {
                "pending_activity_count": limits.pending_activities_max,
                "pending_timer_count": limits.pending_timers_max,
                "history_event_count": limits.history_events_max,
            },
            "repair_policy": _POLICY,
        },
    }


async def repair(call: OperationCall) -> Response:
    return Response({"namespace": call.namespace, **await repair_status(call, call.query.most)})


async def repair_status(call: OperationCall, limit: int) -> Body:
    """What could be repaired in the namespace, and how."""
    found = await run_repair.candidates(call.ctx, call.namespace, limit)
    outcomes = system.candidates(
        found.tasks, found.runs, found.now_ms, limit, more_tasks=found.more_tasks, more_runs=found.more_runs
    )
    return {"policy": _POLICY, "candidates": outcomes}


async def repair_pass(call: OperationCall) -> Response:
    request: system.RepairPass = call.body
    run_ids = request.run_ids or []
    done = await run_repair.repair_all(
        call.ctx, call.namespace, system.AT_ONCE_MAX, run_ids, request.instance_id
    )
    failed = bool(done.task_failures or done.run_failures)
    return Response(
        {
            "namespace": call.namespace,
            "run_ids": run_ids,
            "instance_id": request.instance_id,
            "throttled": False,
            "selected_existing_task_candidates": done.tasks_found,
            "selected_missing_task_candidates": done.runs_found,
            "selected_total_candidates": done.tasks_found + done.runs_found,
            "repaired_existing_tasks": done.tasks_repaired,
            "repaired_missing_tasks": done.runs_repaired,
            "dispatched_tasks": done.tasks_repaired + done.runs_repaired,
            "selected_command_contract_candidates": 0,
            "backfilled_command_contracts": 0,
            "command_contract_backfill_unavailable": 0,
            "command_contract_failures": [],
            "existing_task_failures": [_failure("task_id", each) for each in done.task_failures],
            "missing_run_failures": [_failure("run_id", each) for each in done.run_failures],
        },
        PARTLY if failed else 200,
    )


def _failure(name: str, each: RepairFailure) -> Body:
    return {name: each.id, "message": each.message}


async def activity_timeouts(call: OperationCall) -> Response:
    limit = call.query.most
    found, more = await timeouts.overdue(call.ctx, call.namespace, limit)
    return Response(
        {
            "namespace": call.namespace,
            "expired_count": len(found),
            "expired_execution_ids": list(found),
            "scan_limit": limit,
            "scan_pressure": more,
        }
    )


async def activity_timeouts_pass(call: OperationCall) -> Response:
    request: system.TimeoutPass = call.body
    limit = request.limit or system.AT_ONCE_MAX
    results = await timeouts.time_out_all(call.ctx, call.namespace, limit, request.execution_ids)
    outcomes = [
        {"execution_id": each.activity_id, "outcome": each.outcome}
        | ({} if each.has_retry is None else {"has_retry": each.has_retry})
        | ({} if each.reason is None else {"reason": each.reason})
        for each in results
    ]
    counts = _counts([each.outcome for each in results], "enforced")
    return Response(
        {"namespace": call.namespace, **counts, "results": outcomes}, PARTLY if counts["failed"] else 200
    )


async def expired(call: OperationCall) -> Response:
    limit = call.query.most
    found = await retention.expired(call.ctx, call.namespace, limit)
    return Response(
        {
            "namespace": call.namespace,
            "retention_days": found.retention_days,
            "cutoff": iso(found.cutoff_ms),
            "expired_run_count": len(found.run_ids),
            "expired_run_ids": list(found.run_ids),
            "scan_limit": limit,
            "scan_pressure": found.more,
            **_maintenance_body(call),
        }
    )


async def retention_pass(call: OperationCall) -> Response:
    request: system.RetentionPass = call.body
    ids = request.run_ids
    if ids is None:
        limit = request.limit or system.AT_ONCE_MAX
        ids = [*(await retention.expired(call.ctx, call.namespace, limit)).run_ids]
    results = [await _prune(call, RunId(each)) for each in dict.fromkeys(ids)]
    counts = _counts([each["outcome"] for each in results], "pruned")
    return Response(
        {"namespace": call.namespace, **counts, "results": results}, PARTLY if counts["failed"] else 200
    )


async def _prune(call: OperationCall, run_id: RunId) -> Body:
    try:
        done = await retention.prune(call.ctx, run_id, call.namespace)
    except PenstockError as error:
        return system.pruned(run_id, "error", PurgedRows(), error.message)
    if done.obstacle is not None:
        return system.pruned(run_id, "skipped", done.cleared, done.obstacle.value)
    return system.pruned(run_id, "pruned", done.cleared, None)


def _counts(outcomes: list[str], done: str) -> Body:
    return {
        "processed": len(outcomes),
        done: outcomes.count(done),
        "skipped": outcomes.count("skipped"),
        "failed": outcomes.count("error"),
    }


def _maintenance_body(call: OperationCall) -> Body:
    """What this server has archived and deleted, and whether its archive is writable."""
    maintenance = call.ctx.upkeep
    return {
        "archive": {
            "is_configured": call.ctx.archive is not None,
            "trouble": maintenance.trouble,
            "failures": maintenance.archive_failures,
        },
        "runs_pruned": maintenance.runs_pruned,
        "runs_archived": maintenance.runs_archived,
    }
