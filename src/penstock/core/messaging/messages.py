"""Message streams: messages that callers send to a workflow, numbered per stream and read in order.

Positions belong to the workflow id, not to a run: a run that continues another reads on where that one stopped.
A message is delivered to the code only while it waits for that stream. So no other wait is affected, and replay never
finds a message before the wait that consumes it. Stepwise code waits by a condition of a reserved name; concurrent code
names the streams that it reads in each completion. The input of a read message is kept only in the history. Its id is
kept for deduplication until a thousand more messages of its stream were read, or until the run that read it is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import payload_codec
from penstock.core.history.events import CODEC, MESSAGE_STREAM_SIGNAL, EventType
from penstock.core.history.structural_limits import exceeded
from penstock.core.model import Blob, NewEvent, Run, RunId

REMEMBERED: Final = 1_000
"""The number of read messages per stream whose ids are kept for deduplication."""
STREAMS_MAX: Final = 100
"""Message streams of one workflow."""
MESSAGE_SCHEMA: Final = "durable-workflow.v2.message-stream.message"
CURSOR_SCHEMA: Final = "durable-workflow.v2.message-stream.cursor"
_KEY: Final = "message-stream:"
"""The prefix of conditions that are met by the next message of a stream."""


class MessageStream(Struct, frozen=True):
    """The write and read positions of one stream."""

    namespace: str
    workflow_id: str
    name: str
    run_id: RunId
    """The run that receives the messages now."""
    last_position: int = 0
    delivered_position: int = 0
    """The position up to which messages were delivered to the code."""
    through_position: int = 0

    @property
    def unread(self) -> int:
        return self.last_position - self.through_position


class Message(Struct, frozen=True):
    namespace: str
    workflow_id: str
    stream: str
    position: int
    run_id: RunId
    """The run that it was last sent to."""
    message_id: str
    digest: str
    input: Blob | None
    """None after it was read."""
    at_ms: int


class Cursor(Struct, frozen=True):
    """The read position that workflow code reports for one stream."""

    stream_name: str
    through_position: int


def check_room(streams: Sequence[MessageStream], name: str, unread_max: int) -> None:
    """Check that another message fits; a run that continues as new takes all unread ones along.

    Raises `structural_limit_exceeded`.
    """
    unread = sum(stream.unread for stream in streams) + 1
    if unread > unread_max:
        raise exceeded("pending_signal_count", unread, unread_max)
    if len(streams) >= STREAMS_MAX and all(stream.name != name for stream in streams):
        raise exceeded("message_stream_count", len(streams) + 1, STREAMS_MAX)


def advanced(stream: MessageStream, cursors: Sequence[Cursor]) -> MessageStream:
    """The stream with advanced read positions, which never go back or beyond the last message."""
    reported = [each.through_position for each in cursors if each.stream_name == stream.name]
    through = min(max([stream.through_position, *reported]), stream.last_position)
    return replace(
        stream, through_position=through, delivered_position=max(stream.delivered_position, through)
    )


def awaited_streams(run: Run) -> Sequence[str]:
    """The streams whose next messages the code awaits: one at most, unless the run is concurrent."""
    if run.waits.concurrent:
        return run.waits.streams
    condition = run.waits.condition
    if condition is None or condition.fired or not (condition.key or "").startswith(_KEY):
        return ()
    return ((condition.key or "").removeprefix(_KEY).rpartition(":")[0],)


def delivery(message: Message) -> NewEvent:
    """The event that delivers a message: a signal with a reserved name."""
    assert message.input is not None, "a message that was read is not delivered again"
    body: dict[str, object] = {
        "schema": MESSAGE_SCHEMA,
        "stream_name": message.stream,
        "message_id": message.message_id,
        "position": message.position,
        "payload_envelope": {"codec": CODEC, "blob": message.input},
    }
    about = {"message_id": message.message_id, "position": message.position}
    return _signal(message.stream, body, about)


def read_receipt(stream: MessageStream) -> NewEvent:
    """The event that tells a continuing run how far its predecessor has read."""
    body: dict[str, object] = {
        "schema": CURSOR_SCHEMA,
        "stream_name": stream.name,
        "through_position": stream.through_position,
    }
    return _signal(stream.name, body, {"through_position": stream.through_position})


def is_delivery(event: NewEvent) -> bool:
    return (
        event.type == EventType.SIGNAL_RECEIVED and event.payload.get("signal_name") == MESSAGE_STREAM_SIGNAL
    )


def _signal(stream: str, body: dict[str, object], about: dict[str, object]) -> NewEvent:
    payload = {
        "signal_name": MESSAGE_STREAM_SIGNAL,
        "arguments": payload_codec.encode([body]),
        "payload_codec": CODEC,
        "stream_name": stream,
    }
    return NewEvent(EventType.SIGNAL_RECEIVED, payload | about)
