"""Message streams: positions, deduplication by id, and undelivered messages."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.messaging.messages import REMEMBERED, Message, MessageStream
from penstock.core.model import Blob, RunId
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS

R1, R2 = RunId("r1"), RunId("r2")


def a_stream(name: str = "orders", **changes: Any) -> MessageStream:
    return replace(MessageStream("default", "order-1", name, R1), **changes)


def a_message(position: int = 1, **changes: Any) -> Message:
    plain = Message(
        namespace="default",
        workflow_id="order-1",
        stream="orders",
        position=position,
        run_id=R1,
        message_id=f"m{position}",
        digest=f"d{position}",
        input=Blob("wwE="),
        at_ms=NOW_MS + position,
    )
    return replace(plain, **changes)


async def write(store: Store, stream: MessageStream, *messages: Message) -> None:
    def both(tx: Tx) -> None:
        tx.messages.save(stream)
        for message in messages:
            tx.messages.insert(message)

    await record(store, both)


async def find(store: Store, message_id: str, stream: str = "orders") -> Message | None:
    return await look(store, lambda tx: tx.messages.find("default", "order-1", stream, message_id))


async def undelivered(store: Store, **changes: Any) -> list[Message]:
    return [*await look(store, lambda tx: tx.messages.undelivered(a_stream(**changes)))]


async def test_a_message_is_found_by_its_id_within_its_stream(store: Store):
    message = a_message(message_id="größer als 1")
    await write(store, a_stream(last_position=1), message)
    assert await find(store, "größer als 1") == message
    assert await find(store, "größer als 1", "others") is None
    assert await find(store, "m1") is None


async def test_the_streams_of_a_run_come_by_name(store: Store):
    await write(store, a_stream("b", last_position=2, delivered_position=2, through_position=1))
    await write(store, a_stream("a"))
    await write(store, a_stream("c", workflow_id="order-2", run_id=R2))
    streams = await look(store, lambda tx: tx.messages.streams_of(R1))
    assert streams == [
        a_stream("a"),
        a_stream("b", last_position=2, delivered_position=2, through_position=1),
    ]
    assert streams[1].unread == 1


async def test_a_stream_that_is_saved_again_replaces_what_was_known(store: Store):
    await write(store, a_stream(last_position=3))
    later = a_stream(last_position=4, delivered_position=4, through_position=3, run_id=R2)
    await write(store, later)
    assert await look(store, lambda tx: tx.messages.streams_of(R1)) == []
    assert await look(store, lambda tx: tx.messages.streams_of(R2)) == [later]


async def test_what_the_code_was_not_told_of_comes_by_position(store: Store):
    messages = [a_message(position) for position in (1, 2, 3)]
    await write(store, a_stream(last_position=3), messages[2], messages[0], messages[1])
    await write(store, a_stream("others", last_position=1), a_message(1, stream="others"))
    assert await undelivered(store) == messages
    assert await undelivered(store, delivered_position=2) == [messages[2]]
    assert await undelivered(store, delivered_position=3) == []


async def test_a_message_that_was_read_leaves_its_input_and_keeps_its_id(store: Store):
    messages = [a_message(position) for position in (1, 2, 3)]
    await write(store, a_stream(last_position=3), *messages)
    read = a_stream(last_position=3, through_position=2)
    await record(store, lambda tx: tx.messages.mark_read(read, after=0))
    assert await find(store, "m2") == replace(messages[1], input=None)
    assert await find(store, "m3") == messages[2]


async def test_an_id_is_forgotten_when_so_many_more_messages_were_read(store: Store):
    await write(store, a_stream(last_position=3), *(a_message(position) for position in (1, 2, 3)))
    read = a_stream(last_position=REMEMBERED + 2, through_position=REMEMBERED + 2)
    await record(store, lambda tx: tx.messages.mark_read(read, after=0))
    assert await find(store, "m1") is None
    assert await find(store, "m2") is None
    assert await find(store, "m3") == a_message(3, input=None)


async def test_what_is_unread_belongs_to_the_run_that_has_the_stream(store: Store):
    messages = [a_message(position) for position in (1, 2)]
    await write(store, a_stream(last_position=2), *messages)
    moved = a_stream(last_position=2, delivered_position=1, through_position=1, run_id=R2)
    await record(store, lambda tx: tx.messages.hand_over(moved))
    assert await find(store, "m1") == messages[0]
    assert await find(store, "m2") == replace(messages[1], run_id=R2)


@pytest.mark.parametrize("again", [a_message(2, message_id="m1"), a_message(1, message_id="other")])
async def test_a_position_and_an_id_are_taken_once(store: Store, again: Message):
    await write(store, a_stream(last_position=1), a_message())
    with pytest.raises(Exception, match=r"(?i)unique|duplicate|exists|taken"):
        await write(store, a_stream(last_position=2), again)
    assert await undelivered(store) == [a_message()]
