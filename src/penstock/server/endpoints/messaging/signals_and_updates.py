"""Signals, updates, signal-with-start, and waiting for the result of a run."""

from __future__ import annotations

import json
from typing import Any

from penstock.core.model import Blob, UpdateStatus
from penstock.core.timestamps import iso, iso_or_none
from penstock.engine.messaging import signals, updates
from penstock.engine.messaging.signals import Signal, SignalReceipt
from penstock.engine.messaging.updates import UpdateResult, UpdateSubmission
from penstock.engine.runs.address import Address
from penstock.engine.visibility import run_reader
from penstock.engine.workflows import starts
from penstock.errors import Reason
from penstock.server.endpoints.workflows.addresses import address
from penstock.server.endpoints.workflows.executions import idempotency_key, start_response
from penstock.server.endpoints.workflows.start_requests import parse_workflow_start
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import payloads
from penstock.wire.request_parser import field_error
from penstock.wire.requests import AskUpdate, ReadResult, ReadRunResult, SendSignal, SignalWithStart
from penstock.wire.responses import envelope, readable

UPDATE_WAIT_DEFAULT_S = 10
RESERVED = "__durable_workflow"


def operation_name(call: OperationCall, name: str, field: str = "name") -> str:
    """Check the name of a signal, query or update."""
    longest = call.ctx.settings.limits.operation_name_bytes_max
    if len(name.encode()) > longest or not name.isprintable():
        raise field_error(field, f"must be at most {longest} bytes of visible characters")
    if name.startswith(RESERVED):
        raise field_error(field, f"must not begin with {RESERVED}, which is reserved by the protocol")
    return name


async def signal(call: OperationCall) -> Response:
    request: SendSignal = call.body
    name = operation_name(call, text_path(call, "name", 1024))
    arguments = Blob(payloads.parse(request.input, "input").blob)
    sent = await signals.send(call.ctx, Signal(address(call), name, arguments, request.request_id))
    return Response(
        _signal_receipt(sent, name, "run" if "run_id" in call.path else "instance", request.request_id), 202
    )


def _signal_receipt(sent: SignalReceipt, name: str, scope: str, request_id: str | None) -> dict[str, Any]:
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


async def signal_with_start(call: OperationCall) -> Response:
    request: SignalWithStart = call.body
    for policy in ("duplicate_policy", "id_conflict_policy"):
        if getattr(request, policy) == "fail":
            raise field_error(policy, "must be use-existing: the signal goes to the open run with this id")
    limits = call.ctx.settings.limits
    start = parse_workflow_start(request, call.document, call.namespace, idempotency_key(call), limits)
    name = operation_name(call, request.signal_name, "signal_name")
    arguments = Blob(payloads.parse(request.signal_input, "signal_input").blob)
    target = Address(call.namespace, start.workflow_id or "")
    started, sent = await starts.signal_with_start(
        call.ctx, start, Signal(target, name, arguments, request.signal_request_id)
    )
    response = start_response(started)
    receipt = _signal_receipt(sent, name, "instance", request.signal_request_id)
    new = response.body["outcome"] == "started_new" and response.status == 201
    return Response(receipt | response.body | {"signal_outcome": receipt["outcome"]}, 201 if new else 200)


async def update(call: OperationCall) -> Response:
    request: AskUpdate = call.body
    if request.wait_policy is not None:
        raise field_error("wait_policy", "was removed; use wait_for: accepted or completed")
    name = operation_name(call, text_path(call, "name", 1024))
    arguments = Blob(payloads.parse(request.input, "input").blob)
    submission = UpdateSubmission(address(call), name, arguments, request.request_id)
    draining = call.dispatcher.draining
    result = await updates.accept(call.ctx, submission, draining)
    wait_for = request.wait_for or "accepted"
    wait_s = request.wait_timeout_seconds or UPDATE_WAIT_DEFAULT_S
    if wait_for == "completed" and result.update.status is UpdateStatus.ACCEPTED:
        result = await updates.wait(call.ctx, result, wait_s * 1000, draining)
    body = _update_body(call, result, wait_for, wait_s) | {"request_id": request.request_id}
    return Response(body, _STATUSES[result.update.status])


async def describe_update(call: OperationCall) -> Response:
    update_id = text_path(call, "update_id")
    found = await updates.find_update(
        call.ctx, call.namespace, text_path(call, "workflow_id", 128), update_id
    )
    body = _update_body(call, found, "accepted", UPDATE_WAIT_DEFAULT_S)
    return Response(body | {"request_id": found.update.request_id})


_STATUSES = {UpdateStatus.ACCEPTED: 202, UpdateStatus.COMPLETED: 200, UpdateStatus.FAILED: 422}
_OUTCOMES = {UpdateStatus.COMPLETED: "update_completed", UpdateStatus.FAILED: "update_failed"}


def _update_body(call: OperationCall, result: UpdateResult, wait_for: str, wait_s: int) -> dict[str, Any]:
    update, run = result.update, result.run
    outcome: dict[str, Any] = json.loads(update.outcome) if update.outcome else {}
    failed = update.status is UpdateStatus.FAILED
    blob = outcome.get("result")
    body: dict[str, Any] = {
        "workflow_id": run.workflow_id,
        "run_id": update.run_id,
        "workflow_type": run.workflow_type,
        "update_id": update.update_id,
        "update_name": update.name,
        "update_status": update.status.value,
        "outcome": _OUTCOMES.get(update.status),
        "wait_for": wait_for,
        "wait_timed_out": result.timed_out,
        "wait_timeout_seconds": wait_s,
        "result": readable(blob),
        "result_envelope": envelope(blob),
        "command_id": update.update_id,
        "command_sequence": update.number,
        "command_status": "accepted",
        "command_source": "control_plane",
        "target_scope": "run" if "run_id" in call.path else "instance",
        "workflow_sequence": update.number,
        "accepted_at": iso(update.accepted_at_ms),
        "applied_at": None if failed else iso_or_none(update.closed_at_ms),
        "rejected_at": None,
        "closed_at": iso_or_none(update.closed_at_ms),
        "retained": result.retained,
        "reason": Reason.UPDATE_FAILED.value if failed else None,
        "rejection_reason": None,
        "validation_errors": {},
    }
    if failed:
        body |= {
            "failure_id": outcome.get("failure_id", f"{update.update_id}-f1"),
            "failure_message": outcome.get("message"),
            "message": outcome.get("message"),
            "failure": outcome,
        }
    return body


async def result(call: OperationCall) -> Response:
    query: ReadResult | ReadRunResult = call.query
    target = address(call)
    found = await run_reader.result(
        call.ctx,
        target.namespace,
        target.workflow_id,
        target.run_id,
        query.wait_seconds * 1000,
        call.dispatcher.draining,
        chain=target.chain,
    )
    run = found.run
    return Response(
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
