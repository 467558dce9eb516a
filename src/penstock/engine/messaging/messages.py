"""Messages: sent to a workflow by stream, each once, and told to its code in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history import structural_limits
from penstock.core.messaging.messages import (
    Cursor,
    Message,
    MessageStream,
    advanced,
    awaits_message,
    check_room,
    delivery,
    read_receipt,
)
from penstock.core.model import Blob, NewEvent, Run
from penstock.engine.context import EngineContext
from penstock.engine.messaging.signals import counted
from penstock.engine.runs.address import Address, check_open, check_workflow, on_run
from penstock.engine.runs.history_writer import append, may_close_with_unhandled_signal, record_external_event
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx


class OutgoingMessage(Struct, frozen=True):
    address: Address
    stream: str
    message_id: str
    input: Blob

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.input.encode()).hexdigest()


class MessageReceipt(Struct, frozen=True):
    run: Run
    position: int
    repeated: bool = False
    """Whether it was sent before, under the same id."""


async def send(ctx: EngineContext, sending: OutgoingMessage) -> MessageReceipt:
    """Give a message the next position of its stream, once for each message id; tell the code if it waits for it.

    The run's lock is the lock of all its streams.
    """

    async def act(tx: Tx, run: Run) -> MessageReceipt:
        check_workflow(run)
        before = await tx.messages.find(run.namespace, run.workflow_id, sending.stream, sending.message_id)
        if before is not None:
            _check_same(before, sending)
            return MessageReceipt(run, before.position, repeated=True)
        check_open(run)
        structural_limits.check_signal(run, ctx.bounds)
        streams = await tx.messages.streams_of(run.run_id)
        check_room(streams, sending.stream, ctx.bounds.unseen_signals_max)
        stream = _next(streams, run, sending.stream)
        message = _message(run, stream, sending, tx.now_ms)
        tx.messages.insert(message)
        if awaits_message(run) == stream.name and not await may_close_with_unhandled_signal(tx, run):
            run = await record_external_event(tx, counted(run), [delivery(message)])
            tx.runs.save(run)
            stream = replace(stream, delivered_position=stream.last_position)
        tx.messages.save(stream)
        return MessageReceipt(run, message.position)

    return await on_run(ctx, sending.address, act)


def _check_same(before: Message, sending: OutgoingMessage) -> None:
    if before.digest != sending.digest:
        raise Conflict(
            Reason.REQUEST_ID_CONFLICT,
            f"The message id {sending.message_id!r} was used in {sending.stream!r} for another message. "
            "Use a new id.",
            workflow_id=before.workflow_id,
            run_id=before.run_id,
            stream_name=before.stream,
            message_id=before.message_id,
            position=before.position,
            retained_command_type="message",
            retained_command_id=before.message_id,
            retained_outcome="message_appended",
            conflict=["input"],
        )


def _next(streams: Sequence[MessageStream], run: Run, name: str) -> MessageStream:
    """The stream with one position more."""
    new = MessageStream(run.namespace, run.workflow_id, name, run.run_id)
    stream = next((each for each in streams if each.name == name), new)
    return replace(stream, last_position=stream.last_position + 1)


def _message(run: Run, stream: MessageStream, sending: OutgoingMessage, now_ms: int) -> Message:
    return Message(
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        stream=stream.name,
        position=stream.last_position,
        run_id=run.run_id,
        message_id=sending.message_id,
        digest=sending.digest,
        input=sending.input,
        at_ms=now_ms,
    )


async def after_task(tx: Tx, run: Run, cursors: Sequence[Cursor]) -> tuple[Run, bool]:
    """Record how far the code has read, and tell it what came meanwhile of the stream that it waits for now.

    True when it was told something.
    """
    wanted = awaits_message(run)
    undelivered: Sequence[Message] = ()
    if wanted is None and not cursors:
        return run, False
    for stream in await tx.messages.streams_of(run.run_id):
        now = advanced(stream, cursors)
        if stream.name == wanted and now.delivered_position < now.last_position:
            undelivered = await tx.messages.undelivered(now)
            now = replace(now, delivered_position=now.last_position)
        if now != stream:
            tx.messages.save(now)
        if now.through_position > stream.through_position:
            tx.messages.mark_read(now, stream.through_position)
    if not undelivered:
        return run, False
    run = replace(run, unseen_signals=run.unseen_signals + len(undelivered))
    return append(tx, run, [delivery(message) for message in undelivered]), True


async def carried_over(tx: Tx, run: Run, successor: Run, cursors: Sequence[Cursor]) -> Sequence[NewEvent]:
    """Hand the streams of a run on to the one that continues it, which must know how far they were read.

    What comes after that it is told when it waits for it. `cursors` are those of the last workflow task.
    """
    events: list[NewEvent] = []
    for stream in await tx.messages.streams_of(run.run_id):
        now = advanced(stream, cursors)
        now = replace(now, run_id=successor.run_id, delivered_position=now.through_position)
        tx.messages.save(now)
        if now.through_position > stream.through_position:
            tx.messages.mark_read(now, stream.through_position)
        if now.unread:
            tx.messages.hand_over(now)
        if now.through_position:
            events.append(read_receipt(now))
    return events


async def begin_after(tx: Tx, closed: Run, run: Run) -> Sequence[NewEvent]:
    """Hand the streams of a workflow id on to a new run that does not continue the last one.

    Positions count for the workflow id and go on. What was sent to earlier runs belongs to them: the new run reads
    what comes next.
    """
    events: list[NewEvent] = []
    for stream in await tx.messages.streams_of(closed.run_id):
        last = stream.last_position
        now = replace(stream, run_id=run.run_id, delivered_position=last, through_position=last)
        tx.messages.save(now)
        events.append(read_receipt(now))
    return events
