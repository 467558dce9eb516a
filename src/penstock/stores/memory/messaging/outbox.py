"""The outbox: messages between runs, until they are delivered."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from penstock.core.model import OutboxMessage
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.tables import Tables


class MemoryOutbox:
    def __init__(self, tables: Tables, changes: Changes) -> None:
        self._tables = tables
        self._changes = changes

    async def get(self, message_id: str) -> OutboxMessage | None:
        return self._tables.outbox.get(message_id)

    async def lock(self, message_id: str) -> OutboxMessage | None:
        return await self.get(message_id)

    async def waiting(self, limit: int) -> Sequence[str]:
        written = ((letter.created_at_ms, letter.message_id) for letter in self._tables.outbox.values())
        return [message_id for _, message_id in heapq.nsmallest(limit, written)]

    def insert(self, letter: OutboxMessage) -> None:
        def write() -> None:
            assert letter.message_id not in self._tables.outbox, f"letter {letter.message_id} exists"
            self._changes.put(self._tables.outbox, letter.message_id, letter)

        self._changes.record(write)

    def delete(self, message_id: str) -> None:
        def write() -> None:
            if message_id in self._tables.outbox:
                self._changes.drop(self._tables.outbox, message_id)

        self._changes.record(write)
