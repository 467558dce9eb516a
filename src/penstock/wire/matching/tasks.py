"""Workflow tasks and activity tasks as workers receive them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.core.history.events import CODEC
from penstock.core.history.payloads import FAIRNESS_WEIGHT, extra, retry_snapshot
from penstock.core.model import Activity, RecordedEvent, Run, Task
from penstock.core.timestamps import iso, iso_or_none
from penstock.wire.responses import Body, envelope, page_token, worker_event

_UNKNOWN_RESUME: dict[str, Any] = dict.fromkeys(
    (
        "workflow_wait_kind",
        "open_wait_id",
        "resume_source_kind",
        "resume_source_id",
        "workflow_signal_id",
        "signal_name",
    )
)


def workflow_task(task: Task, run: Run, events: Sequence[RecordedEvent], known: int = 0) -> Body:
    """A task with its history, or with the events after `known`, which its worker has cached."""
    assert task.lease_expires_at_ms is not None
    seen = events[-1].sequence if events else known
    body = {
        "task_id": task.task_id,
        "task_kind": "workflow",
        "workflow_task_attempt": task.attempt,
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "payload_codec": CODEC,
        "arguments": envelope(run.input),
        "history_events": [worker_event(event) for event in events],
        "next_history_page_token": page_token(seen) if seen < run.last_sequence else None,
        "total_history_events": run.last_sequence,
        "last_history_sequence": run.last_sequence,
        "lease_owner": task.lease_owner,
        "lease_expires_at": iso(task.lease_expires_at_ms),
        "task_queue": task.task_queue,
        "run_status": run.status.value,
        "connection": None,
        "compatibility": run.compatibility,
        "cancel_requested": False,
        "priority": run.level,
        "fairness_key": run.key or None,
        "fairness_weight": run.weight_milli / 1000,
        "workflow_update_id": task.update_id,
    } | _UNKNOWN_RESUME
    return body | {"history_from_sequence": known + 1} if known else body


def activity_task(task: Task, run: Run, activity: Activity) -> Body:
    assert task.lease_expires_at_ms is not None
    return {
        "task_id": task.task_id,
        "activity_attempt_id": task.lease_token,
        "activity_execution_id": activity.activity_id,
        "activity_type": activity.activity_type,
        "attempt_number": task.attempt,
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "payload_codec": CODEC,
        "arguments": envelope(activity.arguments),
        "retry_policy": retry_snapshot(activity.retry, activity.timeouts),
        "task_queue": task.task_queue,
        "lease_owner": task.lease_owner,
        "lease_expires_at": iso(task.lease_expires_at_ms),
        "idempotency_key": activity.activity_id,
        "deadlines": _deadlines(activity),
        "priority": task.level,
        "fairness_key": task.key or None,
        "fairness_weight": extra(activity.extra).get(FAIRNESS_WEIGHT, run.weight_milli / 1000),
        "cost_estimate": task.cost,
        "must_start": bool(task.claimed),
        "workflow_type": run.workflow_type,
        "scheduled_at": iso(activity.scheduled_at_ms),
        "started_at": iso_or_none(activity.started_at_ms),
        "heartbeat_details": _details(activity),
    }


def _details(activity: Activity) -> Any:
    """The last heartbeat details of a previous attempt."""
    return json.loads(activity.heartbeat_details).get("details") if activity.heartbeat_details else None


def _deadlines(activity: Activity) -> Body:
    limits, started = activity.timeouts, activity.started_at_ms
    found = {
        "schedule_to_start": _at(activity.scheduled_at_ms, limits.schedule_to_start_ms),
        "start_to_close": _at(started, limits.start_to_close_ms),
        "schedule_to_close": _at(activity.scheduled_at_ms, limits.schedule_to_close_ms),
        "heartbeat": _at(activity.heartbeat_at_ms or started, limits.heartbeat_ms),
    }
    return {name: at for name, at in found.items() if at is not None}


def _at(from_ms: int | None, limit_ms: int | None) -> str | None:
    return None if limit_ms is None or from_ms is None else iso(from_ms + limit_ms)
