"""The summary in a history export, computed from the run's events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.attribution import PRINCIPAL
from penstock.core.audit.trail import (
    ACTIVITY_STARTED,
    FAILURE_HANDLED,
    SIGNAL_APPLIED,
    START_ACCEPTED,
    DerivedEvent,
)
from penstock.core.model import RecordedEvent, Run, RunId
from penstock.core.timestamps import iso

MESSAGE_CHARS_MAX: Final = 1_000
CAUSES_MAX: Final = 10
STACK_CHARS_MAX: Final = 16_000
"""For the stack traces of an exception and all its causes together."""
Facts = dict[str, Any]

_ACTIVITY_ENDS: Final = {
    "ActivityCompleted": "completed",
    "ActivityFailed": "failed",
    "ActivityTimedOut": "timed_out",
    "ActivityCancelled": "cancelled",
}
_TIMER_ENDS: Final = {"TimerFired": "fired", "TimerCancelled": "cancelled"}
_CHILD_ENDS: Final = {
    "ChildRunCompleted": "completed",
    "ChildRunFailed": "failed",
    "ChildRunCancelled": "cancelled",
    "ChildRunTerminated": "terminated",
}
FAILURES: Final = {
    "ActivityFailed": "activity",
    "ActivityTimedOut": "activity",
    "ChildRunFailed": "child_workflow",
    "WorkflowFailed": "workflow",
    "WorkflowTimedOut": "workflow",
}
"""Failure events, with what failed."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A self-contained snapshot of a run for export."""

    run: Run
    current_run_id: RunId
    run_count: int
    exported_at_ms: int
    outline: Outline


@dataclass(slots=True)
class Outline:
    """A summary of a run's events: one entry per activity, timer, child, update and command."""

    types: Counter[str] = field(default_factory=Counter)
    activities: dict[str, Facts] = field(default_factory=dict)
    timers: dict[str, Facts] = field(default_factory=dict)
    children: dict[str, Facts] = field(default_factory=dict)
    updates: dict[str, Facts] = field(default_factory=dict)
    commands: dict[str, Facts] = field(default_factory=dict)
    tasks: dict[str, Facts] = field(default_factory=dict)
    signals: list[Facts] = field(default_factory=list)
    failures: list[Facts] = field(default_factory=list)
    derived: list[DerivedEvent] = field(default_factory=list)
    """The audit trail: events that follow from the recorded ones."""
    _unhandled: dict[str, Facts] = field(default_factory=dict)

    def add(self, event: RecordedEvent) -> None:
        """Add the next event."""
        payload: Facts = json.loads(event.payload)
        at = iso(event.recorded_at_ms)
        self.types[event.type] += 1
        self._task(event, at)
        self._command(event, payload, at)
        if event.type.startswith("Activity"):
            self._activity(event.type, payload, at)
        elif event.type.startswith("Timer"):
            self._timer(event.type, payload, at)
        elif event.type.startswith("Child"):
            self._child(event.type, payload, at)
        elif event.type.startswith("Update"):
            self._update(event.type, payload, at)
        elif event.type.startswith("Signal"):
            self._signal(event, payload, at)
        elif event.type == "StepCancelRequested" and not payload.get("wait"):
            self._give_up(payload.get("step_sequence"), at)
        if event.type in FAILURES:
            self.failures.append(failure(event, payload))
            self._unhandled[self.failures[-1]["failure_id"]] = self.failures[-1]

    def add_derived(self, event: DerivedEvent) -> None:
        """Add an event of the audit trail, before the recorded event that it stands before."""
        self.derived.append(event)
        named = event.payload.get("workflow_command_id")
        if event.type == ACTIVITY_STARTED:
            self._activity(event.type, event.payload, event.at)
        elif event.type == SIGNAL_APPLIED:
            for signal in reversed(self.signals):
                if signal["applied_at"] is not None:
                    break  # signals are applied in order
                signal["applied_at"] = event.at
        elif event.type == FAILURE_HANDLED:
            self._unhandled.pop(event.payload["failure_id"], {})["handled"] = True
        elif event.type == START_ACCEPTED and isinstance(named, str):
            self._name_command(named, event.type, event.at, event.sequence, event.principal)
        elif isinstance(named, str):
            fact = {"id": named, "type": event.type, "status": "accepted", "accepted_at": event.at}
            self.commands.setdefault(named, fact | {"principal": event.principal})

    def _signal(self, event: RecordedEvent, payload: Facts, at: str) -> None:
        """A received signal, or one that ended a wait."""
        if event.type == "SignalReceived":
            self.signals.append(_signal(event, payload, at))
        elif event.type == SIGNAL_APPLIED:
            for signal in self.signals:
                if signal["id"] == payload.get("signal_id"):
                    signal["applied_at"] = at

    def _task(self, event: RecordedEvent, at: str) -> None:
        if event.task_id is None:
            return
        known = self.tasks.setdefault(
            event.task_id,
            {"id": event.task_id, "type": "workflow", "first_event": event.sequence, "completed_at": at},
        )
        known["last_event"] = event.sequence

    def _command(self, event: RecordedEvent, payload: Facts, at: str) -> None:
        named = payload.get("workflow_command_id")
        if isinstance(named, str) and named:
            self._name_command(named, event.type, at, event.sequence, payload.get(PRINCIPAL))

    def _name_command(self, named: str, kind: str, at: str, sequence: int, principal: object) -> None:
        fact = {"id": named, "type": kind, "status": "applied", "applied_at": at, "sequence": sequence}
        self.commands.setdefault(named, fact | {"principal": principal})

    def _activity(self, kind: str, payload: Facts, at: str) -> None:
        fact = _known(self.activities, payload.get("activity_execution_id"))
        _keep(fact, payload, "sequence", "activity_type")
        if kind == "ActivityScheduled":
            fact |= {"status": "pending", "attempt_count": 0, "scheduled_at": at, "closed_at": None}
        elif kind == "ActivityStarted":
            fact |= {"status": "running", "started_at": at}
        elif kind in _ACTIVITY_ENDS:
            fact |= {"status": _ACTIVITY_ENDS[kind], "closed_at": at}
        if isinstance(payload.get("attempt_number"), int):
            fact["attempt_count"] = payload["attempt_number"]

    def _timer(self, kind: str, payload: Facts, at: str) -> None:
        fact = _known(self.timers, payload.get("timer_id"))
        _keep(fact, payload, "sequence", "delay_seconds", "fire_at", "timer_kind")
        if kind == "TimerScheduled":
            fact |= {"status": "open", "scheduled_at": at, "closed_at": None}
        elif kind in _TIMER_ENDS:
            fact |= {"status": _TIMER_ENDS[kind], "closed_at": at}

    def _child(self, kind: str, payload: Facts, at: str) -> None:
        fact = _known(self.children, payload.get("sequence"))
        _keep(fact, payload, "sequence", "child_workflow_type", "child_workflow_instance_id")
        _keep(fact, payload, "child_workflow_run_id", "parent_close_policy")
        if kind == "ChildWorkflowScheduled":
            fact |= {"status": "open", "scheduled_at": at, "closed_at": None}
        elif kind in _CHILD_ENDS:
            fact |= {"status": _CHILD_ENDS[kind], "closed_at": at}

    def _give_up(self, step: object, at: str) -> None:
        """Mark a step that the code cancelled."""
        for facts in (self.activities, self.timers, self.children):
            for fact in facts.values():
                if fact.get("sequence") == step and fact.get("closed_at") is None:
                    fact |= {"status": "cancelled", "closed_at": at}

    def _update(self, kind: str, payload: Facts, at: str) -> None:
        fact = _known(self.updates, payload.get("update_id"))
        _keep(fact, payload, "update_name")
        if kind == "UpdateAccepted":
            fact |= {"status": "accepted", "accepted_at": at, "closed_at": None}
        elif kind == "UpdateCompleted":
            fact |= {"status": "completed" if "result" in payload else "failed", "closed_at": at}


def failure(event: RecordedEvent, payload: Mapping[str, Any]) -> Facts:
    """The failure of an event, shortened for a list."""
    kind = FAILURES[event.type]
    source = {
        "activity": payload.get("activity_execution_id"),
        "child_workflow": payload.get("child_workflow_run_id"),
        "workflow": event.run_id,
    }[kind]
    message = payload.get("message") or payload.get("reason")
    return {
        "failure_id": payload.get("failure_id") or event.id,
        "sequence": event.sequence,
        "source_kind": kind,
        "source_id": source,
        "propagation_kind": "terminal" if kind == "workflow" else kind,
        "failure_category": payload.get("failure_category") or kind,
        "exception_type": payload.get("exception_type"),
        "exception_class": payload.get("exception_class"),
        "message": None if message is None else str(message)[:MESSAGE_CHARS_MAX],
        "non_retryable": payload.get("non_retryable") is True,
        "handled": False,
        "created_at": iso(event.recorded_at_ms),
    }


def exception(payload: Mapping[str, Any]) -> Facts | None:
    """The exception of a failure event with its stack trace and causes, bounded in size.

    Details are omitted: they are payloads, and may be large.
    """
    described = payload.get("exception")
    return _exception(described, CAUSES_MAX, STACK_CHARS_MAX) if isinstance(described, Mapping) else None


def _exception(described: Mapping[str, Any], causes_left: int, chars_left: int) -> Facts:
    message, stack, cause = described.get("message"), described.get("stack_trace"), described.get("cause")
    fact: Facts = {"type": described.get("type"), "class": described.get("class")}
    fact["message"] = None if message is None else str(message)[:MESSAGE_CHARS_MAX]
    if isinstance(stack, str) and stack and chars_left > 0:
        fact["stack_trace"] = stack if len(stack) <= chars_left else f"…{stack[1 - chars_left :]}"
        chars_left -= len(fact["stack_trace"])
    if isinstance(cause, Mapping) and causes_left > 1:
        fact["cause"] = _exception(cause, causes_left - 1, chars_left)
    return fact


def _signal(event: RecordedEvent, payload: Facts, at: str) -> Facts:
    return {
        "id": payload.get("signal_id") or event.id,
        "name": payload.get("signal_name"),
        "history_event_id": event.id,
        "workflow_command_id": payload.get("workflow_command_id"),
        "received_at": at,
        "applied_at": None,
        "principal": payload.get(PRINCIPAL),
    }


def _known(facts: dict[str, Facts], name: object) -> Facts:
    """The entry of that name, created on first use."""
    return facts.setdefault(str(name), {"id": str(name)})


def _keep(fact: Facts, payload: Facts, *names: str) -> None:
    fact |= {name: payload[name] for name in names if payload.get(name) is not None}
