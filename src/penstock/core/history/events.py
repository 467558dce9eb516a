"""What happened: the types of events, and how they take their place in a history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from penstock.core.model import Event, RecordedEvent, Run

CODEC = "avro"


class EventType(StrEnum):
    WORKFLOW_STARTED = "WorkflowStarted"
    WORKFLOW_COMPLETED = "WorkflowCompleted"
    WORKFLOW_FAILED = "WorkflowFailed"
    WORKFLOW_CANCELLED = "WorkflowCancelled"
    WORKFLOW_TERMINATED = "WorkflowTerminated"
    WORKFLOW_TIMED_OUT = "WorkflowTimedOut"
    CANCEL_REQUESTED = "CancelRequested"
    TERMINATE_REQUESTED = "TerminateRequested"
    ACTIVITY_SCHEDULED = "ActivityScheduled"
    ACTIVITY_RETRY_SCHEDULED = "ActivityRetryScheduled"
    ACTIVITY_COMPLETED = "ActivityCompleted"
    ACTIVITY_FAILED = "ActivityFailed"
    ACTIVITY_TIMED_OUT = "ActivityTimedOut"
    ACTIVITY_CANCELLED = "ActivityCancelled"
    TIMER_SCHEDULED = "TimerScheduled"
    TIMER_FIRED = "TimerFired"
    TIMER_CANCELLED = "TimerCancelled"


CLOSING = (
    EventType.WORKFLOW_COMPLETED,
    EventType.WORKFLOW_FAILED,
    EventType.WORKFLOW_CANCELLED,
    EventType.WORKFLOW_TERMINATED,
    EventType.WORKFLOW_TIMED_OUT,
)


def recorded(
    run: Run, events: Sequence[Event], now_ms: int, task_id: str | None = None
) -> tuple[Run, list[RecordedEvent]]:
    """Give events the next places of the run's history: dense, from 1, `history-only-grows`."""
    lines = [
        RecordedEvent(run.run_id, run.last_sequence + offset, event.type, _text(event), now_ms, task_id)
        for offset, event in enumerate(events, 1)
    ]
    return replace(run, last_sequence=run.last_sequence + len(lines), last_progress_at_ms=now_ms), lines


def _text(event: Event) -> str:
    return json.dumps(event.payload, ensure_ascii=False, separators=(",", ":"))
