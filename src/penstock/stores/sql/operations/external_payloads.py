"""External payloads and their uses in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.external_payloads import MARK, ExternalPayload, PayloadState, references_in
from penstock.ports.tables.external_payloads import StoredTotals
from penstock.stores.sql.session import Repository, Row, Session


class SqlExternalPayloads(Repository):
    async def get(self, reference_id: str) -> ExternalPayload | None:
        rows = await self._session.fetch("get_external_payload", reference_id)
        return _payload(rows[0]) if rows else None

    async def lock(self, reference_id: str) -> ExternalPayload | None:
        rows = await self._session.fetch("lock_external_payload", reference_id)
        return _payload(rows[0]) if rows else None

    async def is_used(self, reference_id: str) -> bool:
        return bool(await self._session.fetch("external_payload_use", reference_id))

    async def due(self, now_ms: int, limit: int) -> Sequence[str]:
        return [row[1] for row in await self._session.fetch("due_external_payloads", now_ms, limit)]

    async def totals(self, namespace: str) -> StoredTotals:
        rows = await self._session.fetch("external_payload_totals", namespace)
        return StoredTotals(*rows[0][1:])

    def insert(self, payload: ExternalPayload) -> None:
        self._session.record("insert_external_payload", *astuple(payload))

    def settle(self, reference_id: str, state: PayloadState, check_at_ms: int | None) -> None:
        self._session.record("settle_external_payload", reference_id, state.value, check_at_ms)

    def delete(self, reference_id: str) -> None:
        self._session.record("delete_external_payload", reference_id)

    async def release(self, owner: str, most: int, check_at_ms: int) -> int:
        return await release_uses(self._session, owner, most, check_at_ms)


async def release_uses(session: Session, owner: str, most: int, check_at_ms: int) -> int:
    """Delete up to `most` uses of an owner, and have their objects looked at; returns how many there were."""
    released = await session.fetch("release_payload_uses", owner, most)
    for row in released:
        session.record("check_external_payload", row[1], check_at_ms)
    return len(released)


def record_uses(session: Session, owner: str, text: str) -> None:
    """Record that the rows of an owner hold the references in a text. Most texts have none: it costs one search."""
    if MARK in text:
        for reference_id in references_in(text):
            session.record("insert_payload_use", owner, reference_id)


def _payload(row: Row) -> ExternalPayload:
    values = list(row[1:])
    values[5] = PayloadState(values[5])
    return ExternalPayload(*values)
