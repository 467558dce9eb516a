"""Streams written by runs, and their items by offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.core.messaging.streams import StreamItem, WorkflowStream
from penstock.core.model import RunId
from penstock.stores.memory.immutable_columns import immutable_columns
from penstock.stores.memory.tables import MemoryRepository

_immutable_columns = immutable_columns(
    WorkflowStream,
    changing=(
        "status",
        "total_items",
        "read_items",
        "error_reason",
        "last_appended_at_ms",
        "closed_at_ms",
        "retention_s",
    ),
)


class MemoryStreams(MemoryRepository):
    async def get(self, run_id: RunId, name: str) -> WorkflowStream | None:
        return self._tables.streams.of(run_id).get(name)

    async def of_run(self, run_id: RunId) -> Sequence[WorkflowStream]:
        return [stream for _, stream in sorted(self._tables.streams.of(run_id).items())]

    async def offsets(self, run_id: RunId, name: str, keys: Sequence[str]) -> Mapping[str, int]:
        known = self._tables.stream_keys.of((run_id, name))
        return {key: known[key] for key in keys if key in known}

    async def sizes(self, run_id: RunId, name: str, start: int, limit: int) -> Sequence[int]:
        return [item.size for item in await self.page(run_id, name, start, limit)]

    async def page(self, run_id: RunId, name: str, start: int, limit: int) -> Sequence[StreamItem]:
        items = self._tables.stream_items.of((run_id, name))
        return [items[offset] for offset in sorted(items) if offset >= start][:limit]

    async def expired(self, now_ms: int, limit: int) -> Sequence[tuple[RunId, str]]:
        found = [
            (stream.expires_at_ms, run_id, name)
            for run_id, streams in self._tables.streams.groups.items()
            for name, stream in streams.items()
            if stream.expires_at_ms is not None and stream.expires_at_ms <= now_ms
        ]
        return [(run_id, name) for _, run_id, name in sorted(found)[:limit]]

    async def clear(self, run_id: RunId, name: str, most: int) -> int:
        self._changes.allow()
        gone = sorted(self._tables.stream_items.of((run_id, name)))[:most]
        for offset in gone:
            self._drop(self._tables.stream_items.of((run_id, name))[offset])
        return len(gone)

    def insert(self, stream: WorkflowStream) -> None:
        def write() -> None:
            assert stream.name not in self._tables.streams.of(stream.run_id), f"{stream.name!r} exists"
            self._changes.add(self._tables.streams, stream.run_id, stream.name, stream)

        self._changes.record(write)

    def save(self, stream: WorkflowStream) -> None:
        def write() -> None:
            before = self._tables.streams.of(stream.run_id)[stream.name]
            assert _immutable_columns(stream) == _immutable_columns(before), (
                "what a stream is does not change"
            )
            assert before.total_items <= stream.total_items, "items are only added"
            self._put(replace(stream, read_items=before.read_items))

        self._changes.record(write)

    def mark_read(self, run_id: RunId, name: str, items: int) -> None:
        def write() -> None:
            before = self._tables.streams.of(run_id).get(name)
            if before is not None and before.read_items < items <= before.total_items:
                self._put(replace(before, read_items=items))

        self._changes.record(write)

    def append(self, items: Sequence[StreamItem]) -> None:
        def write() -> None:
            for item in items:
                name = (item.run_id, item.stream)
                known = self._tables.stream_items.of(name)
                assert item.offset not in known, "an offset is taken once"
                self._changes.add(self._tables.stream_items, name, item.offset, item)
                key = item.idempotency_key
                if key is not None:
                    assert key not in self._tables.stream_keys.of(name), f"an item {key!r} exists"
                    self._changes.add(self._tables.stream_keys, name, key, item.offset)

        self._changes.record(write)

    def delete(self, run_id: RunId, name: str) -> None:
        def write() -> None:
            if name in self._tables.streams.of(run_id):
                self._changes.remove(self._tables.streams, run_id, name)

        self._changes.record(write)

    def _drop(self, item: StreamItem) -> None:
        name = (item.run_id, item.stream)
        self._changes.remove(self._tables.stream_items, name, item.offset)
        if item.idempotency_key is not None:
            self._changes.remove(self._tables.stream_keys, name, item.idempotency_key)

    def _put(self, stream: WorkflowStream) -> None:
        self._changes.add(self._tables.streams, stream.run_id, stream.name, stream)
