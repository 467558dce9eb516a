"""What one run asks of another: a signal, or to end. The answer goes back as a letter."""

from __future__ import annotations

from typing import Any

from penstock.core.history import structural_limits
from penstock.core.model import Blob, OutboxKind, OutboxMessage, Run, RunId
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


async def execute(ctx: EngineContext, letter: OutboxMessage) -> bool:
    """Do what a letter asks, in a transaction of its receiver, which also posts the answer."""

    async def act(tx: Tx, receiver: Run) -> bool:
        if await tx.outbox.lock(letter.message_id) is None:
            return False
        tx.outbox.delete(letter.message_id)
        refusal: tuple[str, str] | None = None
        try:
            await _do(ctx, tx, receiver, letter)
        except Unavailable:
            raise
        except PenstockError as error:
            refusal = _told(error)
        outbox.answer(tx, letter, refusal)
        return True

    address = Address(letter.namespace, letter.workflow_id, RunId(letter.run_id) if letter.run_id else None)
    try:
        return await on_run(ctx, address, act)
    except NotFound as error:
        return await _turn_down(ctx, letter, error)
    except Conflict as error:
        if error.reason is not Reason.HISTORICAL_RUN_COMMAND_REJECTED:
            raise
        return await _turn_down(ctx, letter, error)


async def _do(ctx: EngineContext, tx: Tx, receiver: Run, letter: OutboxMessage) -> None:
    """The effect on the receiver. Everything is checked before anything is recorded."""
    check_workflow(receiver)
    check_open(receiver)
    asked = outbox.external_request_of(letter)
    if asked.get("children_only") and receiver.lineage.parent_run_id != asked["sender_run_id"]:
        raise Conflict(
            Reason.RUN_NOT_ACTIVE,
            f"The child has ended; {receiver.workflow_id!r} is the id of another workflow by now.",
        )
    if letter.kind is OutboxKind.EXTERNAL_CANCEL:
        reason = asked.get("reason") or f"requested by {asked['sender_workflow_id']}"
        await end_open(ctx, tx, receiver, EndMode.CANCEL, reason)
        return
    signal = _signal(letter, asked)
    check_contract(await contracts_of(ctx, tx, receiver), receiver, signal.request)
    await check_accepts_signals(tx, receiver)
    structural_limits.check_signal(receiver, ctx.bounds)
    receiver = counted(receiver)
    tx.runs.save(await record_external_event(tx, receiver, [received(receiver, signal)]))


def _signal(letter: OutboxMessage, asked: dict[str, Any]) -> Signal:
    address = Address(letter.namespace, letter.workflow_id)
    return Signal(address, str(asked["signal_name"]), Blob(asked["arguments"]))


def _told(error: PenstockError) -> tuple[str, str]:
    return _KINDS.get(error.reason, error.reason.value), error.message


async def _turn_down(ctx: EngineContext, letter: OutboxMessage, error: PenstockError) -> bool:
    """Answer a letter whose receiver is not there."""

    async def operation(tx: Tx) -> bool:
        if await tx.outbox.lock(letter.message_id) is None:
            return False
        tx.outbox.delete(letter.message_id)
        outbox.answer(tx, letter, _told(error))
        return True

    return await ctx.store.transact(operation, key=letter.message_id)
