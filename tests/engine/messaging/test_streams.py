"""Output streams: written by workflow code and callers, read with long polls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.core.history.commands import ContinueAsNew, RecordSideEffect, StartTimer
from penstock.core.messaging.streams import (
    StreamAppend,
    StreamClose,
    StreamItemDraft,
    StreamOrigin,
    StreamStatus,
)
from penstock.core.model import Blob, Run
from penstock.engine.maintenance.sweepers.expired_streams import expired_streams
from penstock.engine.messaging import streams
from penstock.engine.messaging.streams import PAGE_BYTES_MAX, StreamPage, StreamReadRequest, StreamWriteResult
from penstock.engine.runs.address import Address
from penstock.errors import Conflict, Exhausted, InvalidInput, NotFound, Reason
from tests.engine.support.scene import DONE, NOTHING, WORKFLOW, Scene


def writes(operation: str, *payloads: str, ordinal: int = 0, stream: str = "progress", **more: Any) -> Any:
    """What workflow code does with a stream."""
    items = [{"payload": payload, "idempotency_key": f"{stream}:{payload}"} for payload in payloads]
    details: dict[str, Any] = {"operation": operation, "stream_name": stream, "command_identity": "t1"}
    return RecordSideEffect(NOTHING, details | {"command_ordinal": ordinal, "items": items} | more)


def drafts(*payloads: str, most: int | None = None) -> StreamAppend:
    return StreamAppend(
        [StreamItemDraft(Blob(each), idempotency_key=each) for each in payloads],
        StreamOrigin.CLIENT,
        None,
        most,
    )


async def add(
    scene: Scene, run: Run, wanted: StreamAppend | StreamClose, stream: str = "progress"
) -> StreamWriteResult:
    address = Address("default", "order-1", run.run_id)
    if isinstance(wanted, StreamClose):
        return await streams.close(scene.ctx, address, stream, wanted)
    return await streams.add(scene.ctx, address, stream, wanted)


async def read(scene: Scene, run: Run, start: int = 0, most: int = 100, wait_ms: int = 0) -> StreamPage:
    wanted = StreamReadRequest("default", "order-1", run.run_id, "progress", start, most)
    return await streams.read(scene.ctx, wanted, wait_ms, asyncio.Event())


def payloads(page: StreamPage) -> list[Any]:
    return [item.payload for item in page.items]


async def test_what_workflow_code_writes_is_there_when_its_task_is_complete(scene: Scene):
    run = await scene.start()
    await scene.decide(writes("append", "a", "b"), writes("append", "c", ordinal=1), StartTimer(600))
    page = await read(scene, run)
    assert (payloads(page), page.next_offset, page.is_last) == (["a", "b", "c"], 3, False)
    assert page.items[2].origin_reference == "t1:1"
    assert page.stream.status is StreamStatus.OPEN


async def test_workflow_code_may_write_and_end_several_streams_in_one_task(scene: Scene):
    run = await scene.start()
    commands = [
        writes("append", "a"),
        writes("append", "x", stream="log"),
        writes("close", retention_seconds=9),
    ]
    await scene.decide(*commands, writes("error", stream="log", error_reason="boom"), DONE)
    _, found = await streams.list_streams(scene.ctx, "default", "order-1", run.run_id)
    assert [(each.name, each.status, each.error_reason, each.retention_s) for each in found] == [
        ("log", StreamStatus.ERRORED, "boom", None),
        ("progress", StreamStatus.CLOSED, None, 9),
    ]
    assert (await read(scene, run)).is_last


async def test_items_of_a_command_that_is_applied_twice_are_added_once(scene: Scene):
    run = await scene.start()
    await scene.decide(writes("append", "a"), StartTimer(0))
    await scene.advance(1)
    await scene.decide(writes("append", "a", "b"), StartTimer(600))
    assert payloads(await read(scene, run)) == ["a", "b"]


async def test_what_code_adds_to_a_stream_that_somebody_has_closed_is_dropped_and_the_run_continues(
    scene: Scene,
):
    run = await scene.start()
    await add(scene, run, StreamClose())
    await scene.decide(writes("append", "a"), StartTimer(1))
    assert (await scene.types(run.run_id))[1:] == ["SideEffectRecorded", "TimerScheduled"]
    assert payloads(await read(scene, run)) == []


async def test_code_that_writes_faster_than_is_read_is_asked_to_retry(scene: Scene):
    run = await scene.start()
    leased = await scene.take(WORKFLOW)
    with pytest.raises(Exhausted) as refused:
        await scene.complete(leased, writes("append", "a", "b", max_pending_items=1), DONE)
    assert refused.value.details["http_status"] == 409, (
        "a worker reports the task as failed, and it is tried again"
    )
    assert run.is_open


async def test_callers_add_items_and_learn_where_they_are(scene: Scene):
    run = await scene.start()
    first = await add(scene, run, drafts("a", "b"))
    assert first.appended is not None
    assert first.appended.offsets == (0, 1)
    again = await add(scene, run, drafts("b", "c"))
    assert again.appended is not None
    assert (again.appended.offsets, len(again.appended.items)) == ((1, 2), 1)


async def test_reading_from_an_offset_leaves_what_is_before_it_behind(scene: Scene):
    run = await scene.start()
    await add(scene, run, drafts("a", "b"))
    with pytest.raises(Exhausted):
        await add(scene, run, drafts("c", most=2))
    assert payloads(await read(scene, run, start=1)) == ["b"]
    done = await add(scene, run, drafts("c", most=2))
    assert (done.stream.pending_items, done.stream.total_items) == (2, 3)


async def test_a_reader_waits_for_the_next_item(scene: Scene):
    run = await scene.start()
    reading = asyncio.create_task(read(scene, run, wait_ms=60_000))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not reading.done()
    await add(scene, run, drafts("a"))
    assert payloads(await reading) == ["a"]


async def test_a_reader_learns_that_nothing_more_will_come(scene: Scene):
    run = await scene.start()
    await add(scene, run, drafts("a"))
    reading = asyncio.create_task(read(scene, run, start=1, wait_ms=60_000))
    for _ in range(20):
        await asyncio.sleep(0)
    await scene.decide(DONE)
    page = await reading
    assert (payloads(page), page.next_offset, page.is_last) == ([], 1, True)
    assert page.stream.status is StreamStatus.CLOSED
    assert (await read(scene, run, start=0)).stream.pending_items == 0


async def test_a_page_that_is_not_the_last_does_not_say_that_it_is(scene: Scene):
    run = await scene.start()
    await add(scene, run, drafts("a", "b"))
    await add(scene, run, StreamClose())
    first = await read(scene, run, most=1)
    assert (payloads(first), first.is_last) == (["a"], False)
    assert (await read(scene, run, start=first.next_offset)).is_last


async def test_large_items_come_in_several_pages(scene: Scene):
    run = await scene.start()
    large = "x" * (PAGE_BYTES_MAX - 1)
    await add(scene, run, drafts(large, "ab", large + "yz"))
    sizes, start = [], 0
    for _ in range(3):
        page = await read(scene, run, start)
        sizes.append(len(page.items))
        start = page.next_offset
    assert sizes == [1, 1, 1]


async def test_a_stream_that_is_not_there_may_still_come_while_its_run_is_open(scene: Scene):
    run = await scene.start()
    page = await read(scene, run)
    assert (payloads(page), page.is_last, page.stream.total_items) == ([], False, 0)
    with pytest.raises(NotFound):
        await streams.describe(scene.ctx, "default", "order-1", run.run_id, "progress")
    await scene.decide(DONE)
    with pytest.raises(NotFound) as refused:
        await read(scene, run)
    assert refused.value.reason is Reason.WORKFLOW_STREAM_NOT_FOUND


async def test_streams_belong_to_one_run(scene: Scene):
    run = await scene.start()
    await scene.decide(writes("append", "a"), ContinueAsNew(NOTHING))
    assert payloads(await read(scene, run)) == ["a"]
    after = scene.run(scene.tables.instances["default", "order-1"].run_id)
    assert payloads(await read(scene, after)) == []
    with pytest.raises(Conflict) as refused:
        await add(scene, run, drafts("b"))
    assert refused.value.reason is Reason.HISTORICAL_RUN_COMMAND_REJECTED


async def test_nothing_is_added_to_a_stream_of_a_closed_run(scene: Scene):
    run = await scene.start()
    await scene.decide(DONE)
    with pytest.raises(Conflict) as refused:
        await add(scene, run, drafts("a"))
    assert refused.value.reason is Reason.RUN_NOT_ACTIVE


async def test_a_run_writes_so_many_streams_and_no_more(scene: Scene):
    run = await scene.start()
    for n in range(100):
        await add(scene, run, drafts("a"), f"s{n}")
    with pytest.raises(InvalidInput) as refused:
        await add(scene, run, drafts("a"), "one-more")
    assert refused.value.details["limit_kind"] == "workflow_stream_count"


async def test_a_closed_stream_is_gone_when_it_was_kept_as_long_as_its_writer_wanted(scene: Scene):
    run = await scene.start()
    await add(scene, run, drafts(*(f"p{n}" for n in range(1_001))))
    await add(scene, run, StreamClose(retention_s=60))
    sweeper = expired_streams(scene.ctx)
    scene.clock.advance(59_999)
    assert await sweeper.sweep() == 0
    scene.clock.advance(1)
    assert await sweeper.sweep() == 1
    assert (await streams.list_streams(scene.ctx, "default", "order-1", run.run_id))[1] == []
    assert scene.tables.count("stream_items") == 0
