"""Message streams of a workflow: each message is appended once and delivered to the code in stream order."""

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
    awaited_streams,
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
    """A message to be appended to a stream of a workflow."""

    address: Address
    stream: str
    message_id: str
    input: Blob

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.input.encode()).hexdigest()


class MessageReceipt(Struct, frozen=True):
    """The position that a message has in its stream."""

    run: Run
    position: int
    repeated: bool = False
    """Whether the message was appended before, under the same id."""


async def send(ctx: EngineContext, message_out: OutgoingMessage) -> MessageReceipt:
    """Append a message to its stream, once per message id, and deliver it if the code waits for that stream.

    The run's lock guards all its streams.
    """

    async def act(tx: Tx, run: Run) -> MessageReceipt:
        check_workflow(run)
        before = await tx.messages.find(
            run.namespace, run.workflow_id, message_out.stream, message_out.message_id
        )
        if before is not None:
            _check_same(before, message_out)
            return MessageReceipt(run, before.position, repeated=True)
        check_open(run)
        structural_limits.check_signal(run, ctx.bounds)
        streams = await tx.messages.streams_of(run.run_id)
        check_room(streams, message_out.stream, ctx.bounds.unseen_signals_max)
        stream = _next(streams, run, message_out.stream)
        message = _message(run, stream, message_out, tx.now_ms)
        tx.messages.insert(message)
        if stream.name in awaited_streams(run) and not await may_close_with_unhandled_signal(tx, run):
            run = await record_external_event(tx, counted(run), [delivery(message)])
            tx.runs.save(run)
            stream = replace(stream, delivered_position=stream.last_position)
        tx.messages.save(stream)
        return MessageReceipt(run, message.position)

    return await on_run(ctx, message_out.address, act)


def _check_same(before: Message, message_out: OutgoingMessage) -> None:
    if before.digest != message_out.digest:
        raise Conflict(
            Reason.REQUEST_ID_CONFLICT,
            f"The message id {message_out.message_id!r} was used in {message_out.stream!r} for another message. "
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
    """The named stream with its last position advanced by one."""
    new = MessageStream(run.namespace, run.workflow_id, name, run.run_id)
    stream = next((each for each in streams if each.name == name), new)
    return replace(stream, last_position=stream.last_position + 1)


def _message(run: Run, stream: MessageStream, message_out: OutgoingMessage, now_ms: int) -> Message:
    return Message(
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        stream=stream.name,
        position=stream.last_position,
        run_id=run.run_id,
        message_id=message_out.message_id,
        digest=message_out.digest,
        input=message_out.input,
        at_ms=now_ms,
    )


async def after_task(tx: Tx, run: Run, cursors: Sequence[Cursor]) -> tuple[Run, bool]:
    """Record the code's read positions, and deliver pending messages of the stream that it waits for.

    Returns whether something was delivered.
    """
    wanted = awaited_streams(run)
    undelivered: list[Message] = []
    if not wanted and not cursors:
        return run, False
    for stream in await tx.messages.streams_of(run.run_id):
        now = advanced(stream, cursors)
        if stream.name in wanted and now.delivered_position < now.last_position:
            undelivered += await tx.messages.undelivered(now)
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
    """Move the streams of a run to its successor; returns events with the positions read so far.

    Unread messages are delivered when the successor waits for them. `cursors` are those of the last workflow task.
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
    """Move the streams of a workflow id to a new run that does not continue the last one.

    Positions continue per workflow id. Messages sent to earlier runs stay theirs: the new run reads from there on.
    """
    events: list[NewEvent] = []
    for stream in await tx.messages.streams_of(closed.run_id):
        last = stream.last_position
        now = replace(stream, run_id=run.run_id, delivered_position=last, through_position=last)
        tx.messages.save(now)
        events.append(read_receipt(now))
    return events
