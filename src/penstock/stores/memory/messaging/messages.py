"""Messages sent to workflows, by stream and position."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.messaging.messages import REMEMBERED, Message, MessageStream
from penstock.core.model import RunId
from penstock.stores.memory.tables import MemoryRepository, StreamName


class MemoryMessages(MemoryRepository):
    async def streams_of(self, run_id: RunId) -> Sequence[MessageStream]:
        found = [each for each in self._tables.message_streams.values() if each.run_id == run_id]
        return sorted(found, key=lambda stream: stream.name)

    async def find(self, namespace: str, workflow_id: str, stream: str, message_id: str) -> Message | None:
        position = self._tables.message_ids.of((namespace, workflow_id, stream)).get(message_id)
        if position is None:
            return None
        return self._tables.messages.of((namespace, workflow_id, stream))[position]

    async def undelivered(self, stream: MessageStream) -> Sequence[Message]:
        messages = self._tables.messages.of(_name(stream))
        return [messages[position] for position in sorted(messages) if position > stream.delivered_position]

    def save(self, stream: MessageStream) -> None:
        def write() -> None:
            name = _name(stream)
            before = self._tables.message_streams.get(name)
            assert stream.delivered_position <= stream.last_position, "only sent messages are delivered"
            assert stream.through_position <= stream.delivered_position, "only delivered messages are read"
            assert before is None or before.last_position <= stream.last_position, "positions only grow"
            assert before is None or before.through_position <= stream.through_position, "cursors only grow"
            self._changes.put(self._tables.message_streams, name, stream)

        self._changes.record(write)

    def insert(self, message: Message) -> None:
        def write() -> None:
            name = (message.namespace, message.workflow_id, message.stream)
            known = self._tables.message_ids.of(name)
            assert message.message_id not in known, f"message {message.message_id!r} exists"
            assert message.position not in self._tables.messages.of(name), "a position is taken once"
            self._changes.add(self._tables.message_ids, name, message.message_id, message.position)
            self._changes.add(self._tables.messages, name, message.position, message)

        self._changes.record(write)

    def mark_read(self, stream: MessageStream, after: int) -> None:
        def write() -> None:
            name, through = _name(stream), stream.through_position
            for position, message in [*self._tables.messages.of(name).items()]:
                if position <= through - REMEMBERED:
                    self._changes.remove(self._tables.messages, name, position)
                    self._changes.remove(self._tables.message_ids, name, message.message_id)
                elif after < position <= through:
                    self._put(name, replace(message, input=None))

        self._changes.record(write)

    def hand_over(self, stream: MessageStream) -> None:
        def write() -> None:
            name = _name(stream)
            for position, message in [*self._tables.messages.of(name).items()]:
                if position > stream.through_position:
                    self._put(name, replace(message, run_id=stream.run_id))

        self._changes.record(write)

    def _put(self, name: StreamName, message: Message) -> None:
        self._changes.add(self._tables.messages, name, message.position, message)


def _name(stream: MessageStream) -> StreamName:
    return stream.namespace, stream.workflow_id, stream.name
