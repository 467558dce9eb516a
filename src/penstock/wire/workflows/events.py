"""Events of a history as operators see them: the recorded ones, and those that follow from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.core.attribution import PRINCIPAL
from penstock.core.audit.trail import (
    DerivedEvent,
    OperatorCommand,
    RequestEvent,
    is_started_by_caller,
    start_command_id,
)
from penstock.core.external_payloads import recorded
from penstock.core.history.events import MESSAGE_STREAM_SIGNAL, EventType
from penstock.core.messaging.contracts import MessageContracts
from penstock.core.model import RecordedEvent, Run
from penstock.core.timestamps import iso

Body = dict[str, Any]

_PARSED = (f'"{PRINCIPAL}"', '"workflow_command_id"')
"""Keys for which a payload is parsed; all others are passed through as text."""


def history_events(
    events: Sequence[RecordedEvent],
    derived: Sequence[DerivedEvent],
    run: Run,
    declared: MessageContracts | None = None,
) -> list[Body]:
    """A page of a history in its own order, each derived event beside the recorded one that it belongs to.

    `declared` is added to the start of the run.
    """
    descends = len(events) > 1 and events[0].sequence > events[-1].sequence
    placed = [((event.sequence, 0), control_event(event, run)) for event in events]
    if declared is not None and placed:
        placed[0][1]["payload"] |= declared_contracts(declared)
    placed += [((event.sequence, event.place), derived_event(event)) for event in derived]
    placed.sort(key=lambda each: each[0], reverse=descends)
    return [body for _, body in placed]


def declared_contracts(contracts: MessageContracts) -> Body:
    """The messages that the registered workers of a type declare, now: a start does not wait for workers."""
    body: Body = {}
    for kind, plural in (("query", "queries"), ("signal", "signals"), ("update", "updates")):
        names, declarations = contracts.declared(kind)
        if names:
            body |= {f"declared_{plural}": list(names), f"declared_{kind}_contracts": list(declarations)}
    return body


def control_event(event: RecordedEvent, run: Run) -> Body:
    """A recorded event; the first one includes the input of the run."""
    payload: Any = msgspec.Raw(event.payload.encode())
    principal = command_id = None
    is_first = event.type == EventType.WORKFLOW_STARTED
    if is_first or any(each in event.payload for each in _PARSED):
        payload = json.loads(event.payload)
        principal, command_id = payload.pop(PRINCIPAL, None), payload.get("workflow_command_id")
    if is_first:
        if is_started_by_caller(payload):
            command_id = payload["workflow_command_id"] = start_command_id(run.run_id)
        payload |= recorded({"arguments": run.input})
    at = iso(event.recorded_at_ms)
    return {
        "id": event.id,
        "event_id": event.sequence,
        "sequence": event.sequence,
        "event_type": event.type,
        "type": event.type,
        "timestamp": at,
        "recorded_at": at,
        "workflow_task_id": event.task_id,
        "workflow_command_id": command_id,
        "principal": principal,
        "derived": False,
        "payload": payload,
    }


def derived_event(event: DerivedEvent) -> Body:
    """An event of the audit trail. It repeats the number of the recorded event that it stands beside."""
    return {
        "id": event.id,
        "event_id": event.sequence,
        "sequence": event.sequence,
        "event_type": event.type,
        "type": event.type,
        "timestamp": event.at,
        "recorded_at": event.at,
        "workflow_task_id": None,
        "workflow_command_id": event.payload.get("workflow_command_id"),
        "principal": event.principal,
        "derived": True,
        "payload": event.payload,
    }


_COMMANDS = {
    EventType.WORKFLOW_STARTED: ("start", "started_new"),
    EventType.SIGNAL_RECEIVED: ("signal", "signal_received"),
    EventType.UPDATE_ACCEPTED: ("update", None),
    EventType.CANCEL_REQUESTED: ("cancel", None),
    EventType.TERMINATE_REQUESTED: ("terminate", "terminated"),
    EventType.COOPERATIVE_CANCELLATION_REQUESTED: ("request_cancellation", "cancel_requested"),
}
"""Types of commands by the events that record them, with their outcome where it is always the same."""


def is_signal(event: RequestEvent) -> bool:
    """Whether it is a signal, and not the delivery of a message."""
    return event.type == EventType.SIGNAL_RECEIVED and event.name != MESSAGE_STREAM_SIGNAL


def signal(event: RequestEvent) -> Body:
    """A signal in the description of its run."""
    return {
        "signal_id": event.command_id,
        "signal_name": event.name,
        "command_id": event.command_id,
        "history_sequence": event.sequence,
        "received_at": iso(event.at_ms),
        "principal": event.principal,
    }


def commands(
    run: Run, requests: Sequence[RequestEvent], by_operators: Sequence[OperatorCommand]
) -> list[Body]:
    """The latest commands of callers to a run, the newest first."""
    found = [(each.sequence, _requested(run, each)) for each in requests if _is_command(run, each)]
    found += [(each.after + 1, _operator_command(each)) for each in by_operators]
    found.sort(key=lambda each: each[0], reverse=True)
    return [body for _, body in found]


def _is_command(run: Run, event: RequestEvent) -> bool:
    """Whether a caller sent it: a child or a successor was started by the server, a message was sent to its stream."""
    if event.type != EventType.WORKFLOW_STARTED:
        return event.name != MESSAGE_STREAM_SIGNAL
    lineage = run.lineage
    return not any((lineage.parent_run_id, lineage.continued_from, lineage.retried_from))


def _requested(run: Run, event: RequestEvent) -> Body:
    kind, outcome = _COMMANDS[EventType(event.type)]
    command_id = start_command_id(run.run_id) if kind == "start" else event.command_id
    if kind == "cancel":
        outcome = "cancelled" if run.status.value == "cancelled" else "cancel_requested"
    return _command(
        kind, command_id or f"{run.run_id}-{kind}", iso(event.at_ms), event.principal, outcome
    ) | {"target_name": event.name, "reason": event.reason, "history_sequence": event.sequence}


def _operator_command(command: OperatorCommand) -> Body:
    return _command(
        command.kind, command.command_id, iso(command.at_ms), command.principal, command.outcome
    ) | {"target_name": command.target, "reason": command.reason, "history_sequence": None}


def _command(kind: str, command_id: str, at: str, principal: Body | None, outcome: str | None) -> Body:
    return {
        "command_id": command_id,
        "command_type": kind,
        "command_status": "accepted",
        "accepted_at": at,
        "principal": principal,
        "outcome": outcome,
    }
