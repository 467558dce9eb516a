"""Delivering letters between runs."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.model import ChildState, OutboxKind, OutboxMessage, Run, RunId
from penstock.engine.context import EngineContext
from penstock.engine.messaging import outbox
from penstock.engine.runs.address import Address, on_run
from penstock.engine.runs.history_writer import record_external_event
from penstock.engine.workflows import external_requests
from penstock.engine.workflows.run_close import EndMode, end_open
from penstock.errors import NotFound
from penstock.ports.store import Tx

_ERRANDS = (OutboxKind.EXTERNAL_SIGNAL, OutboxKind.EXTERNAL_CANCEL)
_ENDS = {OutboxKind.CANCEL: EndMode.CANCEL, OutboxKind.TERMINATE: EndMode.TERMINATE}


async def deliver(ctx: EngineContext, message_id: str) -> bool:
    """Let a letter have its effect, once."""

    async def operation(tx: Tx) -> OutboxMessage | None:
        return await tx.outbox.get(message_id)

    letter = await ctx.store.read(operation)
    if letter is None:
        return False
    if letter.kind in _ENDS:
        return await _end(ctx, letter)
    if letter.kind in _ERRANDS:
        return await external_requests.execute(ctx, letter)
    if letter.kind is OutboxKind.EXTERNAL_ANSWER:
        return await _answer(ctx, letter)
    return await _tell_parent(ctx, letter)


async def _tell_parent(ctx: EngineContext, letter: OutboxMessage) -> bool:
    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(RunId(letter.run_id))
        if await tx.outbox.get(letter.message_id) is None:
            return False
        tx.outbox.delete(letter.message_id)
        child = await tx.children.get(RunId(letter.run_id), outbox.step_of(letter))
        if run is None or not run.is_open or child is None or child.state is not ChildState.OPEN:
            return True
        if letter.kind is OutboxKind.CHILD_ENDED:
            tx.children.save(replace(child, state=ChildState.CLOSED))
            run = replace(run, open_children=run.open_children - 1)
        run = await record_external_event(tx, run, [outbox.news(child, letter)])
        tx.runs.save(run)
        return True

    return await ctx.store.transact(operation, key=letter.run_id)


async def _answer(ctx: EngineContext, letter: OutboxMessage) -> bool:
    """Tell a run what became of what it asked of another."""

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(RunId(letter.run_id))
        if await tx.outbox.get(letter.message_id) is None:
            return False
        tx.outbox.delete(letter.message_id)
        if run is not None and run.is_open:
            tx.runs.save(await record_external_event(tx, run, [outbox.answer_event(letter)]))
        return True

    return await ctx.store.transact(operation, key=letter.run_id)


async def _end(ctx: EngineContext, letter: OutboxMessage) -> bool:
    async def act(tx: Tx, run: Run) -> bool:
        if await tx.outbox.get(letter.message_id) is None:
            return False
        tx.outbox.delete(letter.message_id)
        if run.is_open and outbox.is_for(letter, run):
            await end_open(ctx, tx, run, _ENDS[letter.kind], outbox.reason_of(letter))
        return True

    try:
        return await on_run(ctx, Address(letter.namespace, letter.workflow_id), act)
    except NotFound:
        return await _discard(ctx, letter.message_id)


async def _discard(ctx: EngineContext, message_id: str) -> bool:
    """Throw away a letter whose receiver is no more."""

    async def operation(tx: Tx) -> bool:
        tx.outbox.delete(message_id)
        return True

    return await ctx.store.transact(operation, key=message_id)
