"""Histories: append-only and without gaps (`history-only-grows`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.core.history.events import CLOSING
from penstock.core.model import NewEvent, RecordedEvent, RunId
from penstock.ports.tables.runs import PAGE_BYTES
from penstock.stores.memory.tables import MemoryRepository


class MemoryHistories(MemoryRepository):
    async def page(self, run_id: RunId, after: int, limit: int) -> Sequence[RecordedEvent]:
        last = min(self._tables.last_event.get(run_id, 0), after + limit)
        return _that_fit(self._tables.events[run_id, sequence] for sequence in range(after + 1, last + 1))

    async def page_back(self, run_id: RunId, before: int, limit: int) -> Sequence[RecordedEvent]:
        last = min(self._tables.last_event.get(run_id, 0), before - 1)
        places = range(last, max(last - limit, 0), -1)
        return _that_fit(self._tables.events[run_id, sequence] for sequence in places)

    async def first_pages(
        self, run_ids: Sequence[RunId], limits: Sequence[int], after: Sequence[int] = ()
    ) -> Sequence[Sequence[RecordedEvent]]:
        wanted = zip(run_ids, after or [0] * len(run_ids), limits, strict=True)
        return [await self.page(run_id, seen, limit) for run_id, seen, limit in wanted]

    async def last_of_type(self, run_id: RunId, types: Sequence[str]) -> RecordedEvent | None:
        for sequence in range(self._tables.last_event.get(run_id, 0), 0, -1):
            event = self._tables.events[run_id, sequence]
            if event.type in types:
                return event
        return None

    async def buffered(self, run_id: RunId) -> Sequence[NewEvent]:
        waiting = self._tables.buffers.of(run_id)
        return [waiting[number] for number in sorted(waiting)]

    def append(self, events: Sequence[RecordedEvent]) -> None:
        def write() -> None:
            for event in events:
                last = self._tables.last_event.get(event.run_id, 0)
                assert event.sequence == last + 1, f"{event.run_id}: event {event.sequence} after {last}"
                self._changes.put(self._tables.events, (event.run_id, event.sequence), event)
                self._changes.put(self._tables.last_event, event.run_id, event.sequence)
                self._note_end(event)

        self._changes.record(write)

    def buffer(self, run_id: RunId, number: int, event: NewEvent) -> None:
        def write() -> None:
            assert number not in self._tables.buffers.of(run_id), f"{run_id}: event {number} is buffered"
            self._changes.add(self._tables.buffers, run_id, number, event)

        self._changes.record(write)

    def clear_buffer(self, run_id: RunId) -> None:
        def write() -> None:
            if run_id in self._tables.buffers.groups:
                self._changes.drop(self._tables.buffers.groups, run_id)

        self._changes.record(write)

    def _note_end(self, event: RecordedEvent) -> None:
        if event.type in CLOSING:
            assert event.run_id not in self._tables.ends, f"{event.run_id} ends once"
            self._changes.put(self._tables.ends, event.run_id, event.sequence)


def _that_fit(events: Iterable[RecordedEvent]) -> list[RecordedEvent]:
    """The first events, up to the one that reaches the size of a page."""
    page: list[RecordedEvent] = []
    size = 0
    for event in events:
        if size >= PAGE_BYTES:
            break
        page.append(event)
        size += len(event.payload.encode())
    return page
