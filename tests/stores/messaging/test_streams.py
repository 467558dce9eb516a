"""Streams written by runs: items by offset, each key once, and what readers have acknowledged."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.messaging.streams import StreamItem, StreamOrigin, StreamStatus, WorkflowStream
from penstock.core.model import Blob, RunId
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS

R1, R2 = RunId("r1"), RunId("r2")


def a_stream(name: str = "progress", **changes: Any) -> WorkflowStream:
    return replace(WorkflowStream(R1, name, opened_at_ms=NOW_MS), **changes)


def an_item(offset: int = 0, **changes: Any) -> StreamItem:
    plain = StreamItem(
        run_id=R1,
        stream="progress",
        offset=offset,
        payload=Blob("wwE="),
        reference=None,
        idempotency_key=f"k{offset}",
        item_type="step",
        content_type="text/plain",
        origin=StreamOrigin.WORKFLOW,
        origin_reference="t1:0",
        emitted_at_ms=NOW_MS,
    )
    return replace(plain, **changes)


async def write(store: Store, stream: WorkflowStream, *items: StreamItem) -> None:
    def both(tx: Tx) -> None:
        tx.streams.insert(stream)
        tx.streams.append(items)

    await record(store, both)


async def stream_now(store: Store, name: str = "progress") -> WorkflowStream | None:
    return await look(store, lambda tx: tx.streams.get(R1, name))


async def page(store: Store, start: int = 0, limit: int = 100) -> list[StreamItem]:
    return [*await look(store, lambda tx: tx.streams.page(R1, "progress", start, limit))]


async def test_a_stream_is_found_as_it_was_written(store: Store):
    stream = a_stream("ü", status=StreamStatus.ERRORED, total_items=3, error_reason="boom", retention_s=60)
    stream = replace(stream, last_appended_at_ms=NOW_MS + 1, closed_at_ms=NOW_MS + 2)
    await write(store, stream)
    assert await stream_now(store, "ü") == stream
    assert await stream_now(store, "u") is None


async def test_the_streams_of_a_run_come_by_name(store: Store):
    await write(store, a_stream("b"))
    await write(store, a_stream("a"))
    await write(store, replace(a_stream("c"), run_id=R2))
    assert await look(store, lambda tx: tx.streams.of_run(R1)) == [a_stream("a"), a_stream("b")]


async def test_items_come_by_offset_from_where_they_are_asked_for(store: Store):
    items = [an_item(0), an_item(1, payload=None, reference="s3://x", idempotency_key=None), an_item(2)]
    await write(store, a_stream(total_items=3), items[2], items[0], items[1])
    assert await page(store) == items
    assert await page(store, start=1, limit=1) == [items[1]]
    assert await page(store, start=3) == []
    assert await look(store, lambda tx: tx.streams.sizes(R1, "progress", 0, 2)) == [4, 0]


async def test_items_are_known_by_their_keys(store: Store):
    await write(store, a_stream(total_items=2), an_item(0), an_item(1, idempotency_key=None))
    await write(store, a_stream("other", total_items=1), an_item(0, stream="other", idempotency_key="k9"))
    known = await look(store, lambda tx: tx.streams.offsets(R1, "progress", ["k0", "k1", "k9"]))
    assert known == {"k0": 0}


@pytest.mark.parametrize("again", [an_item(0, idempotency_key="new"), an_item(1, idempotency_key="k0")])
async def test_an_offset_and_a_key_are_taken_once(store: Store, again: StreamItem):
    await write(store, a_stream(total_items=1), an_item())
    with pytest.raises(Exception, match=r"(?i)unique|duplicate|exists|taken"):
        await record(store, lambda tx: tx.streams.append([again]))
    assert await page(store) == [an_item()]


async def test_what_writers_change_does_not_touch_how_far_it_was_read(store: Store):
    await write(store, a_stream(total_items=5))
    await record(store, lambda tx: tx.streams.mark_read(R1, "progress", 3))
    closed = a_stream(total_items=6, status=StreamStatus.CLOSED, closed_at_ms=NOW_MS, retention_s=1)
    await record(store, lambda tx: tx.streams.save(closed))
    assert await stream_now(store) == replace(closed, read_items=3)


@pytest.mark.parametrize(("items", "read"), [(2, 3), (4, 4), (5, 5), (6, 3)])
async def test_how_far_it_was_read_only_grows_and_stays_within_what_was_written(
    store: Store, items: int, read: int
):
    await write(store, a_stream(total_items=5, read_items=3))
    await record(store, lambda tx: tx.streams.mark_read(R1, "progress", items))
    assert await stream_now(store) == a_stream(total_items=5, read_items=read)


async def test_a_closed_stream_expires_when_it_was_to_be_kept_so_long(store: Store):
    closed = a_stream(status=StreamStatus.CLOSED, closed_at_ms=NOW_MS, retention_s=2)
    await write(store, closed)
    await write(store, replace(closed, name="later", retention_s=3))
    await write(store, replace(closed, name="for ever", retention_s=None))

    async def expired(now_ms: int) -> list[tuple[RunId, str]]:
        return [*await look(store, lambda tx: tx.streams.expired(now_ms, 10))]

    assert await expired(NOW_MS + 1_999) == []
    assert await expired(NOW_MS + 2_000) == [(R1, "progress")]
    assert await expired(NOW_MS + 3_000) == [(R1, "progress"), (R1, "later")]


async def test_items_are_deleted_in_portions_and_the_stream_after_them(store: Store):
    await write(store, a_stream(total_items=3), *(an_item(offset) for offset in range(3)))
    await write(store, a_stream("other", total_items=1), an_item(0, stream="other"))

    async def clear(tx: Tx) -> int:
        return await tx.streams.clear(R1, "progress", 2)

    assert [await store.transact(clear, key="clear") for _ in range(3)] == [2, 1, 0]
    await record(store, lambda tx: tx.streams.delete(R1, "progress"))
    assert await look(store, lambda tx: tx.streams.of_run(R1)) == [a_stream("other", total_items=1)]
    assert await look(store, lambda tx: tx.streams.sizes(R1, "other", 0, 9)) == [4]
