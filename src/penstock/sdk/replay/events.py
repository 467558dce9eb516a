"""History events as replay sees them: external inputs, and records of the code's own commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.sdk.replay.commands import Command, CommandKind

MARKER = "WorkflowTaskCompleted"
STARTED = "WorkflowStarted"
SIGNAL = "SignalReceived"
UPDATE = "UpdateAccepted"
CANCEL = "CancelRequested"
STEP_OUTCOMES = frozenset(
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
MESSAGES = frozenset({SIGNAL, UPDATE})
_COMMAND_KINDS = {
    "ActivityScheduled": CommandKind.ACTIVITY,
    "TimerScheduled": CommandKind.TIMER,
    "ChildWorkflowScheduled": CommandKind.CHILD,
    "VersionMarkerRecorded": CommandKind.VERSION_MARKER,
    "SearchAttributesUpserted": CommandKind.SEARCH_ATTRIBUTES,
    "MemoUpserted": CommandKind.MEMO,
    "StepCancelRequested": CommandKind.CANCEL_STEP,
    "WorkflowCompleted": CommandKind.COMPLETE,
    "WorkflowFailed": CommandKind.FAIL,
    "WorkflowCancelled": CommandKind.CANCEL,
    "WorkflowContinuedAsNew": CommandKind.CONTINUE,
}
_NAMES = ("activity_type", "child_workflow_type", "change_id", "signal_name", "workflow_id", "update_name")


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One event of a history, read from the wire."""

    sequence: int
    type: str
    payload: Mapping[str, Any]
    recorded_at: str

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> HistoryEvent:
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
    def command_kind(self) -> CommandKind | None:
        """The type of the command that this event records; None for an external input."""
        if self.type == "ActivityScheduled" and self.is_local:
            return CommandKind.LOCAL_ACTIVITY
        if self.type == "ExternalRequestInitiated":
            return (
                CommandKind.SIGNAL_EXTERNAL
                if self.payload.get("kind") == "signal"
                else CommandKind.CANCEL_EXTERNAL
            )
        if self.type == "UpdateCompleted":
            return CommandKind.COMPLETE_UPDATE if "result" in self.payload else CommandKind.FAIL_UPDATE
        return _COMMAND_KINDS.get(self.type)

    @property
    def is_local_end(self) -> bool:
        return self.is_local and self.type in STEP_OUTCOMES

    def in_words(self) -> str:
        named = next((self.payload[name] for name in _NAMES if self.payload.get(name)), None)
        return f"{self.type} {named!r}" if named else self.type


def records_command(event: HistoryEvent, command: Command) -> bool:
    """Whether an event records a command: the same type, with the same facts."""
    if event.command_kind is not command.kind:
        return False
    if any(event.payload.get(name) != value for name, value in command.facts.items()):
        return False
    if command.target is not None:
        waits = bool(event.payload.get("wait")) == bool(command.body.get("wait"))
        return waits and event.payload.get("step_sequence") == command.target.step
    return True


def is_new_input(event: HistoryEvent) -> bool:
    """Whether an event is an external input to the code."""
    return (
        event.type in MESSAGES or event.type == CANCEL or (event.type in STEP_OUTCOMES and not event.is_local)
    )


def may_be_skipped(event: HistoryEvent) -> bool:
    """Whether it is the marker of a deprecated patch. Code without the `deprecate_patch` call skips it."""
    return event.type == "VersionMarkerRecorded" and event.payload.get("version") == DEPRECATED


PATCHED, DEPRECATED = 1, 2
"""Versions of a patch marker: patched, or deprecated."""
