"""Keeping house on request: numbers of a namespace, and passes that repair, time out and delete."""

from __future__ import annotations

from penstock.core.model import RunId
from penstock.core.timers import iso
from penstock.core.upkeep import Cleared
from penstock.engine import repairing, retention, surveying, timing_out
from penstock.engine.repairing import Failure
from penstock.engine.surveying import COUNTED_MAX
from penstock.errors import PenstockError
from penstock.server.operation import Answer, Body, Call
from penstock.wire import rendering, system

PARTLY = 207
_POLICY: Body = {
    "redispatch_after_seconds": 1,
    "loop_throttle_seconds": 0,
    "scan_limit": system.AT_ONCE_MAX,
    "scan_strategy": "oldest_first",
    "failure_backoff_max_seconds": 600,
    "failure_backoff_strategy": "exponential",
}


async def metrics(call: Call) -> Answer:
    found = await surveying.trouble(call.house, call.namespace)
    return Answer(
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


async def operator_metrics(call: Call) -> Answer:
    house = call.house
    found = await surveying.numbers(house, call.namespace)
    workflow, activity = found.workflow_tasks, found.activity_tasks
    ready, delayed = workflow.ready + activity.ready, workflow.delayed + activity.delayed
    leased, expired = workflow.leased + activity.leased, workflow.expired + activity.expired
    added = workflow.added_last_minute + activity.added_last_minute
    given = workflow.dispatched_last_minute + activity.dispatched_last_minute
    stale_after_ms = house.settings.polls.worker_stale_after_ms
    active = rendering.active_workers([*found.workers], found.now_ms, stale_after_ms)
    limits = house.settings.limits
    return Answer(
        {
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
                    "active_worker_scopes": len({each.task_queue for each in active}),
                },
                "backend": {"store": house.settings.store.kind.value},
                "retention": _upkeep(call),
                "structural_limits": {
                    "pending_activity_count": limits.pending_activities_max,
                    "pending_timer_count": limits.pending_timers_max,
                    "history_event_count": limits.history_events_max,
                },
                "repair_policy": _POLICY,
            },
        }
    )


async def repair(call: Call) -> Answer:
    limit = call.query.most
    found = await repairing.candidates(call.house, call.namespace, limit)
    shown = system.candidates(
        found.tasks, found.runs, found.now_ms, limit, more_tasks=found.more_tasks, more_runs=found.more_runs
    )
    return Answer({"namespace": call.namespace, "policy": _POLICY, "candidates": shown})


async def repair_pass(call: Call) -> Answer:
    request: system.RepairPass = call.body
    run_ids = request.run_ids or []
    done = await repairing.repair_all(
        call.house, call.namespace, system.AT_ONCE_MAX, run_ids, request.instance_id
    )
    failed = bool(done.task_failures or done.run_failures)
    return Answer(
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


def _failure(name: str, each: Failure) -> Body:
    return {name: each.id, "message": each.message}


async def activity_timeouts(call: Call) -> Answer:
    limit = call.query.most
    found, more = await timing_out.overdue(call.house, call.namespace, limit)
    return Answer(
        {
            "namespace": call.namespace,
            "expired_count": len(found),
            "expired_execution_ids": list(found),
            "scan_limit": limit,
            "scan_pressure": more,
        }
    )


async def activity_timeouts_pass(call: Call) -> Answer:
    request: system.TimeoutPass = call.body
    limit = request.limit or system.AT_ONCE_MAX
    results = await timing_out.enforce(call.house, call.namespace, limit, request.execution_ids)
    shown = [
        {"execution_id": each.activity_id, "outcome": each.outcome}
        | ({} if each.has_retry is None else {"has_retry": each.has_retry})
        | ({} if each.reason is None else {"reason": each.reason})
        for each in results
    ]
    counts = _counts([each.outcome for each in results], "enforced")
    return Answer(
        {"namespace": call.namespace, **counts, "results": shown}, PARTLY if counts["failed"] else 200
    )


async def expired(call: Call) -> Answer:
    limit = call.query.most
    found = await retention.expired(call.house, call.namespace, limit)
    return Answer(
        {
            "namespace": call.namespace,
            "retention_days": found.retention_days,
            "cutoff": iso(found.cutoff_ms),
            "expired_run_count": len(found.run_ids),
            "expired_run_ids": list(found.run_ids),
            "scan_limit": limit,
            "scan_pressure": found.more,
            **_upkeep(call),
        }
    )


async def retention_pass(call: Call) -> Answer:
    request: system.RetentionPass = call.body
    ids = request.run_ids
    if ids is None:
        limit = request.limit or system.AT_ONCE_MAX
        ids = [*(await retention.expired(call.house, call.namespace, limit)).run_ids]
    results = [await _prune(call, RunId(each)) for each in dict.fromkeys(ids)]
    counts = _counts([each["outcome"] for each in results], "pruned")
    return Answer(
        {"namespace": call.namespace, **counts, "results": results}, PARTLY if counts["failed"] else 200
    )


async def _prune(call: Call, run_id: RunId) -> Body:
    try:
        done = await retention.prune(call.house, run_id, call.namespace)
    except PenstockError as error:
        return system.pruned(run_id, "error", Cleared(), error.message)
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


def _upkeep(call: Call) -> Body:
    """What this server has done, and whether its archive can be written."""
    upkeep = call.house.upkeep
    return {
        "archive": {
            "is_configured": call.house.archive is not None,
            "trouble": upkeep.trouble,
            "failures": upkeep.archive_failures,
        },
        "runs_pruned": upkeep.runs_pruned,
        "runs_archived": upkeep.runs_archived,
    }
