"""The outbox in SQL: messages between runs, until they are delivered."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.model import OutboxKind, OutboxMessage
from penstock.stores.sql.session import Repository, Rows


class SqlOutbox(Repository):
    async def get(self, message_id: str) -> OutboxMessage | None:
        return _first(await self._session.fetch("get_outbox_message", message_id))

    async def lock(self, message_id: str) -> OutboxMessage | None:
        return _first(await self._session.fetch("lock_outbox_message", message_id))

    async def waiting(self, limit: int) -> Sequence[str]:
        return [row[1] for row in await self._session.fetch("waiting_outbox_messages", limit)]

    def insert(self, message: OutboxMessage) -> None:
        self._session.record("insert_outbox_message", *astuple(message))

    def delete(self, message_id: str) -> None:
        self._session.record("delete_outbox_message", message_id)


def _first(rows: Rows) -> OutboxMessage | None:
    if not rows:
        return None
    _, message_id, namespace, workflow_id, run_id, kind, payload, created_at_ms = rows[0]
    return OutboxMessage(message_id, namespace, workflow_id, run_id, OutboxKind(kind), payload, created_at_ms)
