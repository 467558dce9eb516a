"""Output streams of runs: appended to by workflow code and by callers, read with long polls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from penstock.core.messaging import streams
from penstock.core.messaging.streams import (
    StreamAppend,
    StreamAppended,
    StreamClose,
    StreamCommand,
    StreamItem,
    WorkflowStream,
)
from penstock.core.model import Json, Run, RunId
from penstock.engine.context import EngineContext
from penstock.engine.long_poll import wait_until
from penstock.engine.runs.address import Address, check_open, check_workflow, on_run
from penstock.engine.runs.run_lookup import locate
from penstock.errors import Exhausted, NotFound, Reason
from penstock.ports.store import Tx
from penstock.ports.wakeups import run_topic

PAGE_BYTES_MAX: Final = 4_000_000
ITEMS_AT_ONCE: Final = 1_000
"""How many items of a stream are deleted in one transaction."""


class StreamWriteResult(Struct, frozen=True):
    """A stream after a write."""

    run: Run
    stream: WorkflowStream
    appended: StreamAppended | None = None


class StreamPage(Struct, frozen=True):
    """Items of a stream from an offset on."""

    run: Run
    stream: WorkflowStream
    items: Sequence[StreamItem]
    start: int

    @property
    def next_offset(self) -> int:
        return self.items[-1].offset + 1 if self.items else self.start

    @property
    def is_last(self) -> bool:
        """Whether the stream is closed and has no items after this page."""
        return self.stream.is_terminal and self.next_offset >= self.stream.total_items


# Writing


async def apply(tx: Tx, run: Run, directives: Sequence[Json]) -> None:
    """Apply a workflow task's stream directives. Items are deduplicated by their idempotency keys.

    Items for a stream that a caller has closed are dropped: a run must not fail because of its readers.
    """
    if not directives:
        return
    known = {stream.name: stream for stream in await tx.streams.of_run(run.run_id)}
    by_stream: dict[str, list[StreamCommand]] = {}
    for each in map(streams.parse_stream_command, directives):
        by_stream.setdefault(each.stream, []).append(each)
    streams.check_streams(len(known.keys() | by_stream.keys()))
    for name, wanted in by_stream.items():
        before = known.get(name)
        if before is not None and before.is_terminal:
            continue
        try:
            await _write(tx, run, before, name, [each.act for each in wanted])
        except Exhausted as refusal:
            raise refusal.with_details(http_status=409) from refusal


async def add(ctx: EngineContext, address: Address, name: str, wanted: StreamAppend) -> StreamWriteResult:
    """Append a caller's items to a stream of an open run."""
    return await _on_stream(ctx, address, name, wanted)


async def close(ctx: EngineContext, address: Address, name: str, wanted: StreamClose) -> StreamWriteResult:
    return await _on_stream(ctx, address, name, wanted)


async def _on_stream(
    ctx: EngineContext, address: Address, name: str, wanted: StreamAppend | StreamClose
) -> StreamWriteResult:
    async def act(tx: Tx, run: Run) -> StreamWriteResult:
        check_workflow(run)
        check_open(run)
        known = {stream.name: stream for stream in await tx.streams.of_run(run.run_id)}
        streams.check_streams(len(known.keys() | {name}))
        stream, appended = await _write(tx, run, known.get(name), name, [wanted])
        return StreamWriteResult(run, stream, appended)

    return await on_run(ctx, address, act)


async def _write(
    tx: Tx, run: Run, before: WorkflowStream | None, name: str, acts: Sequence[StreamAppend | StreamClose]
) -> tuple[WorkflowStream, StreamAppended | None]:
    """Apply several writes to one stream and save it once; returns the stream and the result of the last append."""
    stream = before or WorkflowStream(run.run_id, name, opened_at_ms=tx.now_ms)
    known = await _known_offsets(tx, before, acts)
    appended: StreamAppended | None = None
    for act in acts:
        if isinstance(act, StreamClose):
            stream = streams.close(stream, act, tx.now_ms)
            continue
        appended = streams.append(stream, act, known, tx.now_ms)
        stream = appended.stream
        known |= {item.idempotency_key: item.offset for item in appended.items if item.idempotency_key}
        tx.streams.append(appended.items)
    if before is None:
        tx.streams.insert(stream)
    elif stream != before:
        tx.streams.save(stream)
    tx.wake(run_topic(run.run_id))
    return stream, appended


async def _known_offsets(
    tx: Tx, stream: WorkflowStream | None, acts: Sequence[StreamAppend | StreamClose]
) -> dict[str, int]:
    """The offsets of the items that are already in the stream, by idempotency key."""
    keys = [key for act in acts if isinstance(act, StreamAppend) for key in act.keys]
    if stream is None or not keys:
        return {}
    return dict(await tx.streams.offsets(stream.run_id, stream.name, keys))


# Reading


async def list_streams(
    ctx: EngineContext, namespace: str, workflow_id: str, run_id: str
) -> tuple[Run, Sequence[WorkflowStream]]:
    async def operation(tx: Tx) -> tuple[Run, Sequence[WorkflowStream]]:
        run = (await locate(tx, namespace, workflow_id, run_id)).run
        found = await tx.streams.of_run(run.run_id)
        return run, [streams.closed_with_run(each, run.closed_at_ms) for each in found]

    return await ctx.store.read(operation, long=True)


async def describe(
    ctx: EngineContext, namespace: str, workflow_id: str, run_id: str, name: str
) -> tuple[Run, WorkflowStream]:
    async def operation(tx: Tx) -> tuple[Run, WorkflowStream]:
        run = (await locate(tx, namespace, workflow_id, run_id)).run
        found = await tx.streams.get(run.run_id, name)
        if found is None:
            raise _not_found(run, name)
        return run, streams.closed_with_run(found, run.closed_at_ms)

    return await ctx.store.read(operation)


class StreamReadRequest(Struct, frozen=True):
    """Which items a reader requests."""

    namespace: str
    workflow_id: str
    run_id: str
    name: str
    start: int
    items_max: int
    acknowledges: bool = True


async def read(
    ctx: EngineContext, wanted: StreamReadRequest, wait_ms: int, draining: asyncio.Event
) -> StreamPage:
    """Read items from an offset on, waiting for the first one. Items before the offset are acknowledged, unless the
    reader only looks.

    A stream that does not exist yet may still be opened while its run is open.
    """

    async def check() -> tuple[StreamPage, bool]:
        page = await ctx.store.read(lambda tx: _page(tx, wanted))
        return page, bool(page.items) or page.stream.is_terminal

    page, _ = await wait_until(ctx, run_topic(wanted.run_id), check, wait_ms, draining)
    acknowledged = min(wanted.start, page.stream.total_items)
    if wanted.acknowledges and acknowledged > page.stream.read_items:
        await _mark_read(ctx, page.run.run_id, wanted.name, acknowledged)
    return page


async def _page(tx: Tx, wanted: StreamReadRequest) -> StreamPage:
    run = (await locate(tx, wanted.namespace, wanted.workflow_id, wanted.run_id)).run
    stream = await tx.streams.get(run.run_id, wanted.name)
    if stream is None and not run.is_open:
        raise _not_found(run, wanted.name)
    if stream is None:
        return StreamPage(
            run, WorkflowStream(run.run_id, wanted.name, opened_at_ms=tx.now_ms), (), wanted.start
        )
    stream = streams.closed_with_run(stream, run.closed_at_ms)
    sizes = await tx.streams.sizes(run.run_id, wanted.name, wanted.start, wanted.items_max)
    count = _that_fit(sizes)
    items = await tx.streams.page(run.run_id, wanted.name, wanted.start, count) if count else ()
    return StreamPage(run, stream, items, wanted.start)


def _that_fit(sizes: Sequence[int]) -> int:
    """How many items fit into one page: at least one, if there is one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > PAGE_BYTES_MAX and count:
            return count
    return len(sizes)


async def _mark_read(ctx: EngineContext, run_id: RunId, name: str, items: int) -> None:
    async def operation(tx: Tx) -> None:
        tx.streams.mark_read(run_id, name, items)

    await ctx.store.transact(operation, key=run_id)


def _not_found(run: Run, name: str) -> NotFound:
    return NotFound(
        Reason.WORKFLOW_STREAM_NOT_FOUND,
        f"The run has no stream {name!r}.",
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        stream_name=name,
    )


# Retention


async def forget(ctx: EngineContext, name: tuple[RunId, str]) -> bool:
    """Delete an expired stream, its items first, in batches; returns whether there was something to delete."""

    async def operation(tx: Tx) -> bool:
        stream = await tx.streams.get(*name)
        if stream is None or stream.expires_at_ms is None or stream.expires_at_ms > tx.now_ms:
            return False
        full = await tx.streams.clear(*name, ITEMS_AT_ONCE) >= ITEMS_AT_ONCE
        if not full:
            tx.streams.delete(*name)
        return full

    while await ctx.store.transact(operation, key=f"stream:{name[0]}"):
        pass
    return True
