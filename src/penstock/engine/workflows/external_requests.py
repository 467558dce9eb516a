"""Requests between runs (external signal, external cancel), delivered through the outbox; so is the answer."""

from __future__ import annotations

from typing import Any

from penstock.core.external_payloads import blob_of
from penstock.core.history import structural_limits
from penstock.core.model import OutboxKind, OutboxMessage, Run, RunId
from penstock.engine.context import EngineContext
from penstock.engine.messaging import outbox
from penstock.engine.messaging.signals import Signal, check_accepts_signals, counted, received
from penstock.engine.runs.address import Address, check_open, check_workflow, on_run
from penstock.engine.runs.history_writer import record_external_event
from penstock.engine.runs.idempotency import check_contract, contracts_of
from penstock.engine.workflows.run_close import EndMode, end_open
from penstock.errors import Conflict, NotFound, PenstockError, Reason, Unavailable
from penstock.ports.store import Tx

NOT_FOUND = "WorkflowNotFound"
CLOSED = "WorkflowClosed"
_KINDS = {
    Reason.INSTANCE_NOT_FOUND: NOT_FOUND,
    Reason.RUN_NOT_FOUND: NOT_FOUND,
    Reason.RUN_NOT_ACTIVE: CLOSED,
    Reason.HISTORICAL_RUN_COMMAND_REJECTED: CLOSED,
}


async def execute(ctx: EngineContext, message: OutboxMessage) -> bool:
    """Apply a request in the receiver's transaction, which also deletes the message and sends the answer."""

    async def act(tx: Tx, receiver: Run) -> bool:
        if await tx.outbox.lock(message.message_id) is None:
            return False
        tx.outbox.delete(message.message_id)
        refusal: tuple[str, str] | None = None
        try:
            await _apply(ctx, tx, receiver, message)
        except Unavailable:
            raise
        except PenstockError as error:
            refusal = _failure_of(error)
        outbox.send_answer(tx, message, refusal)
        return True

    address = Address(
        message.namespace, message.workflow_id, RunId(message.run_id) if message.run_id else None
    )
    try:
        return await on_run(ctx, address, act)
    except NotFound as error:
        return await _refuse(ctx, message, error)
    except Conflict as error:
        if error.reason is not Reason.HISTORICAL_RUN_COMMAND_REJECTED:
            raise
        return await _refuse(ctx, message, error)


async def _apply(ctx: EngineContext, tx: Tx, receiver: Run, message: OutboxMessage) -> None:
    """Signal or cancel the receiver. All checks precede the first write, so a refusal leaves no trace."""
    check_workflow(receiver)
    check_open(receiver)
    request = outbox.external_request_of(message)
    if request.get("children_only") and receiver.lineage.parent_run_id != request["sender_run_id"]:
        raise Conflict(
            Reason.RUN_NOT_ACTIVE,
            f"The child has ended; the workflow id {receiver.workflow_id!r} now belongs to another workflow.",
        )
    if message.kind is OutboxKind.EXTERNAL_CANCEL:
        reason = request.get("reason") or f"requested by {request['sender_workflow_id']}"
        await end_open(ctx, tx, receiver, EndMode.CANCEL, reason)
        return
    signal = _signal(message, request)
    check_contract(await contracts_of(ctx, tx, receiver), receiver, signal.request)
    await check_accepts_signals(tx, receiver)
    structural_limits.check_signal(receiver, ctx.bounds)
    receiver = counted(receiver)
    tx.runs.save(await record_external_event(tx, receiver, [received(receiver, signal)]))


def _signal(message: OutboxMessage, request: dict[str, Any]) -> Signal:
    address = Address(message.namespace, message.workflow_id)
    return Signal(address, str(request["signal_name"]), blob_of(request["arguments"]))


def _failure_of(error: PenstockError) -> tuple[str, str]:
    return _KINDS.get(error.reason, error.reason.value), error.message


async def _refuse(ctx: EngineContext, message: OutboxMessage, error: PenstockError) -> bool:
    """Answer a request whose receiver does not exist."""

    async def operation(tx: Tx) -> bool:
        if await tx.outbox.lock(message.message_id) is None:
            return False
        tx.outbox.delete(message.message_id)
        outbox.send_answer(tx, message, _failure_of(error))
        return True

    return await ctx.store.transact(operation, key=message.message_id)
