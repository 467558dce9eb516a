"""Histories and buffered events in SQL."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import astuple

from penstock.core.model import NewEvent, RecordedEvent, RunId
from penstock.ports.tables.runs import PAGE_BYTES
from penstock.stores.sql.session import Repository

SEPARATOR = "\x1f"


class SqlHistories(Repository):
    async def page(self, run_id: RunId, after: int, limit: int) -> Sequence[RecordedEvent]:
        return [
            RecordedEvent(*row[1:])
            for row in await self._session.fetch("page_history", run_id, after, limit, PAGE_BYTES)
        ]

    async def page_back(self, run_id: RunId, before: int, limit: int) -> Sequence[RecordedEvent]:
        rows = await self._session.fetch("page_history_back", run_id, before, limit, PAGE_BYTES)
        return [RecordedEvent(*row[1:]) for row in rows]

    async def first_pages(
        self, run_ids: Sequence[RunId], limits: Sequence[int], after: Sequence[int] = ()
    ) -> Sequence[Sequence[RecordedEvent]]:
        wanted = zip(run_ids, after or [0] * len(run_ids), limits, strict=True)
        pages = await self._session.fetch_each("page_history", ((*each, PAGE_BYTES) for each in wanted))
        return [[RecordedEvent(*row[1:]) for row in rows] for rows in pages]

    async def last_of_type(self, run_id: RunId, types: Sequence[str]) -> RecordedEvent | None:
        wanted = SEPARATOR + SEPARATOR.join(types) + SEPARATOR
        rows = await self._session.fetch("last_event_of_type", run_id, wanted)
        return RecordedEvent(*rows[0][1:]) if rows else None

    async def buffered(self, run_id: RunId) -> Sequence[NewEvent]:
        rows = await self._session.fetch("buffered_events", run_id)
        return [NewEvent(row[1], msgspec.json.decode(row[2])) for row in rows]

    def append(self, events: Sequence[RecordedEvent]) -> None:
        for event in events:
            self._session.record("append_event", *astuple(event))

    def buffer(self, run_id: RunId, number: int, event: NewEvent) -> None:
        payload = msgspec.json.encode(event.payload).decode()
        self._session.record("buffer_event", run_id, number, event.type, payload)

    def clear_buffer(self, run_id: RunId) -> None:
        self._session.record("clear_buffer", run_id)
