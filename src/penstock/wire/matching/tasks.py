"""Workflow tasks, their history and activity tasks as workers receive them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.core.external_payloads import envelope
from penstock.core.history.events import CODEC
from penstock.core.history.payloads import FAIRNESS_WEIGHT, NOTHING_ELSE, extra, retry_snapshot
from penstock.core.model import Activity, RecordedEvent, Run, Task
from penstock.core.timestamps import iso
from penstock.core.waits import CancellationRequest
from penstock.wire import responses
from penstock.wire.responses import Body, page_token, priority, standing

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
        **standing(run),
        "workflow_update_id": task.update_id,
    } | _UNKNOWN_RESUME
    if run.waits.cancellation is not None:
        body |= cancellation_request(run)
    return body | {"history_from_sequence": known + 1} if known else body


def cancellation_request(run: Run, *, leased_before: bool = False) -> Body:
    """The field by which a worker learns of a request that it is to deliver; nothing without one.

    A request that came while the task was leased (`leased_before`) is shown before it is in the history, unless
    deferred signals keep it from being recorded there in time.
    """
    asked = run.waits.undelivered
    waits_for_end = run.waits.signals_deferred and run.unseen_signals
    if asked is None or not (asked.event or (leased_before and not waits_for_end)):
        return {}
    return {"cancellation_request": cancellation_observation(asked)}


def cancellation_observation(asked: CancellationRequest) -> Body:
    return responses.cancellation(asked) | {"history_refresh_page_token": page_token(0)}


def worker_event(event: RecordedEvent) -> Body:
    return {
        "id": event.id,
        "event_id": event.sequence,
        "sequence": event.sequence,
        "event_type": event.type,
        "payload": msgspec.Raw(event.payload.encode()),
        "workflow_task_id": event.task_id,
        "recorded_at": iso(event.recorded_at_ms),
    }


def activity_task(task: Task, run: Run, activity: Activity) -> Body:
    assert task.lease_expires_at_ms is not None
    scheduled_ms, started_ms, limits = activity.scheduled_at_ms, activity.started_at_ms, activity.timeouts
    deadlines = {
        name: iso(from_ms + limit_ms)
        for name, from_ms, limit_ms in (
            ("schedule_to_start", scheduled_ms, limits.schedule_to_start_ms),
            ("start_to_close", started_ms, limits.start_to_close_ms),
            ("schedule_to_close", scheduled_ms, limits.schedule_to_close_ms),
            ("heartbeat", activity.heartbeat_at_ms or started_ms, limits.heartbeat_ms),
        )
        if from_ms is not None and limit_ms is not None
    }
    weight = run.weight_milli / 1000
    if activity.extra != NOTHING_ELSE:
        weight = extra(activity.extra).get(FAIRNESS_WEIGHT, weight)
    last_heartbeat = json.loads(activity.heartbeat_details) if activity.heartbeat_details else {}
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
        "deadlines": deadlines,
        **priority(task.level),
        "fairness_key": task.key or None,
        "fairness_weight": weight,
        "cost_estimate": task.cost,
        "must_start": bool(task.claimed),
        "workflow_type": run.workflow_type,
        "scheduled_at": iso(scheduled_ms),
        "started_at": None if started_ms is None else iso(started_ms),
        "heartbeat_details": last_heartbeat.get("details"),
    }
