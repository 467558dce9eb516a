"""Delivering outbox messages to the runs they are for: each takes effect once, in the receiver's transaction.

This is the relay half of the transactional outbox: the sender records a message in its own transaction
(`messaging.outbox`), the relay applies it and deletes it in one transaction of the receiver. A crash in between repeats
the delivery, and the delete under the receiver's lock makes it exactly once. Sender and receiver are never locked
together, so deliveries cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from penstock.core.model import ChildState, OutboxKind, OutboxMessage, Run, RunId
from penstock.engine.context import EngineContext
from penstock.engine.messaging import outbox
from penstock.engine.runs.address import Address, on_run
from penstock.engine.runs.history_writer import record_external_event
from penstock.engine.workflows import cancellation_requests, external_requests
from penstock.engine.workflows.run_close import EndMode, end_open
from penstock.errors import NotFound
from penstock.ports.store import Tx

_EXTERNAL_REQUESTS = (OutboxKind.EXTERNAL_SIGNAL, OutboxKind.EXTERNAL_CANCEL)
_ENDS = {OutboxKind.CANCEL: EndMode.CANCEL, OutboxKind.TERMINATE: EndMode.TERMINATE}


Deliver = Callable[[EngineContext, OutboxMessage], Awaitable[bool]]


async def deliver(ctx: EngineContext, message_id: str, fire_closed: Deliver | None = None) -> bool:
    """Apply an outbox message and delete it; False if another server has done so already.

    `fire_closed` delivers what is for a schedule.
    """

    message = await ctx.store.read(lambda tx: tx.outbox.get(message_id))
    if message is None:
        return False
    if message.kind is OutboxKind.FIRE_CLOSED:
        assert fire_closed is not None, "schedules report to the sweeper's relay"
        return await fire_closed(ctx, message)
    if message.kind in _ENDS:
        return await _end_child(ctx, message)
    if message.kind in _EXTERNAL_REQUESTS:
        return await external_requests.execute(ctx, message)
    if message.kind is OutboxKind.EXTERNAL_ANSWER:
        return await _deliver_answer(ctx, message)
    return await _notify_parent(ctx, message)


async def _notify_parent(ctx: EngineContext, message: OutboxMessage) -> bool:
    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(RunId(message.run_id))
        if await tx.outbox.get(message.message_id) is None:
            return False
        tx.outbox.delete(message.message_id)
        child = await tx.children.get(RunId(message.run_id), outbox.step_of(message))
        if run is None or not run.is_open or child is None or child.state is not ChildState.OPEN:
            return True
        if message.kind is OutboxKind.CHILD_ENDED:
            tx.children.save(replace(child, state=ChildState.CLOSED))
            run = replace(run, open_children=run.open_children - 1)
        run = await record_external_event(tx, run, [outbox.child_event(child, message)])
        tx.runs.save(run)
        return True

    return await ctx.store.transact(operation, key=message.run_id)


async def _deliver_answer(ctx: EngineContext, message: OutboxMessage) -> bool:
    """Record the answer to an external request in the history of the run that sent it."""

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(RunId(message.run_id))
        if await tx.outbox.get(message.message_id) is None:
            return False
        tx.outbox.delete(message.message_id)
        if run is not None and run.is_open:
            tx.runs.save(await record_external_event(tx, run, [outbox.answer_event(message)]))
        return True

    return await ctx.store.transact(operation, key=message.run_id)


async def _end_child(ctx: EngineContext, message: OutboxMessage) -> bool:
    async def act(tx: Tx, run: Run) -> bool:
        if await tx.outbox.get(message.message_id) is None:
            return False
        tx.outbox.delete(message.message_id)
        if not run.is_open or not outbox.is_for(message, run):
            return True
        deadline_ms = outbox.deadline_of(message)
        if deadline_ms is not None:
            await cancellation_requests.cancel_child(ctx, tx, run, outbox.reason_of(message), deadline_ms)
        else:
            await end_open(ctx, tx, run, _ENDS[message.kind], outbox.reason_of(message))
        return True

    try:
        return await on_run(ctx, Address(message.namespace, message.workflow_id), act)
    except NotFound:
        return await _discard(ctx, message.message_id)


async def _discard(ctx: EngineContext, message_id: str) -> bool:
    """Delete a message whose receiver no longer exists."""

    async def operation(tx: Tx) -> bool:
        tx.outbox.delete(message_id)
        return True

    return await ctx.store.transact(operation, key=message_id)
