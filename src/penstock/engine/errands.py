"""What one run asks of another: a signal, or to end. The answer goes back as a letter."""

from __future__ import annotations

from typing import Any

from penstock.core.history import bounds, lineage
from penstock.core.model import Blob, Letter, LetterKind, Run, RunId
from penstock.engine import letters
from penstock.engine.addressing import Address, check_open, check_workflow, on_run
from penstock.engine.closing import End, end_open
from penstock.engine.house import House
from penstock.engine.recording import tell
from penstock.engine.requests import check_contract, contracts_of
from penstock.engine.signals import Signal, check_listening, counted, received
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


async def run(house: House, letter: Letter) -> bool:
    """Do what a letter asks, in a transaction of its receiver, which also posts the answer."""

    async def act(tx: Tx, receiver: Run) -> bool:
        if await tx.letters.lock(letter.letter_id) is None:
            return False
        tx.letters.delete(letter.letter_id)
        refusal: tuple[str, str] | None = None
        try:
            await _do(house, tx, receiver, letter)
        except Unavailable:
            raise
        except PenstockError as error:
            refusal = _told(error)
        letters.answer(tx, letter, refusal)
        return True

    address = Address(letter.namespace, letter.workflow_id, RunId(letter.run_id) if letter.run_id else None)
    try:
        return await on_run(house, address, act)
    except NotFound as error:
        return await _turn_down(house, letter, error)
    except Conflict as error:
        if error.reason is not Reason.HISTORICAL_RUN_COMMAND_REJECTED:
            raise
        return await _turn_down(house, letter, error)


async def _do(house: House, tx: Tx, receiver: Run, letter: Letter) -> None:
    """The effect on the receiver. Everything is checked before anything is recorded."""
    check_workflow(receiver)
    check_open(receiver)
    asked = letters.asked_in(letter)
    if asked.get("children_only") and lineage.of(receiver).parent_run_id != asked["sender_run_id"]:
        raise Conflict(
            Reason.RUN_NOT_ACTIVE,
            f"The child has ended; {receiver.workflow_id!r} is the id of another workflow by now.",
        )
    if letter.kind is LetterKind.EXTERNAL_CANCEL:
        reason = asked.get("reason") or f"requested by {asked['sender_workflow_id']}"
        await end_open(house, tx, receiver, End.CANCEL, reason)
        return
    signal = _signal(letter, asked)
    check_contract(await contracts_of(house, tx, receiver), receiver, signal.request)
    await check_listening(tx, receiver)
    bounds.check_signal(receiver, house.bounds)
    receiver = counted(receiver)
    tx.runs.save(await tell(tx, receiver, [received(receiver, signal)]))


def _signal(letter: Letter, asked: dict[str, Any]) -> Signal:
    address = Address(letter.namespace, letter.workflow_id)
    return Signal(address, str(asked["signal_name"]), Blob(asked["arguments"]))


def _told(error: PenstockError) -> tuple[str, str]:
    return _KINDS.get(error.reason, error.reason.value), error.message


async def _turn_down(house: House, letter: Letter, error: PenstockError) -> bool:
    """Answer a letter whose receiver is not there."""

    async def operation(tx: Tx) -> bool:
        if await tx.letters.lock(letter.letter_id) is None:
            return False
        tx.letters.delete(letter.letter_id)
        letters.answer(tx, letter, _told(error))
        return True

    return await house.store.transact(operation, key=letter.letter_id)
