"""What time will bring: the first moment of each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.core.model import QueryState
from penstock.ports.next_due import Due
from penstock.stores.memory.tables import Tables


class MemoryNextDue:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def until(self, at_ms: int) -> Mapping[Due, int]:
        found: dict[Due, int] = {}
        for due, moment in self._moments():
            if moment <= at_ms:
                found[due] = min(moment, found.get(due, moment))
        return found

    def _moments(self) -> Iterator[tuple[Due, int]]:
        tables = self._tables
        for due, index in (
            (Due.LEASE, tables.tasks_leased),
            (Due.TASK, tables.tasks_delayed),
            (Due.TIMER, tables.timers_open),
        ):
            yield from ((due, moment) for group in index.groups.values() for moment in group.values())
        yield from ((Due.ACTIVITY, moment) for moment in tables.activities_with_deadline.values())
        yield from ((Due.RUN, moment) for moment in tables.runs_with_deadline.values())
        yield from ((Due.OUTBOX, 0) for _ in tables.letters)
        for query in tables.queries.values():
            yield Due.QUERY, query.expires_at_ms
            if query.state is QueryState.LEASED:
                yield Due.QUERY, query.lease_expires_at_ms or 0
        for streams in tables.streams.groups.values():
            yield from (
                (Due.STREAM, each.expires_at_ms)
                for each in streams.values()
                if each.expires_at_ms is not None
            )
