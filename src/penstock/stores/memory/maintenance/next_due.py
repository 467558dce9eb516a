"""The earliest deadline of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.core.model import QueryState
from penstock.ports.tables.next_due import Due
from penstock.stores.memory.tables import MemoryRepository


class MemoryNextDue(MemoryRepository):
    async def until(self, at_ms: int) -> Mapping[Due, int]:
        found: dict[Due, int] = {}
        for due, due_at_ms in self._deadlines():
            if due_at_ms <= at_ms:
                found[due] = min(due_at_ms, found.get(due, due_at_ms))
        return found

    def _deadlines(self) -> Iterator[tuple[Due, int]]:
        tables = self._tables
        leases = (at_ms for group in tables.tasks_leased.groups.values() for at_ms in group.values())
        delays = (at_ms for group in tables.tasks_delayed.groups.values() for at_ms in group.values())
        timers = (at_ms for group in tables.timers_open.groups.values() for at_ms in group.values())
        for due, deadlines in (
            (Due.LEASE, leases),
            (Due.TASK, delays),
            (Due.TIMER, timers),
            (Due.ACTIVITY, tables.activities_with_deadline.values()),
            (Due.RUN, tables.runs_with_deadline.values()),
            (Due.OUTBOX, (0 for _ in tables.outbox)),
            (Due.QUERY, self._query_deadlines()),
            (Due.STREAM, self._stream_deadlines()),
        ):
            yield from ((due, at_ms) for at_ms in deadlines)

    def _query_deadlines(self) -> Iterator[int]:
        for query in self._tables.queries.values():
            yield query.expires_at_ms
            if query.state is QueryState.LEASED:
                yield query.lease_expires_at_ms or 0

    def _stream_deadlines(self) -> Iterator[int]:
        for streams in self._tables.streams.groups.values():
            yield from (each.expires_at_ms for each in streams.values() if each.expires_at_ms is not None)
