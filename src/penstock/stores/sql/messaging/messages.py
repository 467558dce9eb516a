"""Messages sent to workflows, in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.messaging.messages import REMEMBERED, Message, MessageStream
from penstock.core.model import RunId
from penstock.stores.sql.session import Repository


class SqlMessages(Repository):
    async def streams_of(self, run_id: RunId) -> Sequence[MessageStream]:
        rows = await self._session.fetch("message_streams_of_run", run_id)
        return [MessageStream(*row[1:]) for row in rows]

    async def find(self, namespace: str, workflow_id: str, stream: str, message_id: str) -> Message | None:
        rows = await self._session.fetch("find_message", namespace, workflow_id, stream, message_id)
        return Message(*rows[0][1:]) if rows else None

    async def undelivered(self, stream: MessageStream) -> Sequence[Message]:
        name = (stream.namespace, stream.workflow_id, stream.name)
        rows = await self._session.fetch("undelivered_messages", *name, stream.delivered_position)
        return [Message(*row[1:]) for row in rows]

    def save(self, stream: MessageStream) -> None:
        self._session.record("save_message_stream", *astuple(stream))

    def insert(self, message: Message) -> None:
        self._session.record("insert_message", *astuple(message))

    def mark_read(self, stream: MessageStream, after: int) -> None:
        name, through = (stream.namespace, stream.workflow_id, stream.name), stream.through_position
        self._session.record("mark_messages_read", *name, after, through)
        if through > REMEMBERED:
            self._session.record("forget_messages", *name, through - REMEMBERED)

    def hand_over(self, stream: MessageStream) -> None:
        name = (stream.namespace, stream.workflow_id, stream.name)
        self._session.record("carry_messages_over", *name, stream.through_position, stream.run_id)
