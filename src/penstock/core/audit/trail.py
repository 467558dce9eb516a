"""The audit trail: events of the public contract that follow from the recorded ones, computed when a history is read.

Theory of operation
-------------------
A history records what replay needs, once. An auditor also asks when an attempt began, when the code saw a signal,
whether it handled a failure, who repaired or archived the run. Those facts are stored already: in the payload of the
event that ends an attempt, in the order of events and the workflow tasks that caused them, and in the retained
requests of operators. So no row is written for them. `AuditTrail` folds the recorded events, in order, into derived
ones, each placed directly before or behind a recorded event:

- `StartAccepted` before the `WorkflowStarted` of a run that a caller started;
- `ActivityStarted` before the event that ends an attempt, with the time at which the attempt began;
- `SignalApplied` before the first event of the workflow task whose code saw the signal. External events are buffered
  while a task is leased and recorded behind its events (`engine/runs/history_writer.py`), so the next task that
  records anything has seen all signals before it. In a run that waits for signals by name it is a recorded event;
- `FailureHandled` before the first event by which code went on after a step had failed, unless that event fails the
  run;
- `ParentClosePolicyApplied` behind the close of a run, for each child that was still open and is not abandoned;
- `RepairRequested`, `PauseRequested`, `ResumeRequested`, `RerunRequested`, `ResetRequested`, `ForkRequested`,
  `ArchiveRequested` and `WorkflowArchived`, and those of single activities, such as `ActivityPauseRequested`, behind
  the last event at the time of the command.

A derived event has no sequence number of its own: it repeats that of the recorded event it stands beside, so numbers
of recorded events, and the tokens of pages, are the same with and without the trail. Its id is unique and stable.

Rejected: rows for these events. They would be a third of a typical history, every worker would replay them, and an
`ActivityStarted` at the claim of a task would need the lock of its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from penstock.core import json_text
from penstock.core.attribution import PRINCIPAL
from penstock.core.history.events import CLOSING, MESSAGE_STREAM_SIGNAL, EventType
from penstock.core.model import ChildRun, ClosePolicy, RecordedEvent, Run
from penstock.core.timestamps import iso

Payload = dict[str, Any]

START_ACCEPTED: Final = "StartAccepted"
ACTIVITY_STARTED: Final = "ActivityStarted"
SIGNAL_APPLIED: Final = "SignalApplied"
FAILURE_HANDLED: Final = "FailureHandled"
PARENT_CLOSE_POLICY_APPLIED: Final = "ParentClosePolicyApplied"
REPAIR_REQUESTED: Final = "RepairRequested"
RERUN_REQUESTED: Final = "RerunRequested"
RESET_REQUESTED: Final = "ResetRequested"
FORK_REQUESTED: Final = "ForkRequested"
PAUSE_REQUESTED: Final = "PauseRequested"
RESUME_REQUESTED: Final = "ResumeRequested"
ACTIVITY_PAUSE_REQUESTED: Final = "ActivityPauseRequested"
ACTIVITY_RESUME_REQUESTED: Final = "ActivityResumeRequested"
ACTIVITY_RESET_REQUESTED: Final = "ActivityResetRequested"
ACTIVITY_UPDATE_REQUESTED: Final = "ActivityUpdateRequested"
ACTIVITY_RUN_REQUESTED: Final = "ActivityRunRequested"
ARCHIVE_REQUESTED: Final = "ArchiveRequested"
WORKFLOW_ARCHIVED: Final = "WorkflowArchived"
DERIVED_TYPES: Final = (
    START_ACCEPTED,
    ACTIVITY_STARTED,
    SIGNAL_APPLIED,
    FAILURE_HANDLED,
    PARENT_CLOSE_POLICY_APPLIED,
    REPAIR_REQUESTED,
    RERUN_REQUESTED,
    RESET_REQUESTED,
    FORK_REQUESTED,
    PAUSE_REQUESTED,
    RESUME_REQUESTED,
    ACTIVITY_PAUSE_REQUESTED,
    ACTIVITY_RESUME_REQUESTED,
    ACTIVITY_RESET_REQUESTED,
    ACTIVITY_UPDATE_REQUESTED,
    ACTIVITY_RUN_REQUESTED,
    ARCHIVE_REQUESTED,
    WORKFLOW_ARCHIVED,
)
_REQUESTED: Final = {
    "rerun": RERUN_REQUESTED,
    "reset": RESET_REQUESTED,
    "fork": FORK_REQUESTED,
    "pause": PAUSE_REQUESTED,
    "resume": RESUME_REQUESTED,
    "pause_activity": ACTIVITY_PAUSE_REQUESTED,
    "resume_activity": ACTIVITY_RESUME_REQUESTED,
    "reset_activity": ACTIVITY_RESET_REQUESTED,
    "update_activity": ACTIVITY_UPDATE_REQUESTED,
    "run_activity": ACTIVITY_RUN_REQUESTED,
}
_ATTEMPT_ENDS: Final = frozenset(
    {
        EventType.ACTIVITY_COMPLETED,
        EventType.ACTIVITY_FAILED,
        EventType.ACTIVITY_TIMED_OUT,
        EventType.ACTIVITY_RETRY_SCHEDULED,
    }
)
_STEP_FAILURES: Final = {
    EventType.ACTIVITY_FAILED: "activity",
    EventType.ACTIVITY_TIMED_OUT: "activity",
    EventType.CHILD_RUN_FAILED: "child_workflow",
    EventType.CHILD_RUN_CANCELLED: "child_workflow",
    EventType.CHILD_RUN_TERMINATED: "child_workflow",
}
CHILD_ENDS: Final = (
    EventType.CHILD_RUN_COMPLETED,
    EventType.CHILD_RUN_FAILED,
    EventType.CHILD_RUN_CANCELLED,
    EventType.CHILD_RUN_TERMINATED,
)
_PASSED_ON: Final = (EventType.WORKFLOW_FAILED, EventType.WORKFLOW_CANCELLED)
"""Events by which code ends its run because of a failure."""
_CLOSING: Final = frozenset(CLOSING)
_GROUPED: Final = "parallel_group_path"


class DerivedEvent(Struct, frozen=True):
    """An event that follows from recorded ones."""

    run_id: str
    sequence: int
    """The number of the recorded event that it stands beside."""
    place: int
    """Before that event if negative, behind it if positive; in ascending order."""
    type: str
    payload: Payload
    at: str
    """When it happened, in ISO 8601."""
    principal: Payload | None = None

    @property
    def id(self) -> str:
        side = "b" if self.place < 0 else "f"
        return f"{self.run_id}-{self.sequence}{side}{abs(self.place)}"


class RequestEvent(Struct, frozen=True):
    """The event of a request of a caller, without its arguments, which may be large."""

    sequence: int
    type: str
    at_ms: int
    command_id: str | None = None
    name: str | None = None
    """Of the signal or update."""
    reason: str | None = None
    principal: Payload | None = None


class OperatorCommand(Struct, frozen=True):
    """What an operator did to a run, as it was retained."""

    kind: str
    command_id: str
    at_ms: int
    after: int
    """The last event of the run at that time."""
    reason: str | None = None
    outcome: str | None = None
    principal: Payload | None = None
    target: str | None = None
    """The activity that it concerns."""


class AuditTrail:
    """Derives events from the recorded events of one run, which `add` takes in order, from the first or from
    `context` on: the events before the first one that count (`needs_context`).
    """

    def __init__(
        self, run: Run, context: Iterable[RecordedEvent] = (), *, takes_signals: bool = False
    ) -> None:
        """`takes_signals`: the code waits for signals by name, so that a recorded event says which one it took."""
        self._run = run
        self._takes_signals = takes_signals
        self._signals: list[tuple[RecordedEvent, Payload]] = []
        self._failures: list[tuple[RecordedEvent, Payload]] = []
        for event in context:
            self.add(event)

    def add(self, event: RecordedEvent) -> Sequence[DerivedEvent]:
        """The derived events that stand before a recorded one."""
        payload: Payload = json_text.read(event.payload)
        derived: list[tuple[str, Payload, str, Payload | None]] = []
        if event.task_id is not None:
            derived += self._seen(event)
        if event.type == EventType.WORKFLOW_STARTED and is_started_by_caller(payload):
            derived.append(self._start_accepted(event, payload))
        elif event.type in _ATTEMPT_ENDS and isinstance(payload.get("started_at"), str):
            derived.append((ACTIVITY_STARTED, _attempt(payload), payload["started_at"], None))
        elif event.type == EventType.SIGNAL_RECEIVED and self._is_applied_when_seen(payload):
            self._signals.append((event, payload))
        if event.type in _STEP_FAILURES:
            self._failures.append((event, payload))
        first = -len(derived)
        return [
            DerivedEvent(event.run_id, event.sequence, first + index, kind, body, at, principal)
            for index, (kind, body, at, principal) in enumerate(derived)
        ]

    def _is_applied_when_seen(self, payload: Payload) -> bool:
        """Whether it is a signal for a handler: not one for a wait, and not the delivery of a message."""
        return not self._takes_signals and payload.get("signal_name") != MESSAGE_STREAM_SIGNAL

    def _seen(self, event: RecordedEvent) -> list[tuple[str, Payload, str, Payload | None]]:
        """What the workflow task of an event had seen: signals, and failures unless it passes them on."""
        at = iso(event.recorded_at_ms)
        derived: list[tuple[str, Payload, str, Payload | None]] = [
            (SIGNAL_APPLIED, _applied(payload), at, None) for _, payload in self._signals
        ]
        self._signals = []
        if event.type == EventType.WORKFLOW_TASK_COMPLETED:
            return derived  # its next event tells what became of the failures
        if event.type not in _PASSED_ON:
            derived += [(FAILURE_HANDLED, _handled(*each), at, None) for each in self._failures]
        self._failures = []
        return derived

    def _start_accepted(
        self, event: RecordedEvent, payload: Payload
    ) -> tuple[str, Payload, str, Payload | None]:
        run = self._run
        body = {
            "workflow_command_id": start_command_id(run.run_id),
            "workflow_instance_id": run.workflow_id,
            "workflow_run_id": run.run_id,
            "workflow_type": run.workflow_type,
            "business_key": run.business_key,
            "memo": payload.get("memo", {}),
            "search_attributes": payload.get("search_attributes", {}),
            "outcome": "started_new",
        }
        return START_ACCEPTED, body, iso(event.recorded_at_ms), payload.get(PRINCIPAL)


def start_command_id(run_id: str) -> str:
    """The id of the command that started a run."""
    return f"{run_id}-start"


def is_started_by_caller(payload: Mapping[str, Any]) -> bool:
    """Whether the payload of a `WorkflowStarted` is that of a start, and not of a child or a successor."""
    return not payload.keys() & {"parent_workflow_run_id", "continued_from_run_id", "retried_from_run_id"}


def needs_context(event: RecordedEvent) -> bool:
    """Whether what follows an event depends on those before it too: not if a workflow task has decided with it."""
    return event.sequence > 1 and (event.task_id is None or event.type == EventType.WORKFLOW_TASK_COMPLETED)


def close_policies(
    closing: RecordedEvent, run: Run, children: Sequence[ChildRun], ended_steps: Iterable[int]
) -> Sequence[DerivedEvent]:
    """What a run's close did to the children that had not ended, behind its closing event."""
    ended = set(ended_steps)
    open_children = [
        each for each in children if each.step not in ended and each.policy is not ClosePolicy.ABANDON
    ]
    return [
        DerivedEvent(
            run.run_id,
            closing.sequence,
            place,
            PARENT_CLOSE_POLICY_APPLIED,
            {
                "child_instance_id": child.workflow_id,
                "child_run_id": child.run_id,
                "policy": child.policy.value,
                "reason": f"parent {run.workflow_id} was {run.closed_reason}",
            },
            iso(closing.recorded_at_ms),
        )
        for place, child in enumerate(open_children, 1)
    ]


def operator_events(
    run: Run, commands: Sequence[OperatorCommand], first_place: int
) -> Sequence[DerivedEvent]:
    """The events of operators' commands, each behind the last event at its time."""
    derived: list[DerivedEvent] = []
    for command in commands:
        for kind, body in _operator_payloads(run, command):
            place = first_place + len(derived)
            at = iso(command.at_ms)
            derived.append(DerivedEvent(run.run_id, command.after, place, kind, body, at, command.principal))
    return derived


def _operator_payloads(run: Run, command: OperatorCommand) -> Sequence[tuple[str, Payload]]:
    body: Payload = {
        "workflow_command_id": command.command_id,
        "workflow_instance_id": run.workflow_id,
        "workflow_run_id": run.run_id,
        "command_type": command.kind,
        "outcome": command.outcome,
    }
    if command.kind == "repair":
        return [(REPAIR_REQUESTED, body)]
    if command.kind in _REQUESTED:
        of = {} if command.target is None else {"activity_execution_id": command.target}
        return [(_REQUESTED[command.kind], body | {"reason": command.reason} | of)]
    archived = {
        name: body[name] for name in ("workflow_command_id", "workflow_instance_id", "workflow_run_id")
    }
    archived |= {"archive_command_id": command.command_id, "reason": command.reason}
    return [(ARCHIVE_REQUESTED, body | {"reason": command.reason}), (WORKFLOW_ARCHIVED, archived)]


def is_close(event: RecordedEvent) -> bool:
    return event.type in _CLOSING


def _attempt(payload: Payload) -> Payload:
    number = payload.get("attempt_number", payload.get("retry_after_attempt"))
    copied = ("activity_execution_id", "activity_attempt_id", "activity_type", "sequence", _GROUPED)
    body = {name: payload[name] for name in copied if payload.get(name) is not None}
    return body | {"attempt_number": number}


def _applied(payload: Payload) -> Payload:
    names = ("workflow_command_id", "signal_id", "signal_name")
    return {name: payload.get(name) for name in names}


def _handled(event: RecordedEvent, payload: Payload) -> Payload:
    kind = _STEP_FAILURES[EventType(event.type)]
    source = payload.get("activity_execution_id" if kind == "activity" else "child_workflow_run_id")
    copied = ("sequence", "exception_class", "exception_type", "message")
    return {name: payload[name] for name in copied if payload.get(name) is not None} | {
        "failure_id": payload.get("failure_id") or event.id,
        "failure_category": payload.get("failure_category") or kind,
        "source_kind": kind,
        "source_id": source,
        "propagation_kind": kind,
        "handled": True,
    }
