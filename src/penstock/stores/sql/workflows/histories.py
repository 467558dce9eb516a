"""Histories and buffered events in SQL."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import astuple

from penstock.core.audit.trail import RequestEvent
from penstock.core.model import NewEvent, RecordedEvent, RunId
from penstock.core.timeline.values import TimelineEvent
from penstock.ports.tables.runs import PAGE_BYTES
from penstock.stores.sql.operations.external_payloads import record_uses
from penstock.stores.sql.session import Repository, Row

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

    async def timeline(self, run_id: RunId, after: int, limit: int) -> Sequence[TimelineEvent]:
        rows = await self._session.fetch("timeline_events", run_id, after, limit)
        return [_timeline_event(row) for row in rows]

    async def requests(self, run_id: RunId, after: int, limit: int) -> Sequence[RequestEvent]:
        rows = await self._session.fetch("request_events", run_id, after, limit)
        return [_request_event(row) for row in rows]

    async def last_of_type(self, run_id: RunId, types: Sequence[str]) -> RecordedEvent | None:
        wanted = SEPARATOR + SEPARATOR.join(types) + SEPARATOR
        rows = await self._session.fetch("last_event_of_type", run_id, wanted)
        return RecordedEvent(*rows[0][1:]) if rows else None

    async def buffered(self, run_id: RunId) -> Sequence[NewEvent]:
        rows = await self._session.fetch("buffered_events", run_id)
        return [NewEvent(row[1], msgspec.json.decode(row[2])) for row in rows]

    def append(self, events: Sequence[RecordedEvent]) -> None:
        for event in events:
            record_uses(self._session, event.run_id, event.payload)
            self._session.record("append_event", *astuple(event))

    def buffer(self, run_id: RunId, number: int, event: NewEvent) -> None:
        payload = msgspec.json.encode(event.payload).decode()
        record_uses(self._session, run_id, payload)
        self._session.record("buffer_event", run_id, number, event.type, payload)

    def clear_buffer(self, run_id: RunId) -> None:
        self._session.record("clear_buffer", run_id)


def _request_event(row: Row) -> RequestEvent:
    _, sequence, event_type, at_ms, fields = row
    command_id, signal, update, reason, kind, caller = map(_text, msgspec.json.decode(fields))
    principal = None if kind is None or caller is None else {"type": kind, "id": caller}
    return RequestEvent(sequence, event_type, at_ms, command_id, signal or update, reason, principal)


def _timeline_event(row: Row) -> TimelineEvent:
    """PostgreSQL returns the fields of a payload as text, SQLite as they are."""
    _, sequence, event_type, at_ms, task_id, fields = row
    if fields is None:
        return TimelineEvent(sequence, event_type, at_ms, task_id)
    step, activity_type, child_type, attempt, *texts = msgspec.json.decode(fields)
    return TimelineEvent(
        sequence,
        event_type,
        at_ms,
        task_id,
        _number(step),
        _text(activity_type),
        _text(child_type),
        _number(attempt),
        *map(_text, texts),
    )


def _number(value: object) -> int | None:
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
