"""Letters: how runs tell each other what happened.

One operation changes one run. What concerns another run is recorded as a letter in the same transaction, and delivered
in a transaction of the receiver, which deletes it: `letters-have-one-effect`, whatever fails in between.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from penstock.core.history.command_effects import ExternalRequest
from penstock.core.history.events import CODEC, EventType
from penstock.core.history.payloads import child_payload
from penstock.core.model import (
    ChildRun,
    ChildState,
    ClosePolicy,
    NewEvent,
    OutboxKind,
    OutboxMessage,
    Run,
    RunId,
    RunStatus,
)
from penstock.engine.runs.history_writer import to_json
from penstock.ports.store import Tx

OUTBOX_TOPIC = "letters"
_POLICIES = {
    ClosePolicy.REQUEST_CANCEL: OutboxKind.CANCEL,
    ClosePolicy.REQUEST_CANCELLATION: OutboxKind.CANCEL,
    ClosePolicy.TERMINATE: OutboxKind.TERMINATE,
}
_ENDS = {
    RunStatus.COMPLETED: EventType.CHILD_RUN_COMPLETED,
    RunStatus.FAILED: EventType.CHILD_RUN_FAILED,
    RunStatus.CANCELLED: EventType.CHILD_RUN_CANCELLED,
    RunStatus.TERMINATED: EventType.CHILD_RUN_TERMINATED,
}
_REQUESTS = {"signal": OutboxKind.EXTERNAL_SIGNAL, "cancel": OutboxKind.EXTERNAL_CANCEL}
_COPIED_FIELDS = (
    "message",
    "exception_type",
    "exception_class",
    "exception",
    "non_retryable",
    "failure_category",
    "timeout_kind",
    "reason",
)
"""What a parent hears of how its child ended."""


def send(tx: Tx, message: OutboxMessage) -> None:
    tx.outbox.insert(message)
    tx.wake(OUTBOX_TOPIC)


def notify_parent(tx: Tx, run: Run, last: NewEvent) -> None:
    """Say how a child ended, to the run that waits for it."""
    origin = run.lineage
    if origin.parent_run_id is None:
        return
    payload: dict[str, Any] = {
        "child_closing_run_id": run.run_id,
        "child_run_number": run.run_number,
        "closed_reason": run.closed_reason,
    }
    if run.status is RunStatus.COMPLETED:
        payload |= {"result": run.output, "output": run.output, "payload_codec": CODEC}
    else:
        payload |= {name: last.payload[name] for name in _COPIED_FIELDS if last.payload.get(name) is not None}
        payload.setdefault("message", f"The child was {run.status.value}.")
        payload["failure_id"] = f"{run.run_id}-f1"
        payload["failure_category"] = "child_workflow"
    _send_to_parent(tx, run, OutboxKind.CHILD_ENDED, _ENDS[run.status], payload)


def notify_parent_of_attempt(tx: Tx, run: Run) -> None:
    """Say that a child is tried once more; the parent's code does not look at it."""
    origin = run.lineage
    payload = {
        "child_closing_run_id": None,
        "child_attempt_run_id": run.run_id,
        "child_run_number": run.run_number,
        "child_status": run.status.value,
        "retry_attempt": origin.attempt,
    }
    _send_to_parent(tx, run, OutboxKind.CHILD_STARTED, EventType.CHILD_RUN_STARTED, payload)


def _send_to_parent(tx: Tx, run: Run, kind: OutboxKind, event: EventType, payload: dict[str, Any]) -> None:
    origin = run.lineage
    assert origin.parent_run_id is not None
    assert origin.parent_workflow_id is not None
    body = {"step": origin.parent_step, "type": event.value, "payload": payload}
    send(
        tx,
        OutboxMessage(
            message_id=f"{run.run_id}-{kind.value}",
            namespace=run.namespace,
            workflow_id=origin.parent_workflow_id,
            run_id=origin.parent_run_id,
            kind=kind,
            payload=to_json(body),
            created_at_ms=tx.now_ms,
        ),
    )


async def notify_children(tx: Tx, run: Run, given_up: Collection[int] = ()) -> None:
    """Apply the close policy of each child that is open when its parent closes; those that it gave up are to end."""
    if not run.open_children:
        return
    for child in await tx.children.open_of(run.run_id):
        if child.step in given_up:
            cancel_child(tx, run, child)
        else:
            tx.children.save(replace(child, state=ChildState.CLOSED))
            apply_close_policy(tx, run, child)


def cancel_child(tx: Tx, run: Run, child: ChildRun) -> None:
    """The code no longer waits for a child: it is to end, and how it does is of no concern."""
    tx.children.save(replace(child, state=ChildState.CANCELLED))
    send_to_child(tx, child, OutboxKind.CANCEL, f"given up by parent {run.workflow_id}")


def apply_close_policy(tx: Tx, run: Run, child: ChildRun) -> None:
    """What a child's policy asks for when its parent has closed."""
    kind = _POLICIES.get(child.policy)
    if kind is not None:
        send_to_child(tx, child, kind, f"parent {run.workflow_id} was {run.closed_reason}")


def send_to_child(tx: Tx, child: ChildRun, kind: OutboxKind, reason: str) -> None:
    """Ask a child to end."""
    send(
        tx,
        OutboxMessage(
            message_id=f"{child.parent_run_id}-c{child.step}-{kind.value}",
            namespace=child.namespace,
            workflow_id=child.workflow_id,
            run_id="",
            kind=kind,
            payload=to_json({"reason": reason, "parent_run_id": child.parent_run_id}),
            created_at_ms=tx.now_ms,
        ),
    )


def child_event(child: ChildRun, message: OutboxMessage) -> NewEvent:
    """What a letter from a child says, as an event of its parent."""
    body = json.loads(message.payload)
    return NewEvent(body["type"], child_payload(child) | body["payload"])


def step_of(message: OutboxMessage) -> int:
    return int(json.loads(message.payload)["step"])


def is_for(message: OutboxMessage, run: Run) -> bool:
    """Whether the child that is asked to end is the one that was meant, and not a later one under its id."""
    return run.lineage.parent_run_id == RunId(json.loads(message.payload)["parent_run_id"])


def reason_of(message: OutboxMessage) -> str:
    return str(json.loads(message.payload)["reason"])


def send_external_request(tx: Tx, run: Run, request: ExternalRequest) -> None:
    """Tell another run what a step of this one asks of it."""
    body = {
        "step": request.step,
        "sender_run_id": run.run_id,
        "sender_workflow_id": run.workflow_id,
        "signal_name": request.signal_name,
        "arguments": request.arguments,
        "reason": request.reason,
        "children_only": request.children_only or None,
    }
    send(
        tx,
        OutboxMessage(
            message_id=_request_id(run.run_id, request.step),
            namespace=run.namespace,
            workflow_id=request.workflow_id.replace("\0", "\ufffd"),  # PostgreSQL keeps no NUL; no id has one
            run_id=request.run_id or "",
            kind=_REQUESTS[request.kind],
            payload=to_json({name: value for name, value in body.items() if value is not None}),
            created_at_ms=tx.now_ms,
        ),
    )


def send_answer(tx: Tx, message: OutboxMessage, refusal: tuple[str, str] | None) -> None:
    """Tell the run that asked what became of it: done, or a kind of error and its message."""
    request = json.loads(message.payload)
    payload: dict[str, Any] = {"sequence": request["step"]}
    event = EventType.EXTERNAL_REQUEST_DELIVERED
    if refusal is not None:
        event = EventType.EXTERNAL_REQUEST_FAILED
        payload |= {"exception_type": refusal[0], "message": refusal[1]}
    send(
        tx,
        OutboxMessage(
            message_id=f"{message.message_id}-answer",
            namespace=message.namespace,
            workflow_id=request["sender_workflow_id"],
            run_id=request["sender_run_id"],
            kind=OutboxKind.EXTERNAL_ANSWER,
            payload=to_json({"type": event.value, "payload": payload}),
            created_at_ms=tx.now_ms,
        ),
    )


def answer_event(message: OutboxMessage) -> NewEvent:
    """What an answer says, as an event of the run that asked."""
    body = json.loads(message.payload)
    return NewEvent(body["type"], body["payload"])


def external_request_of(message: OutboxMessage) -> dict[str, Any]:
    """What a run asks of another."""
    return dict(json.loads(message.payload))


def _request_id(run_id: RunId, step: int) -> str:
    """Ids of one run sort as its steps do, and so letters are delivered."""
    return f"{run_id}-x{step:07}"
