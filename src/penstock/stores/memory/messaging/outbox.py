"""The outbox: messages between runs, until they are delivered."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from penstock.core.model import OutboxMessage
from penstock.stores.memory.tables import MemoryRepository


class MemoryOutbox(MemoryRepository):
    async def get(self, message_id: str) -> OutboxMessage | None:
        return self._tables.outbox.get(message_id)

    async def lock(self, message_id: str) -> OutboxMessage | None:
        return await self.get(message_id)

    async def waiting(self, limit: int) -> Sequence[str]:
        written = ((message.created_at_ms, message.message_id) for message in self._tables.outbox.values())
        return [message_id for _, message_id in heapq.nsmallest(limit, written)]

    def insert(self, message: OutboxMessage) -> None:
        def write() -> None:
            assert message.message_id not in self._tables.outbox, f"message {message.message_id} exists"
            self._changes.put(self._tables.outbox, message.message_id, message)

        self._changes.record(write)

    def delete(self, message_id: str) -> None:
        def write() -> None:
            if message_id in self._tables.outbox:
                self._changes.drop(self._tables.outbox, message_id)

        self._changes.record(write)
