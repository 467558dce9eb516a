"""Runs, activities, namespaces and workers as clients see them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from penstock.core import external_payloads
from penstock.core.history.events import CODEC
from penstock.core.history.structural_limits import StructuralLimits, limit_warnings
from penstock.core.last_error import split_error
from penstock.core.model import (
    Activity,
    Blob,
    Cohort,
    Namespace,
    Run,
    Task,
    TaskKind,
    Update,
    WorkerRecord,
    WorkerStatus,
)
from penstock.core.priority_levels import PRIORITY_KEYS
from penstock.core.scheduling.cohorts import CohortView, is_stale, status_now
from penstock.core.timestamps import iso, iso_or_none
from penstock.core.waits import CancellationRequest, Pause
from penstock.errors import PenstockError
from penstock.wire import payloads
from penstock.wire.activities.progress import summary

Body = dict[str, Any]


def envelope(blob: Blob | None) -> Body | None:
    return None if blob is None else external_payloads.envelope(blob)


def readable(blob: Blob | None) -> object:
    """The decoded value of a payload, for people; None if JSON cannot represent it."""
    if blob is None:
        return None
    try:
        value = payloads.decode(blob)
        msgspec.json.encode(value)
    except (PenstockError, ValueError, TypeError, OverflowError):
        return None
    return value


def namespace(each: Namespace) -> Body:
    return {
        "name": each.name,
        "description": each.description,
        "retention_days": each.retention_days,
        "status": each.status,
        "fairness": "on" if each.fair else "off",
        "external_payload_storage": json.loads(each.external_storage) if each.external_storage else None,
        "created_at": iso(each.created_at_ms),
        "updated_at": iso(each.updated_at_ms),
    }


def standing(run: Run) -> Body:
    """Priority on both scales, fairness key and weight of a run."""
    return {
        **priority(run.level),
        "fairness_key": run.key or None,
        "fairness_weight": run.weight_milli / 1000,
    }


def priority(level: int) -> Body:
    """A priority level, and the priority key at that level if there is one."""
    return {"priority": level, "priority_key": PRIORITY_KEYS[level]}


def run_summary(run: Run) -> Body:
    """A run in a list."""
    return {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "run_number": run.run_number,
        "namespace": run.namespace,
        "workflow_type": run.workflow_type,
        "business_key": run.business_key,
        "status": run.status.value,
        "status_bucket": run.status.bucket,
        "is_terminal": run.status.is_terminal,
        "closed_reason": run.closed_reason,
        "is_paused": run.waits.paused is not None,
        "task_queue": run.task_queue,
        "payload_codec": CODEC,
        "started_at": iso(run.started_at_ms),
        "closed_at": iso_or_none(run.closed_at_ms),
        "last_progress_at": iso(run.last_progress_at_ms),
        "memo": json.loads(run.memo),
        "search_attributes": json.loads(run.search_attributes),
        **standing(run),
        **unique(run),
    }


def unique(run: Run) -> Body:
    """The unique key of a run that was started with one, and until when a run holds it."""
    if run.lineage.unique_key is None:
        return {}
    return {"unique_key": run.lineage.unique_key, "unique_until": run.lineage.unique_until}


def pause(paused: Pause | None) -> Body | None:
    """The pause of a run or an activity."""
    if paused is None:
        return None
    by = None if paused.by is None else {"type": paused.by[0], "id": paused.by[1]}
    return {"paused_at": iso(paused.at_ms), "reason": paused.reason, "principal": by}


def run_detail(run: Run, status: str, run_count: int, is_current: bool, bounds: StructuralLimits) -> Body:
    open_ = run.is_open and is_current
    return run_summary(run) | {
        "status": status,
        "run_count": run_count,
        "is_current_run": is_current,
        "pause": pause(run.waits.paused),
        "compatibility": run.compatibility,
        "execution_timeout_seconds": run.execution_timeout_s,
        "run_timeout_seconds": run.run_timeout_s,
        "execution_deadline_at": iso_or_none(run.execution_deadline_at_ms),
        "run_deadline_at": iso_or_none(run.run_deadline_at_ms),
        "input": readable(run.input),
        "input_envelope": envelope(run.input),
        "output": readable(run.output),
        "output_envelope": envelope(run.output),
        **run_wait(run),
        "waits_to_start": run.waits.to_start,
        "concurrency_key": run.lineage.concurrency_key,
        "open_activities": run.open_activities,
        "open_timers": run.open_timers,
        "pending": {
            "activities": run.open_activities,
            "timers": run.open_timers,
            "children": run.open_children,
            "updates": run.open_updates,
            "signals": run.unseen_signals,
        },
        "history_length": run.last_sequence,
        "warnings": warnings(run, bounds),
        "blocked": None if run.blocked is None else asdict(run.blocked),
        "archived_at": iso_or_none(run.archived_at_ms),
        **_origin(run),
        "workflow_task_failures": run.task_failures,
        "last_workflow_task_error": split_error(run.task_error)[0],
        "last_workflow_task_stack_trace": split_error(run.task_error)[1],
        "actions": {
            "can_signal": open_,
            "can_query": True,
            "can_update": open_,
            "can_cancel": open_,
            "can_terminate": open_,
            "can_repair": open_,
            "can_archive": not run.is_open and run.archived_at_ms is None,
        },
    }


def warnings(run: Run, bounds: StructuralLimits) -> list[Body]:
    """Bounds that a run has nearly reached, with advice."""
    return [
        {
            "limit_kind": each.limit_kind,
            "current_value": each.current_value,
            "configured_limit": each.configured_limit,
            "percent": each.percent,
            "advice": each.advice,
        }
        for each in limit_warnings(run, bounds)
    ]


def _origin(run: Run) -> Body:
    origin = run.lineage
    parent = None
    if origin.is_child:
        parent = {
            "workflow_id": origin.parent_workflow_id,
            "run_id": origin.parent_run_id,
            "sequence": origin.parent_step,
            "parent_close_policy": origin.parent_close_policy.value,
        }
    return {
        "parent": parent,
        "continued_from_run_id": origin.continued_from,
        "retried_from_run_id": origin.retried_from,
        "attempt": origin.attempt,
    }


def run_wait(run: Run) -> Body:
    """What a run waits for, as a word and as a sentence; both are null once it is closed."""
    return {"wait_kind": _wait_kind(run), "wait_reason": _wait_reason(run)}


def _wait_kind(run: Run) -> str | None:
    if not run.is_open:
        return None
    if run.blocked is not None:
        return "replay_blocked"
    if run.waits.condition is not None:
        return "condition"
    if run.waits.signal is not None:
        return "signal"
    for kind, count in (
        ("activity", run.open_activities),
        ("child", run.open_children),
        ("timer", run.open_timers),
        ("update", run.open_updates),
    ):
        if count:
            return kind
    return "workflow_task"


def _wait_reason(run: Run) -> str | None:
    if not run.is_open:
        return None
    error, _ = split_error(run.task_error)
    if run.blocked is not None:
        return f"The workflow code does not match the history: {error}"
    if error is not None:
        return f"The workflow task failed {run.task_failures} times: {error}"
    waiting = run.waits
    condition = waiting.condition
    parts = [] if condition is None else [f"condition {condition.key}" if condition.key else "a condition"]
    if waiting.signal is not None:
        parts.append(f"signal {waiting.signal.name}")
    for count, one, several in (
        (run.open_activities, "open activity", "open activities"),
        (run.open_children, "open child", "open children"),
        (run.open_timers, "open timer", "open timers"),
        (run.open_updates, "update to be applied", "updates to be applied"),
        (len(waiting.external), "answer of another workflow", "answers of other workflows"),
    ):
        if count:
            parts.append(f"{count} {one if count == 1 else several}")
    if not parts and waiting.concurrent:
        return "Waiting for a signal or an update, or for a worker to take its workflow task"
    return "Waiting for " + " and ".join(parts) if parts else "Waiting for a worker to take its workflow task"


def page_token(text: str | int) -> str:
    return base64.b64encode(str(text).encode()).decode()


def standalone_activity(run: Run, activity: Activity) -> Body:
    limits = activity.timeouts
    return {
        "activity_id": run.workflow_id,
        "workflow_run_id": run.run_id,
        "activity_execution_id": activity.activity_id,
        "workflow_type": run.workflow_type,
        "activity_type": activity.activity_type,
        "activity_class": activity.activity_type,
        "summary": summary(activity),
        "task_queue": activity.task_queue,
        "namespace": run.namespace,
        "status": "running" if run.is_open and activity.started_at_ms else run.status.value,
        "activity_status": activity.status.value,
        "status_bucket": run.status.bucket,
        "is_terminal": run.status.is_terminal,
        "closed_reason": run.closed_reason,
        "business_key": run.business_key,
        "payload_codec": CODEC,
        "started_at": iso(run.started_at_ms),
        "closed_at": iso_or_none(run.closed_at_ms),
        "last_progress_at": iso(run.last_progress_at_ms),
        "last_heartbeat_at": iso_or_none(activity.heartbeat_at_ms),
        "last_heartbeat": json.loads(activity.heartbeat_details) if activity.heartbeat_details else None,
        "schedule_to_start_deadline_at": _deadline(activity.scheduled_at_ms, limits.schedule_to_start_ms),
        "schedule_to_close_deadline_at": _deadline(activity.scheduled_at_ms, limits.schedule_to_close_ms),
        "attempt_count": activity.attempt,
        "worker_deaths": activity.worker_deaths,
        "is_quarantined": bool(activity.quarantined),
        "pause": pause(run.waits.paused_steps.get(activity.step)),
        "result": envelope(run.output),
        **standing(run),
        **unique(run),
    }


def update(each: Update) -> Body:
    """An update in the description of its run."""
    return {
        "update_id": each.update_id,
        "update_name": each.name,
        "update_status": each.status.value,
        "request_id": each.request_id,
        "command_sequence": each.number,
        "accepted_at": iso(each.accepted_at_ms),
        "closed_at": iso_or_none(each.closed_at_ms),
    }


def _deadline(from_ms: int, limit_ms: int | None) -> str | None:
    return None if limit_ms is None else iso(from_ms + limit_ms)


def worker(each: WorkerRecord, now_ms: int, stale_after_ms: int) -> Body:
    return {
        "worker_id": each.worker_id,
        "namespace": each.namespace,
        "task_queue": each.task_queue,
        "runtime": each.runtime,
        "sdk_version": each.sdk_version,
        "build_id": each.build_id,
        "supported_workflow_types": list(each.workflow_types),
        "workflow_definition_fingerprints": dict(each.fingerprints),
        "supported_activity_types": list(each.activity_types),
        "max_concurrent_workflow_tasks": each.workflow_slots,
        "max_concurrent_activity_tasks": each.activity_slots,
        "status": status_now(each, now_ms, stale_after_ms).value,
        "last_heartbeat_at": iso(each.heartbeat_at_ms),
        "registered_at": iso(each.registered_at_ms),
        "updated_at": iso(each.updated_at_ms),
        "task_slots": each.task_slots,
        "process_metrics": each.process_metrics,
        "heartbeat_interval_seconds": each.heartbeat_interval_s,
    }


def poller(each: WorkerRecord, now_ms: int, stale_after_ms: int) -> Body:
    """A worker in the description of its queue."""
    slots = each.task_slots or {}
    return {
        "worker_id": each.worker_id,
        "runtime": each.runtime,
        "sdk_version": each.sdk_version,
        "build_id": each.build_id,
        "last_heartbeat_at": iso(each.heartbeat_at_ms),
        "heartbeat_expires_at": iso(each.heartbeat_at_ms + stale_after_ms),
        "status": status_now(each, now_ms, stale_after_ms).value,
        "is_stale": is_stale(each, now_ms, stale_after_ms),
        "supported_workflow_types": list(each.workflow_types),
        "supported_activity_types": list(each.activity_types),
        "max_concurrent_workflow_tasks": each.workflow_slots,
        "max_concurrent_activity_tasks": each.activity_slots,
        "available_workflow_slots": slots.get("workflow_available"),
        "available_activity_slots": slots.get("activity_available"),
        "available_session_slots": slots.get("session_available"),
        "max_activities_per_second": each.advertised.get("max_activities_per_second"),
        "process_metrics": each.process_metrics,
    }


def lease(task: Task, run: Run | None, now_ms: int) -> Body:
    assert task.lease_expires_at_ms is not None
    body: Body = {
        "task_id": task.task_id,
        "task_type": task.kind.value,
        "workflow_id": run.workflow_id if run else None,
        "run_id": task.run_id,
        "type": task.type or None,
        "fairness_key": task.key or None,
        "lease_owner": task.lease_owner,
        "leased_at": iso_or_none(task.leased_at_ms),
        "lease_expires_at": iso(task.lease_expires_at_ms),
        "is_expired": task.lease_expires_at_ms <= now_ms,
    }
    if task.kind is TaskKind.WORKFLOW:
        return body | {"workflow_task_attempt": task.attempt}
    return body | {"activity_attempt_id": task.lease_token, "attempt_number": task.attempt}


def cohort_change(cohort: Cohort) -> Body:
    return {
        "namespace": cohort.namespace,
        "task_queue": cohort.task_queue,
        "build_id": cohort.build_id or None,
        **_rollout(cohort),
    }


def _rollout(cohort: Cohort) -> Body:
    return {
        "drain_intent": cohort.drain_intent,
        "drained_at": iso_or_none(cohort.drained_at_ms),
        "promoted_at": iso_or_none(cohort.promoted_at_ms),
        "rolled_back_at": iso_or_none(cohort.rolled_back_at_ms),
        "new_start_selected": bool(cohort.new_start_selected),
    }


_NO_ROLLOUT: Body = {
    "drain_intent": "active",
    "drained_at": None,
    "promoted_at": None,
    "rolled_back_at": None,
    "new_start_selected": False,
}


def cohort_view(view: CohortView) -> Body:
    return {
        "build_id": view.build_id,
        "rollout_status": view.rollout_status,
        **(_NO_ROLLOUT if view.cohort is None else _rollout(view.cohort)),
        "active_worker_count": view.active,
        "draining_worker_count": view.draining,
        "stale_worker_count": view.stale,
        "total_worker_count": len(view.workers),
        "runtimes": sorted({each.runtime for each in view.workers}),
        "sdk_versions": sorted({each.sdk_version for each in view.workers if each.sdk_version}),
        "last_heartbeat_at": iso_or_none(max((w.heartbeat_at_ms for w in view.workers), default=None)),
        "first_seen_at": iso_or_none(min((w.registered_at_ms for w in view.workers), default=None)),
        **_fingerprints(view.workers),
    }


def _fingerprints(workers: Sequence[WorkerRecord]) -> Body:
    by_type: dict[str, set[str]] = {}
    for each in workers:
        for workflow_type, fingerprint in each.fingerprints.items():
            by_type.setdefault(workflow_type, set()).add(fingerprint)
    return {
        "workflow_definition_fingerprint_count": sum(map(len, by_type.values())),
        "workflow_definition_fingerprint_conflicts": [
            {"workflow_type": name, "fingerprints": sorted(fingerprints)}
            for name, fingerprints in sorted(by_type.items())
            if len(fingerprints) > 1
        ],
    }


def active_workers(workers: list[WorkerRecord], now_ms: int, stale_after_ms: int) -> list[WorkerRecord]:
    return [each for each in workers if status_now(each, now_ms, stale_after_ms) is WorkerStatus.ACTIVE]


def cancellation(asked: CancellationRequest) -> Body:
    """A request to cancel with time to clean up."""
    return {
        "request_id": asked.id,
        "requested_at": iso(asked.requested_at_ms),
        "cleanup_deadline_at": iso(asked.deadline_at_ms),
    }
