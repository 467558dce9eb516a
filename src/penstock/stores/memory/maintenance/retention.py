"""Retention: expired runs, and the rows that deleted runs have left."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TypeVar

from penstock.core.model import Run, RunId
from penstock.core.operations.run_counts import PurgedRows
from penstock.stores.memory.changes import Index, Phase
from penstock.stores.memory.tables import MemoryRepository

K = TypeVar("K")
V = TypeVar("V")
G = TypeVar("G")


class MemoryRetention(MemoryRepository):
    async def expired(self, namespace: str, before_ms: int, limit: int) -> Sequence[RunId]:
        closed = (
            (run.closed_at_ms, run.run_id)
            for run in self._tables.runs.values()
            if run.namespace == namespace and run.closed_at_ms is not None and run.closed_at_ms < before_ms
        )
        return [run_id for _, run_id in heapq.nsmallest(limit, closed)]

    async def has_others(self, run: Run) -> bool:
        return any(each != run.run_id for each in self._tables.runs_of.of((run.namespace, run.workflow_id)))

    async def unlink(self, run_id: RunId, most: int) -> bool:
        self._changes.allow()
        tables, changes = self._tables, self._changes
        requests = self._drop(tables.requests, [*tables.requests_of.of(run_id)][:most])
        if requests >= most:
            return True
        self._drop_group(tables.requests_of, run_id)
        for stream, sent in [*tables.messages.groups.items()]:
            for message in [each for each in sent.values() if each.run_id == run_id]:
                changes.remove(tables.messages, stream, message.position)
                changes.remove(tables.message_ids, stream, message.message_id)
        for stream in [name for name, row in tables.message_streams.items() if row.run_id == run_id]:
            changes.drop(tables.message_streams, stream)
        return False

    def forget(self, run: Run) -> None:
        def write() -> None:
            tables, changes, name = self._tables, self._changes, (run.namespace, run.workflow_id)
            changes.drop(tables.runs, run.run_id)
            changes.remove(tables.runs_of, name, run.run_id)
            instance = tables.instances.get(name)
            if instance is not None and instance.run_id == run.run_id:
                changes.drop(tables.instances, name)
            changes.put(tables.remains, run.run_id, tables.last_event.get(run.run_id, 0))
            for table in (tables.last_event, tables.ends):
                if run.run_id in table:
                    changes.drop(table, run.run_id)

        self._changes.record(write, Phase.FORGET)

    async def remains(self, limit: int) -> Sequence[RunId]:
        return heapq.nsmallest(limit, self._tables.remains)

    async def clear(self, run_id: RunId, most: int) -> PurgedRows:
        self._changes.allow()
        tables = self._tables
        last = tables.remains.get(run_id, 0)
        counts = (
            self._drop(tables.events, _first(most, ((run_id, n) for n in range(1, last + 1)), tables.events)),
            self._drop(tables.tasks, _owned(tables.tasks, run_id)[:most]),
            self._drop(tables.activities, _owned(tables.activities, run_id)[:most]),
            self._drop(tables.timers, _owned(tables.timers, run_id)[:most]),
        )
        others = self._drop(tables.updates, [*tables.updates_of.of(run_id).values()][:most])
        full = any(count >= most for count in (*counts, others))
        if not full:
            self._drop_group(tables.children, run_id)
            self._drop_group(tables.updates_of, run_id)
            self._drop_group(tables.buffers, run_id)
            self._drop_streams(run_id)
        return PurgedRows(*counts, others=others, full=full)

    def bury(self, run_id: RunId) -> None:
        def write() -> None:
            if run_id in self._tables.remains:
                self._changes.drop(self._tables.remains, run_id)

        self._changes.record(write, Phase.FORGET)

    def _drop_streams(self, run_id: RunId) -> None:
        """Drop the streams that the run wrote."""
        for name in [*self._tables.streams.of(run_id)]:
            self._drop_group(self._tables.stream_items, (run_id, name))
            self._drop_group(self._tables.stream_keys, (run_id, name))
        self._drop_group(self._tables.streams, run_id)

    def _drop_group(self, index: Index[G, K, V], group: G) -> None:
        if group in index.groups:
            self._changes.drop(index.groups, group)

    def _drop(self, table: dict[K, V], keys: Iterable[K]) -> int:
        gone = [key for key in keys if key in table]
        for key in gone:
            self._changes.drop(table, key)
        return len(gone)


def _first(most: int, keys: Iterable[K], table: dict[K, V]) -> list[K]:
    """The first keys that are in the table."""
    found: list[K] = []
    for key in keys:
        if len(found) == most:
            break
        if key in table:
            found.append(key)
    return found


def _owned(table: dict[K, V], run_id: RunId) -> list[K]:
    return [key for key, row in table.items() if getattr(row, "run_id", None) == run_id]
