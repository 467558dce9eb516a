"""The transactional outbox: messages from one run to another.

A transaction changes one run. What concerns another run (a child's end, a close policy, an external signal) is
inserted into the outbox in the same transaction. `workflows.outbox_relay` delivers it in a transaction of the
receiver, which deletes the message: `outbox-applied-once`, whatever fails in between.

Rejected: locking both runs in one transaction. Parents and children lock each other in both directions, which
deadlocks, and the receiver may be on another server's write queue.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from penstock.core.history.cancellation import CLEANUP_DEFAULT_S
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
from penstock.ports.wakeups import OUTBOX_TOPIC

_POLICIES = {
    ClosePolicy.REQUEST_CANCEL: OutboxKind.CANCEL,
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
"""The fields of a child's closing event that are copied to its parent."""


def send(tx: Tx, message: OutboxMessage) -> None:
    tx.outbox.insert(message)
    tx.wake(OUTBOX_TOPIC)


def notify_parent(tx: Tx, run: Run, last: NewEvent) -> None:
    """Send a closed child's outcome to its parent, if it has one."""
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
    """Send the start of a child's next attempt to its parent. It does not wake the parent's code."""
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
    """Apply the close policy of each open child of a closing parent; children of cancelled steps are cancelled."""
    if not run.open_children:
        return
    for child in await tx.children.open_of(run.run_id):
        if child.step in given_up:
            cancel_child(tx, run, child)
        else:
            tx.children.save(replace(child, state=ChildState.CLOSED))
            apply_close_policy(tx, run, child)


def cancel_child(tx: Tx, run: Run, child: ChildRun, deadline_ms: int | None = None) -> None:
    """Cancel a child that the code no longer waits for; its outcome is ignored. See `request_child` for a deadline."""
    tx.children.save(replace(child, state=ChildState.CANCELLED))
    request_child(tx, child, f"given up by parent {run.workflow_id}", deadline_ms)


def request_child(tx: Tx, child: ChildRun, reason: str, deadline_ms: int | None) -> None:
    """Send a cancel request to a child; with a deadline, it may clean up until then."""
    send_to_child(tx, child, OutboxKind.CANCEL, reason, deadline_ms)


def apply_close_policy(tx: Tx, run: Run, child: ChildRun) -> None:
    """Send what a child's close policy requires when its parent has closed."""
    reason = f"parent {run.workflow_id} was {run.closed_reason}"
    kind = _POLICIES.get(child.policy)
    if child.policy is ClosePolicy.REQUEST_CANCELLATION:
        asked = run.waits.cancellation
        if asked is None or child.step not in asked.asked:
            request_child(tx, child, reason, tx.now_ms + CLEANUP_DEFAULT_S * 1000)
    elif kind is not None:
        send_to_child(tx, child, kind, reason)


def send_to_child(
    tx: Tx, child: ChildRun, kind: OutboxKind, reason: str, deadline_ms: int | None = None
) -> None:
    """Send a cancel or terminate request to a child."""
    send(
        tx,
        OutboxMessage(
            message_id=f"{child.parent_run_id}-c{child.step}-{kind.value}"
            + ("" if deadline_ms is None else "-request"),
            namespace=child.namespace,
            workflow_id=child.workflow_id,
            run_id="",
            kind=kind,
            payload=to_json(
                {"reason": reason, "parent_run_id": child.parent_run_id}
                | ({} if deadline_ms is None else {"cleanup_deadline_ms": deadline_ms})
            ),
            created_at_ms=tx.now_ms,
        ),
    )


def child_event(child: ChildRun, message: OutboxMessage) -> NewEvent:
    """The parent's event for a child's message."""
    body = json.loads(message.payload)
    return NewEvent(body["type"], child_payload(child) | body["payload"])


def step_of(message: OutboxMessage) -> int:
    return int(json.loads(message.payload)["step"])


def is_for(message: OutboxMessage, run: Run) -> bool:
    """Whether a run is the child that the message was sent to, and not a later run with its workflow id."""
    return run.lineage.parent_run_id == RunId(json.loads(message.payload)["parent_run_id"])


def reason_of(message: OutboxMessage) -> str:
    return str(json.loads(message.payload)["reason"])


def deadline_of(message: OutboxMessage) -> int | None:
    """Until when a child that is cancelled may clean up; None if it is to end at once."""
    deadline_ms = json.loads(message.payload).get("cleanup_deadline_ms")
    return None if deadline_ms is None else int(deadline_ms)


def send_external_request(tx: Tx, run: Run, request: ExternalRequest) -> None:
    """Send an external signal or cancel request to another run."""
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
            workflow_id=request.workflow_id.replace(
                "\0", "\ufffd"
            ),  # PostgreSQL stores no NUL; no id has one
            run_id=request.run_id or "",
            kind=_REQUESTS[request.kind],
            payload=to_json({name: value for name, value in body.items() if value is not None}),
            created_at_ms=tx.now_ms,
        ),
    )


def send_answer(tx: Tx, message: OutboxMessage, refusal: tuple[str, str] | None) -> None:
    """Send the outcome of an external request to its sender: success, or an error type and message."""
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
    """The sender's event for the answer to its external request."""
    body = json.loads(message.payload)
    return NewEvent(body["type"], body["payload"])


def external_request_of(message: OutboxMessage) -> dict[str, Any]:
    """The body of an external request."""
    return dict(json.loads(message.payload))


def _request_id(run_id: RunId, step: int) -> str:
    """Message ids of one run sort by step, which is the delivery order."""
    return f"{run_id}-x{step:07}"
