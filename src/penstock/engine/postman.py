"""Delivering letters between runs."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.model import ChildState, Letter, LetterKind, Run, RunId
from penstock.engine import errands, letters
from penstock.engine.addressing import Address, on_run
from penstock.engine.closing import End, end_open
from penstock.engine.house import House
from penstock.engine.recording import tell
from penstock.errors import NotFound
from penstock.ports.store import Tx

_ERRANDS = (LetterKind.EXTERNAL_SIGNAL, LetterKind.EXTERNAL_CANCEL)
_ENDS = {LetterKind.CANCEL: End.CANCEL, LetterKind.TERMINATE: End.TERMINATE}


async def deliver(house: House, letter_id: str) -> bool:
    """Let a letter have its effect, once."""

    async def operation(tx: Tx) -> Letter | None:
        return await tx.letters.get(letter_id)

    letter = await house.store.read(operation)
    if letter is None:
        return False
    if letter.kind in _ENDS:
        return await _end(house, letter)
    if letter.kind in _ERRANDS:
        return await errands.run(house, letter)
    if letter.kind is LetterKind.EXTERNAL_ANSWER:
        return await _answer(house, letter)
    return await _tell_parent(house, letter)


async def _tell_parent(house: House, letter: Letter) -> bool:
    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(RunId(letter.run_id))
        if await tx.letters.get(letter.letter_id) is None:
            return False
        tx.letters.delete(letter.letter_id)
        child = await tx.children.get(RunId(letter.run_id), letters.step_of(letter))
        if run is None or not run.is_open or child is None or child.state is not ChildState.OPEN:
            return True
        if letter.kind is LetterKind.CHILD_ENDED:
            tx.children.save(replace(child, state=ChildState.CLOSED))
            run = replace(run, open_children=run.open_children - 1)
        run = await tell(tx, run, [letters.news(child, letter)])
        tx.runs.save(run)
        return True

    return await house.store.transact(operation, key=letter.run_id)


async def _answer(house: House, letter: Letter) -> bool:
    """Tell a run what became of what it asked of another."""

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(RunId(letter.run_id))
        if await tx.letters.get(letter.letter_id) is None:
            return False
        tx.letters.delete(letter.letter_id)
        if run is not None and run.is_open:
            tx.runs.save(await tell(tx, run, [letters.answer_in(letter)]))
        return True

    return await house.store.transact(operation, key=letter.run_id)


async def _end(house: House, letter: Letter) -> bool:
    async def act(tx: Tx, run: Run) -> bool:
        if await tx.letters.get(letter.letter_id) is None:
            return False
        tx.letters.delete(letter.letter_id)
        if run.is_open and letters.is_for(letter, run):
            await end_open(house, tx, run, _ENDS[letter.kind], letters.reason_of(letter))
        return True

    try:
        return await on_run(house, Address(letter.namespace, letter.workflow_id), act)
    except NotFound:
        return await _discard(house, letter.letter_id)


async def _discard(house: House, letter_id: str) -> bool:
    """Throw away a letter whose receiver is no more."""

    async def operation(tx: Tx) -> bool:
        tx.letters.delete(letter_id)
        return True

    return await house.store.transact(operation, key=letter_id)
