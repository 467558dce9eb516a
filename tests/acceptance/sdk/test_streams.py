"""Streams as the public SDK writes and reads them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
from durable_workflow import Client, Worker, workflow
from durable_workflow.client import WorkflowStreamAppendItem
from durable_workflow.errors import ServerError

from tests.acceptance.cluster import Cluster
from tests.acceptance.sdk import sdk_worker
from tests.support.patience import PATIENCE_S

QUEUE = "streams"
Steps = Generator[Any, Any, Any]


@workflow.defn(name="reporter")
class Reporter:
    """Writes what it is sent to a stream of its own, as it comes, and closes it."""

    def run(self, ctx: Any, count: int) -> Steps:
        inbox = ctx.message_stream("words")
        yield ctx.append_workflow_stream("log", [WorkflowStreamAppendItem({"began": True}, item_type="note")])
        for _ in range(count):
            message = yield from inbox.receive_one()
            items = [WorkflowStreamAppendItem(word) for word in message.arguments]
            yield ctx.append_workflow_stream("log", items)
        yield ctx.error_workflow_stream("aside", "nothing to say", retention_seconds=3600)
        yield ctx.close_workflow_stream("log")
        return count


@pytest.fixture
async def client(scene: Cluster) -> AsyncIterator[Client]:
    assert scene.namespace is not None
    async with sdk_worker.client_of(scene.first.url, scene.namespace) as made:
        yield made


@contextlib.asynccontextmanager
async def working(scene: Cluster) -> AsyncIterator[None]:
    assert scene.namespace is not None
    async with sdk_worker.client_of(scene.last.url, scene.namespace) as client:
        worker = Worker(client, task_queue=QUEUE, workflows=[Reporter], activities=[])
        run = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            await worker.stop()
            await asyncio.wait_for(run, PATIENCE_S)


async def test_a_reader_follows_a_stream_while_workflow_code_writes_it(scene: Cluster, client: Client):
    handle = await client.start_workflow(
        workflow_type="reporter", task_queue=QUEUE, workflow_id="reporter-1", input=[3]
    )
    run_id = (await client.describe_workflow("reporter-1")).run_id
    assert run_id is not None

    async def follow() -> list[Any]:
        return [
            item async for item in client.iter_workflow_stream("reporter-1", run_id, "log", wait_seconds=20)
        ]

    reading = asyncio.create_task(follow())
    async with working(scene):
        sent: list[list[Any]] = [["a"], ["b", "c"], [None]]
        for n, words in enumerate(sent):
            receipt = await handle.append_message("words", f"m{n}", args=words)
            assert receipt["position"] == n + 1
        items = await asyncio.wait_for(reading, PATIENCE_S)
        assert await asyncio.wait_for(handle.result(), PATIENCE_S) == 3
    assert [item.payload for item in items] == [{"began": True}, "a", "b", "c", None]
    assert [item.offset for item in items] == [0, 1, 2, 3, 4]
    assert (items[0].item_type, items[0].origin) == ("note", "workflow")
    assert len({item.idempotency_key for item in items}) == 5

    streams = {each.stream_name: each for each in await client.list_workflow_streams("reporter-1", run_id)}
    assert (streams["log"].status, streams["log"].total_items, streams["log"].last_offset) == ("closed", 5, 4)
    assert (streams["aside"].status, streams["aside"].error_reason) == ("errored", "nothing to say")
    assert streams["aside"].retention_seconds == 3600


async def test_a_client_adds_to_a_stream_and_closes_it(scene: Cluster, client: Client):
    await client.start_workflow(
        workflow_type="reporter", task_queue=QUEUE, workflow_id="reporter-2", input=[1]
    )
    run_id = (await client.describe_workflow("reporter-2")).run_id
    assert run_id is not None
    items = [WorkflowStreamAppendItem(1, idempotency_key="k"), WorkflowStreamAppendItem([2])]
    first = await client.append_workflow_stream("reporter-2", run_id, "notes", items)
    assert (first.accepted_offsets, first.accepted_count, first.deduplicated_count) == ([0, 1], 2, 0)
    again = await client.append_workflow_stream("reporter-2", run_id, "notes", items[:1])
    assert (again.accepted_offsets, again.accepted_count, again.deduplicated_count) == ([0], 0, 1)
    page = await client.subscribe_workflow_stream("reporter-2", run_id, "notes", from_offset=1, max_items=1)
    assert ([item.payload for item in page.items], page.next_offset, page.terminal) == ([[2]], 2, False)
    described = await client.describe_workflow_stream("reporter-2", run_id, "notes")
    assert (described.status, described.pending_items, described.total_items) == ("open", 1, 2)
    closed = await client.close_workflow_stream("reporter-2", run_id, "notes", retention_seconds=60)
    assert (closed.terminal, closed.retention_seconds) == (True, 60)
    with pytest.raises(ServerError) as refused:
        await client.append_workflow_stream("reporter-2", run_id, "notes", [WorkflowStreamAppendItem(3)])
    assert refused.value.reason() == "workflow_stream_closed"


async def test_a_message_that_is_sent_twice_has_one_place(scene: Cluster, client: Client):
    handle = await client.start_workflow(
        workflow_type="reporter", task_queue=QUEUE, workflow_id="reporter-3", input=[1]
    )
    first = await handle.append_message("words", "m1", args=["a"])
    again = await handle.append_message("words", "m1", args=["a"])
    assert (first["position"], again["position"], again["outcome"]) == (1, 1, "message_deduplicated")
    with pytest.raises(ServerError) as refused:
        await handle.append_message("words", "m1", args=["b"])
    assert refused.value.reason() == "request_id_conflict"
