"""Talking to a run: signals, updates, a signal with a start, and waiting for the result."""

from __future__ import annotations

import json
from typing import Any

from penstock.core.model import Blob, UpdateStatus
from penstock.core.timers import iso, iso_or_none
from penstock.engine import reading, signals, starts, updates
from penstock.engine.addressing import Address
from penstock.engine.signals import Accepted, Signal
from penstock.engine.updates import Answered, Asked
from penstock.errors import Reason
from penstock.server.endpoints.addressing import address
from penstock.server.endpoints.starting import workflow_start
from penstock.server.endpoints.workflows import idempotency_key, started_body
from penstock.server.operation import Answer, Call, text_path
from penstock.wire import payloads, strict_json
from penstock.wire.parsing import refuse
from penstock.wire.rendering import envelope, readable
from penstock.wire.requests import AskUpdate, ReadResult, ReadRunResult, SendSignal, SignalWithStart

UPDATE_WAIT_DEFAULT_S = 10
RESERVED = "__durable_workflow"


def operation_name(call: Call, name: str, field: str = "name") -> str:
    """The name of a signal, query or update: bounded, and visible."""
    longest = call.house.settings.limits.operation_name_bytes_max
    if len(name.encode()) > longest or not name.isprintable():
        raise refuse(field, f"must be at most {longest} bytes of visible characters")
    if name.startswith(RESERVED):
        raise refuse(field, f"must not begin with {RESERVED}, which the protocol keeps for itself")
    return name


async def signal(call: Call) -> Answer:
    request: SendSignal = call.body
    name = operation_name(call, text_path(call, "name", 1024))
    arguments = Blob(payloads.parse(request.input, "input").blob)
    sent = await signals.send(call.house, Signal(address(call), name, arguments, request.request_id))
    return Answer(
        _signalled(sent, name, "run" if "run_id" in call.path else "instance", request.request_id), 202
    )


def _signalled(sent: Accepted, name: str, scope: str, request_id: str | None) -> dict[str, Any]:
    return {
        "workflow_id": sent.run.workflow_id,
        "run_id": sent.receipt["run_id"],
        "workflow_type": sent.run.workflow_type,
        "signal_name": name,
        "command_status": "accepted",
        "command_source": "control_plane",
        "target_scope": scope,
        "request_id": request_id,
        "retained": sent.retained,
        "intent_verified": sent.retained,
        "reason": None,
        "rejection_reason": None,
        "validation_errors": [],
    } | {key: sent.receipt[key] for key in ("command_id", "command_sequence", "outcome")}


async def signal_with_start(call: Call) -> Answer:
    request: SignalWithStart = call.body
    for policy in ("duplicate_policy", "id_conflict_policy"):
        if getattr(request, policy) == "fail":
            raise refuse(policy, "is use-existing here: the signal goes to the open run that has the id")
    body = strict_json.loads(call.raw) if call.raw else {}
    limits = call.house.settings.limits
    asked = workflow_start(
        request, body if isinstance(body, dict) else {}, call.namespace, idempotency_key(call), limits
    )
    name = operation_name(call, request.signal_name, "signal_name")
    arguments = Blob(payloads.parse(request.signal_input, "signal_input").blob)
    meant = Address(call.namespace, asked.workflow_id or "")
    begun, sent = await starts.signal_with_start(
        call.house, asked, Signal(meant, name, arguments, request.signal_request_id)
    )
    answer = started_body(begun)
    told = _signalled(sent, name, "instance", request.signal_request_id)
    new = answer.body["outcome"] == "started_new" and answer.status == 201
    return Answer(told | answer.body | {"signal_outcome": told["outcome"]}, 201 if new else 200)


async def update(call: Call) -> Answer:
    request: AskUpdate = call.body
    if request.wait_policy is not None:
        raise refuse("wait_policy", "was removed; say wait_for: accepted or completed")
    name = operation_name(call, text_path(call, "name", 1024))
    arguments = Blob(payloads.parse(request.input, "input").blob)
    asked = Asked(address(call), name, arguments, request.request_id)
    draining = call.dispatcher.draining
    answered = await updates.accept(call.house, asked, draining)
    wait_for = request.wait_for or "accepted"
    wait_s = request.wait_timeout_seconds or UPDATE_WAIT_DEFAULT_S
    if wait_for == "completed" and answered.update.status is UpdateStatus.ACCEPTED:
        answered = await updates.wait(call.house, answered, wait_s * 1000, draining)
    body = _updated(call, answered, wait_for, wait_s) | {"request_id": request.request_id}
    return Answer(body, _STATUSES[answered.update.status])


_STATUSES = {UpdateStatus.ACCEPTED: 202, UpdateStatus.COMPLETED: 200, UpdateStatus.FAILED: 422}
_OUTCOMES = {UpdateStatus.COMPLETED: "update_completed", UpdateStatus.FAILED: "update_failed"}


def _updated(call: Call, answered: Answered, wait_for: str, wait_s: int) -> dict[str, Any]:
    made, run = answered.update, answered.run
    outcome: dict[str, Any] = json.loads(made.outcome) if made.outcome else {}
    failed = made.status is UpdateStatus.FAILED
    blob = outcome.get("result")
    body: dict[str, Any] = {
        "workflow_id": run.workflow_id,
        "run_id": made.run_id,
        "workflow_type": run.workflow_type,
        "update_id": made.update_id,
        "update_name": made.name,
        "update_status": made.status.value,
        "outcome": _OUTCOMES.get(made.status),
        "wait_for": wait_for,
        "wait_timed_out": answered.timed_out,
        "wait_timeout_seconds": wait_s,
        "result": readable(blob),
        "result_envelope": envelope(blob),
        "command_id": made.update_id,
        "command_sequence": made.number,
        "command_status": "accepted",
        "command_source": "control_plane",
        "target_scope": "run" if "run_id" in call.path else "instance",
        "workflow_sequence": made.number,
        "accepted_at": iso(made.accepted_at_ms),
        "applied_at": None if failed else iso_or_none(made.closed_at_ms),
        "rejected_at": None,
        "closed_at": iso_or_none(made.closed_at_ms),
        "retained": answered.retained,
        "reason": Reason.UPDATE_FAILED.value if failed else None,
        "rejection_reason": None,
        "validation_errors": [],
    }
    if failed:
        body |= {
            "failure_id": outcome.get("failure_id", f"{made.update_id}-f1"),
            "failure_message": outcome.get("message"),
            "message": outcome.get("message"),
            "failure": outcome,
        }
    return body


async def result(call: Call) -> Answer:
    query: ReadResult | ReadRunResult = call.query
    meant = address(call)
    found = await reading.result(
        call.house,
        meant.namespace,
        meant.workflow_id,
        meant.run_id,
        query.wait_seconds * 1000,
        call.dispatcher.draining,
        chain=meant.chain,
    )
    run = found.run
    return Answer(
        {
            "workflow_id": run.workflow_id,
            "run_id": run.run_id,
            "workflow_type": run.workflow_type,
            "status": run.status.value,
            "status_bucket": run.status.bucket,
            "is_terminal": not run.is_open,
            "closed_reason": run.closed_reason,
            "closed_at": iso_or_none(run.closed_at_ms),
            "result": readable(run.output),
            "result_envelope": envelope(run.output),
            "failure": found.failure,
            "wait_timed_out": run.is_open,
        }
    )
