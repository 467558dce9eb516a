"""Streams written by runs, in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from penstock.core.messaging.streams import StreamItem, StreamOrigin, StreamStatus, WorkflowStream
from penstock.core.model import RunId
from penstock.stores.sql.operations.external_payloads import record_uses
from penstock.stores.sql.session import Repository, Row


class SqlStreams(Repository):
    async def get(self, run_id: RunId, name: str) -> WorkflowStream | None:
        rows = await self._session.fetch("get_stream", run_id, name)
        return _stream(rows[0]) if rows else None

    async def of_run(self, run_id: RunId) -> Sequence[WorkflowStream]:
        return [_stream(row) for row in await self._session.fetch("streams_of_run", run_id)]

    async def offsets(self, run_id: RunId, name: str, keys: Sequence[str]) -> Mapping[str, int]:
        found = await self._session.fetch_each("item_offsets", [(run_id, name, key) for key in keys])
        return {key: int(rows[0][1]) for key, rows in zip(keys, found, strict=True) if rows}

    async def sizes(self, run_id: RunId, name: str, start: int, limit: int) -> Sequence[int]:
        return [int(row[1]) for row in await self._session.fetch("item_sizes", run_id, name, start, limit)]

    async def page(self, run_id: RunId, name: str, start: int, limit: int) -> Sequence[StreamItem]:
        return [_item(row) for row in await self._session.fetch("page_of_items", run_id, name, start, limit)]

    async def expired(self, now_ms: int, limit: int) -> Sequence[tuple[RunId, str]]:
        rows = await self._session.fetch("expired_streams", now_ms, limit)
        return [(RunId(row[1]), row[2]) for row in rows]

    async def clear(self, run_id: RunId, name: str, most: int) -> int:
        return len(await self._session.fetch("clear_items", run_id, name, most))

    def insert(self, stream: WorkflowStream) -> None:
        self._session.record("insert_stream", *astuple(stream), stream.expires_at_ms)

    def save(self, stream: WorkflowStream) -> None:
        self._session.record(
            "save_stream",
            stream.run_id,
            stream.name,
            stream.status,
            stream.total_items,
            stream.error_reason,
            stream.last_appended_at_ms,
            stream.closed_at_ms,
            stream.retention_s,
            stream.expires_at_ms,
        )

    def mark_read(self, run_id: RunId, name: str, items: int) -> None:
        self._session.record("mark_stream_read", run_id, name, items)

    def append(self, items: Sequence[StreamItem]) -> None:
        for item in items:
            record_uses(self._session, item.run_id, item.payload or "")
            self._session.record("insert_item", *astuple(item), item.size)

    def delete(self, run_id: RunId, name: str) -> None:
        self._session.record("delete_stream", run_id, name)


def _stream(row: Row) -> WorkflowStream:
    values: list[Any] = [*row[1:]]
    values[3] = StreamStatus(values[3])
    return WorkflowStream(*values)


def _item(row: Row) -> StreamItem:
    values: list[Any] = [*row[1:]]
    values[8] = StreamOrigin(values[8])
    return StreamItem(*values)
