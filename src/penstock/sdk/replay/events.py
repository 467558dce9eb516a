"""Events of a history as replay sees them: what came in from outside, and what the code itself had asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.sdk.replay.steps import Command, Kind

MARKER = "WorkflowTaskCompleted"
STARTED = "WorkflowStarted"
SIGNAL = "SignalReceived"
UPDATE = "UpdateAccepted"
CANCEL = "CancelRequested"
ENDS_OF_STEPS = frozenset(
    {
        "ActivityCompleted",
        "ActivityFailed",
        "ActivityTimedOut",
        "ActivityCancelled",
        "TimerFired",
        "ChildRunCompleted",
        "ChildRunFailed",
        "ChildRunCancelled",
        "ChildRunTerminated",
        "ExternalRequestDelivered",
        "ExternalRequestFailed",
    }
)
HEARD = frozenset({SIGNAL, UPDATE})
_ASKED = {
    "ActivityScheduled": Kind.ACTIVITY,
    "TimerScheduled": Kind.TIMER,
    "ChildWorkflowScheduled": Kind.CHILD,
    "VersionMarkerRecorded": Kind.VERSION_MARKER,
    "SearchAttributesUpserted": Kind.SEARCH_ATTRIBUTES,
    "MemoUpserted": Kind.MEMO,
    "StepCancelRequested": Kind.CANCEL_STEP,
    "WorkflowCompleted": Kind.COMPLETE,
    "WorkflowFailed": Kind.FAIL,
    "WorkflowCancelled": Kind.CANCEL,
    "WorkflowContinuedAsNew": Kind.CONTINUE,
}
_NAMES = ("activity_type", "child_workflow_type", "change_id", "signal_name", "workflow_id", "update_name")


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history, read from the wire."""

    sequence: int
    type: str
    payload: Mapping[str, Any]
    recorded_at: str

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> Event:
        return cls(
            int(line["sequence"]),
            str(line.get("event_type") or line.get("type")),
            line.get("payload") or {},
            str(line.get("recorded_at") or line.get("timestamp") or ""),
        )

    @property
    def step(self) -> int | None:
        step = self.payload.get("sequence")
        return step if isinstance(step, int) else None

    @property
    def is_local(self) -> bool:
        return self.payload.get("execution_mode") == "local"

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.recorded_at)

    @property
    def asked(self) -> Kind | None:
        """The kind of command that this event records; None: it came from outside."""
        if self.type == "ActivityScheduled" and self.is_local:
            return Kind.LOCAL_ACTIVITY
        if self.type == "ExternalRequestInitiated":
            return Kind.SIGNAL_EXTERNAL if self.payload.get("kind") == "signal" else Kind.CANCEL_EXTERNAL
        if self.type == "UpdateCompleted":
            return Kind.COMPLETE_UPDATE if "result" in self.payload else Kind.FAIL_UPDATE
        return _ASKED.get(self.type)

    @property
    def is_local_end(self) -> bool:
        return self.is_local and self.type in ENDS_OF_STEPS

    def in_words(self) -> str:
        named = next((self.payload[name] for name in _NAMES if self.payload.get(name)), None)
        return f"{self.type} {named!r}" if named else self.type


def is_of(event: Event, command: Command) -> bool:
    """Whether an event records a command: the same kind, about the same thing."""
    if event.asked is not command.kind:
        return False
    if any(event.payload.get(name) != value for name, value in command.facts.items()):
        return False
    if command.target is not None:
        waits = bool(event.payload.get("wait")) == bool(command.body.get("wait"))
        return waits and event.payload.get("step_sequence") == command.target.step
    return True


def comes_in(event: Event) -> bool:
    """Whether an event tells the code something."""
    return event.type in HEARD or event.type == CANCEL or (event.type in ENDS_OF_STEPS and not event.is_local)


def may_be_missing(event: Event) -> bool:
    """A marker of a patch that was declared old: code from which the declaration is gone, too, passes over it."""
    return event.type == "VersionMarkerRecorded" and event.payload.get("version") == DEPRECATED


PATCHED, DEPRECATED = 1, 2
"""Versions of a marker: the new code is taken; it is the only one."""
