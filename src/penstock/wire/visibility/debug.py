"""The debug view of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import asdict

from penstock.core.last_error import split_error
from penstock.core.model import Activity, RecordedEvent, Run, Task, TaskState, Timer
from penstock.core.timestamps import iso, iso_or_none
from penstock.wire.activities.progress import last_heartbeat, summary

Body = dict[str, Any]
PREVIEW_BYTES_MAX: Final = 4_096
KEYS_SHOWN: Final = 20

_STATES: Final = {TaskState.READY: "ready", TaskState.DELAYED: "delayed", TaskState.LEASED: "leased"}


def execution(run: Run, status: str, facts: Mapping[str, Any]) -> Body:
    """The run itself; `facts` are added to it."""
    return {
        "status": status,
        "status_bucket": run.status.bucket,
        "is_terminal": run.status.is_terminal,
        "closed_reason": run.closed_reason,
        "workflow_type": run.workflow_type,
        "task_queue": run.task_queue,
        "compatibility": run.compatibility,
        "run_number": run.run_number,
        "started_at": iso(run.started_at_ms),
        "closed_at": iso_or_none(run.closed_at_ms),
        "archived_at": iso_or_none(run.archived_at_ms),
        "last_progress_at": iso(run.last_progress_at_ms),
        "history_length": run.last_sequence,
        "buffered_events": run.buffered,
        "task_problem": run.task_failures > 0,
        "task_problem_badge": _badge(run),
        "workflow_task_failures": run.task_failures,
        "last_workflow_task_error": split_error(run.task_error)[0],
        "last_workflow_task_stack_trace": split_error(run.task_error)[1],
        **facts,
    }


def _badge(run: Run) -> Body | None:
    if not run.task_failures:
        return None
    return {"code": "workflow_task_failing", "label": f"failed {run.task_failures} times in a row"}


def last_event(event: RecordedEvent | None, *, with_payload: bool) -> Body | None:
    if event is None:
        return None
    size = len(event.payload.encode())
    value = json.loads(event.payload)
    keys = sorted(value)
    return {
        "sequence": event.sequence,
        "event_type": event.type,
        "timestamp": iso(event.recorded_at_ms),
        "payload_summary": {
            "included": with_payload,
            "encoding": "json",
            "size_bytes": size,
            "top_level_type": "object",
            "top_level_key_count": len(keys),
            "top_level_keys": keys[:KEYS_SHOWN],
            "top_level_keys_truncated": len(keys) > KEYS_SHOWN,
            "preview_max_bytes": PREVIEW_BYTES_MAX,
        },
        "payload_preview": _preview(event.payload) if with_payload else None,
    }


def _preview(payload: str) -> str:
    return payload.encode()[:PREVIEW_BYTES_MAX].decode(errors="ignore")


def workflow_task(task: Task, run: Run, now_ms: int) -> Body:
    blocked = None if run.blocked is None else asdict(run.blocked)
    error, stack = split_error(task.last_error)
    return {
        "task_id": task.task_id,
        "task_type": task.kind.value,
        "status": _STATES.get(task.state, task.state.value),
        "transport_state": _STATES.get(task.state, task.state.value),
        "summary": _summary(task, now_ms),
        "queue": task.task_queue,
        "compatibility": task.compatibility,
        "available_at": iso(task.available_at_ms),
        "leased_at": iso_or_none(task.leased_at_ms),
        "lease_owner": task.lease_owner,
        "lease_expires_at": iso_or_none(task.lease_expires_at_ms),
        "lease_expired": _is_expired(task, now_ms),
        "attempt_count": task.attempt,
        "repair_count": 0,
        "last_error": error,
        "stack_trace": stack,
        "workflow_wait_kind": "update" if task.update_id else None,
        "workflow_open_wait_id": None,
        "workflow_resume_source_kind": "update" if task.update_id else None,
        "workflow_resume_source_id": task.update_id,
        "replay_blocked": blocked is not None,
        "replay_blocked_reason": None if blocked is None else blocked.get("reason"),
        "task_missing": False,
    }


def _summary(task: Task, now_ms: int) -> str:
    match task.state:
        case TaskState.LEASED:
            return f"Held by {task.lease_owner}" + (", lease expired" if _is_expired(task, now_ms) else "")
        case TaskState.DELAYED:
            return f"Delayed until {iso(task.available_at_ms)}"
        case _:
            return "Waiting for a worker"


def _is_expired(task: Task, now_ms: int) -> bool:
    return task.lease_expires_at_ms is not None and task.lease_expires_at_ms <= now_ms


def activity(each: Activity, task: Task | None, now_ms: int) -> Body:
    limits = each.timeouts
    begun_ms = each.heartbeat_at_ms or each.started_at_ms
    error, stack = split_error(None if task is None else task.last_error)
    return {
        "activity_execution_id": each.activity_id,
        "activity_type": each.activity_type,
        "activity_class": each.activity_type,
        "summary": summary(each),
        "sequence": each.step,
        "status": each.status.value,
        "queue": each.task_queue,
        "attempt_count": each.attempt,
        "worker_deaths": each.worker_deaths,
        "current_attempt_id": None if task is None else task.lease_token,
        "scheduled_at": iso(each.scheduled_at_ms),
        "started_at": iso_or_none(each.started_at_ms),
        "last_heartbeat_at": iso_or_none(each.heartbeat_at_ms),
        "last_heartbeat": last_heartbeat(each),
        "schedule_deadline_at": _deadline(each.scheduled_at_ms, limits.schedule_to_start_ms),
        "close_deadline_at": _deadline(each.started_at_ms, limits.start_to_close_ms),
        "schedule_to_close_deadline_at": _deadline(each.scheduled_at_ms, limits.schedule_to_close_ms),
        "heartbeat_deadline_at": _deadline(begun_ms, limits.heartbeat_ms),
        "next_attempt_at": iso(task.available_at_ms) if task and task.state is TaskState.DELAYED else None,
        "last_error": error,
        "stack_trace": stack,
        "current_attempt": _attempt(each, task, now_ms),
    }


def timer(each: Timer) -> Body:
    fields = json.loads(each.extra)
    return {
        "timer_id": each.timer_id,
        "sequence": each.step,
        "delay_seconds": each.delay_s,
        "fire_at": iso(each.fire_at_ms),
        "timer_kind": fields.get("timer_kind"),
    }


def waits(run: Run) -> list[Body]:
    """What the code of an open run waits for, apart from activities, timers and children."""
    condition, signal = run.waits.condition, run.waits.signal
    found: list[Body] = []
    if condition is not None:
        found.append({"kind": "condition", "id": condition.id, "target_name": condition.key})
    if signal is not None and not signal.applied:
        found.append({"kind": "signal", "id": signal.id, "target_name": signal.name})
    found += [{"kind": "message_stream", "id": name, "target_name": name} for name in run.waits.streams]
    return found


def _attempt(each: Activity, task: Task | None, now_ms: int) -> Body | None:
    if task is None or task.state is not TaskState.LEASED:
        return None
    return {
        "activity_attempt_id": task.lease_token,
        "attempt_number": task.attempt,
        "status": "running",
        "lease_owner": task.lease_owner,
        "started_at": iso_or_none(task.leased_at_ms),
        "last_heartbeat_at": iso_or_none(each.heartbeat_at_ms),
        "lease_expires_at": iso_or_none(task.lease_expires_at_ms),
        "lease_expired": _is_expired(task, now_ms),
        "closed_at": None,
    }


def _deadline(from_ms: int | None, limit_ms: int | None) -> str | None:
    return None if from_ms is None or limit_ms is None else iso(from_ms + limit_ms)
