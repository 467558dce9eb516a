"""Event payloads: the fields that all events of a step repeat, and those of a run's first event."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from penstock.core import json_text, payload_codec
from penstock.core.attribution import Caller, caused_by
from penstock.core.history.events import CODEC, EventType
from penstock.core.model import (
    NO_LINEAGE,
    UNKEYED,
    WEIGHT_DEFAULT_MILLI,
    Activity,
    ActivityTimeouts,
    Blob,
    ChildRun,
    Lineage,
    NewEvent,
    RetrySchedule,
    Run,
    Timer,
    Update,
)
from penstock.core.priority_levels import LEVEL_DEFAULT, PRIORITY_KEYS
from penstock.core.timestamps import iso, iso_or_none
from penstock.core.waits import ConditionWait, SignalWait

CONDITION_TIMEOUT = "condition_timeout"
SIGNAL_TIMEOUT = "signal_timeout"
FAIRNESS_WEIGHT = "fairness_weight"
NOTHING_ELSE = "{}"
"""The stored text of empty extra fields."""
NO_CLOCKS = ActivityTimeouts()


def started(run: Run, caller: Caller | None = None) -> NewEvent:
    """The first event of every history. Input is added when it is read."""
    payload: dict[str, Any] = {
        "workflow_id": run.workflow_id,
        "workflow_instance_id": run.workflow_id,
        "workflow_run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "business_key": run.business_key,
        "task_queue": run.task_queue,
        "payload_codec": CODEC,
        "execution_timeout_seconds": run.execution_timeout_s,
        "run_timeout_seconds": run.run_timeout_s,
        "execution_deadline_at": iso_or_none(run.execution_deadline_at_ms),
        "run_deadline_at": iso_or_none(run.run_deadline_at_ms),
    }
    if run.memo != "{}":
        payload["memo"] = json_text.read(run.memo)
    if run.search_attributes != "{}":
        payload["search_attributes"] = json_text.read(run.search_attributes)
    if run.level != LEVEL_DEFAULT:
        payload |= {"priority": run.level, "priority_key": PRIORITY_KEYS[run.level]}
    if run.key != UNKEYED:
        payload["fairness_key"] = run.key
    if run.weight_milli != WEIGHT_DEFAULT_MILLI:
        payload[FAIRNESS_WEIGHT] = run.weight_milli / 1000
    if run.lineage != NO_LINEAGE:
        payload |= _origin(run.lineage)
    return NewEvent(EventType.WORKFLOW_STARTED, payload | caused_by(caller))


def _origin(origin: Lineage) -> dict[str, Any]:
    """The lineage fields of a run that was not started by a caller."""
    payload: dict[str, Any] = {}
    if origin.is_child:
        payload |= {
            "parent_workflow_instance_id": origin.parent_workflow_id,
            "parent_workflow_run_id": origin.parent_run_id,
            "parent_sequence": origin.parent_step,
        }
    if origin.first_run_id is not None:
        payload["first_execution_run_id"] = origin.first_run_id
    if origin.continued_from is not None:
        payload["continued_from_run_id"] = origin.continued_from
    if origin.retried_from is not None:
        payload |= {"retried_from_run_id": origin.retried_from, "retry_attempt": origin.attempt}
    if origin.copies:
        payload["copied_history"] = [[last, run_id] for last, run_id in origin.copies]
    return payload


def activity_payload(activity: Activity) -> dict[str, Any]:
    """The fields of all events of an activity."""
    payload = {
        "activity_execution_id": activity.activity_id,
        "activity_type": activity.activity_type,
        "sequence": activity.step,
        "activity": {
            "id": activity.activity_id,
            "type": activity.activity_type,
            "attempt_count": activity.attempt,
            "retry_policy": retry_snapshot(activity.retry, activity.timeouts),
        },
    }
    return payload if activity.extra == NOTHING_ELSE else payload | extra(activity.extra)


def timer_payload(timer: Timer) -> dict[str, Any]:
    return {
        "timer_id": timer.timer_id,
        "sequence": timer.step,
        "delay_seconds": timer.delay_s,
        "fire_at": iso(timer.fire_at_ms),
    } | extra(timer.extra)


def child_payload(child: ChildRun) -> dict[str, Any]:
    """The fields of all events of a child, which is identified by its first run throughout."""
    return {
        "sequence": child.step,
        "child_workflow_type": child.workflow_type,
        "workflow_type": child.workflow_type,
        "child_workflow_instance_id": child.workflow_id,
        "child_workflow_run_id": child.run_id,
        "child_call_id": f"{child.parent_run_id}-c{child.step}",
        "parent_close_policy": child.policy.value,
    } | extra(child.extra)


def wait_payload(wait: ConditionWait) -> dict[str, Any]:
    return {
        "condition_wait_id": wait.id,
        "sequence": wait.step,
        "condition_key": wait.key,
        "condition_definition_fingerprint": wait.fingerprint,
    }


def signal_wait_payload(wait: SignalWait) -> dict[str, Any]:
    return {"signal_wait_id": wait.id, "sequence": wait.step, "signal_name": wait.name}


def signal_timer_payload(wait: SignalWait) -> dict[str, Any]:
    """The fields of the timer events of a wait for one signal."""
    assert wait.fire_at_ms is not None
    return {
        "timer_id": wait.timer_id,
        "sequence": wait.step,
        "delay_seconds": wait.delay_s,
        "fire_at": iso(wait.fire_at_ms),
        "timer_kind": SIGNAL_TIMEOUT,
        "signal_wait_id": wait.id,
        "signal_name": wait.name,
    }


def signal_applied(wait: SignalWait, received: Mapping[str, Any]) -> NewEvent:
    """The event of a signal that ends a wait: its only argument is the value, or the list of several."""
    payload = signal_wait_payload(wait) | {
        "signal_id": received.get("signal_id"),
        "workflow_command_id": received.get("workflow_command_id"),
        "value": _single(received["arguments"]),
        "arguments": received["arguments"],
        "payload_codec": CODEC,
    }
    return NewEvent(EventType.SIGNAL_APPLIED, payload)


def _single(arguments: Blob) -> Blob:
    values = payload_codec.decode(arguments)
    if not isinstance(values, list) or len(values) > 1:
        return arguments
    return payload_codec.encode(values[0] if values else None)


def wait_timer_payload(wait: ConditionWait) -> dict[str, Any]:
    """The fields of the timer events of a condition wait."""
    assert wait.fire_at_ms is not None
    return {
        "timer_id": wait.timer_id,
        "sequence": wait.step,
        "delay_seconds": wait.delay_s,
        "fire_at": iso(wait.fire_at_ms),
        "timer_kind": CONDITION_TIMEOUT,
        "condition_wait_id": wait.id,
    }


def update_payload(update: Update) -> dict[str, Any]:
    return {
        "update_id": update.update_id,
        "update_name": update.name,
        "workflow_command_id": update.update_id,
    }


def update_accepted(update: Update, caller: Caller | None = None) -> NewEvent:
    payload = update_payload(update) | {"arguments": update.arguments, "payload_codec": CODEC}
    return NewEvent(EventType.UPDATE_ACCEPTED, payload | caused_by(caller))


@lru_cache(maxsize=256)
def retry_snapshot(retry: RetrySchedule, timeouts: ActivityTimeouts) -> dict[str, Any]:
    """The retry policy as it is delivered with a task; shared by all tasks with this policy, so never changed."""
    snapshot = {
        "snapshot_version": 1,
        "max_attempts": retry.max_attempts,
        "backoff_seconds": list(retry.backoff_s),
        "non_retryable_error_types": list(retry.non_retryable_error_types),
        "start_to_close_timeout": _seconds(timeouts.start_to_close_ms),
        "schedule_to_start_timeout": _seconds(timeouts.schedule_to_start_ms),
        "schedule_to_close_timeout": _seconds(timeouts.schedule_to_close_ms),
        "heartbeat_timeout": _seconds(timeouts.heartbeat_ms),
    }
    if retry.backoff_ms:
        snapshot |= pauses(retry)
    if timeouts != NO_CLOCKS:
        snapshot |= _finer(timeouts)
    return snapshot


def pauses(retry: RetrySchedule) -> dict[str, Any]:
    """The pauses in milliseconds, if the policy has them."""
    return {"backoff_ms": list(retry.backoff_ms)} if retry.backoff_ms else {}


def _finer(timeouts: ActivityTimeouts) -> dict[str, int]:
    """Timeouts that are not whole seconds, in milliseconds."""
    clocks = {
        "start_to_close_timeout_ms": timeouts.start_to_close_ms,
        "schedule_to_start_timeout_ms": timeouts.schedule_to_start_ms,
        "schedule_to_close_timeout_ms": timeouts.schedule_to_close_ms,
        "heartbeat_timeout_ms": timeouts.heartbeat_ms,
    }
    return {name: value for name, value in clocks.items() if value is not None and value % 1000}


def extra(text: str) -> dict[str, Any]:
    """Decode the extra fields of a command."""
    return dict(json_text.read(text)) if text != NOTHING_ELSE else {}


def _seconds(value_ms: int | None) -> int | None:
    """Whole seconds, rounded up."""
    return None if value_ms is None else -(-value_ms // 1000)
