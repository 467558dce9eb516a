"""Message streams in workflow code: read in order, each once, over replays and continue-as-new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Replayer, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.replay.replayer import History
from penstock.sdk.worker import Worker
from tests.acceptance.cluster import Cluster


@workflow.defn(name="inbox")
class Inbox:
    """Reads messages until one says stop, and continues as new after each `every` of them."""

    def __init__(self) -> None:
        self._go = False

    @workflow.signal
    def go(self) -> None:
        self._go = True

    @workflow.run
    async def run(self, every: int, read: list[Any]) -> list[Any]:
        await workflow.wait_condition(lambda: self._go or bool(read))
        mail, count = workflow.message_stream("mail"), 0
        while True:
            message = await mail.receive_one()
            if message.arguments == ["stop"]:
                return read
            read.append([message.position, *message.arguments])
            count += 1
            if count == every:
                workflow.continue_as_new(args=[every, read])


@workflow.defn(name="batches")
class Batches:
    @workflow.run
    async def run(self) -> list[Any]:
        first, second = workflow.message_stream("first"), workflow.message_stream("second")
        both = await asyncio.gather(first.receive(10), second.receive_one())
        return [[each.message_id for each in both[0]], both[1].message_id]


async def send(scene: Cluster, workflow_id: str, stream: str, message_id: str, *values: object) -> None:
    path = f"/api/workflows/{workflow_id}/message-streams/{stream}/messages"
    (await scene.post(path, {"message_id": message_id, "input": list(values)})).ok()


@pytest.mark.parametrize("every", [100, 1])
async def test_messages_are_read_in_order_and_once_also_over_continue_as_new(
    client: Client, scene: Cluster, every: int
) -> None:
    async with Worker(client, task_queue="q", workflows=[Inbox]):
        handle = await client.start_workflow("inbox", args=[every, []], id="w", task_queue="q")
        for number in (1, 2):
            await send(scene, "w", "mail", f"m{number}", number)
            await send(scene, "w", "mail", f"m{number}", number)
        await handle.signal("go")
        await send(scene, "w", "mail", "m3", 3)
        await send(scene, "w", "mail", "m4", "stop")
        assert await handle.result() == [[1, 1], [2, 2], [3, 3]]
    history = await client.get_workflow_handle("w").fetch_history()
    result = Replayer(workflows=[Inbox]).replay(History.read({"events": history.events, "workflow_id": "w"}))
    assert result.failure is None


async def test_messages_stay_out_of_the_history_until_the_code_reads_their_stream(
    client: Client, scene: Cluster
) -> None:
    async with Worker(client, task_queue="q", workflows=[Inbox]):
        handle = await client.start_workflow("inbox", args=[100, []], id="w", task_queue="q")
        await send(scene, "w", "other", "m1", 1)
        await send(scene, "w", "mail", "m2", 2)
        await handle.signal("go")
        await send(scene, "w", "mail", "m3", "stop")
        assert await handle.result() == [[1, 2]]
    signals = [each for each in await scene.events("w") if each["event_type"] == "SignalReceived"]
    assert [each["payload"].get("message_id") for each in signals] == [None, "m2", "m3"]
    described = await scene.describe("w")
    assert [each["signal_name"] for each in described["signals"]] == ["go"]
    assert [each["command_type"] for each in described["commands"]] == ["signal", "start"]


async def test_code_may_read_several_streams_at_once_and_several_messages(
    client: Client, scene: Cluster
) -> None:
    handle = await client.start_workflow("batches", id="w", task_queue="q")
    for number in range(3):
        await send(scene, "w", "first", f"a{number}")
    await send(scene, "w", "second", "b0")
    async with Worker(client, task_queue="q", workflows=[Batches]):
        assert await handle.result() == [["a0", "a1", "a2"], "b0"]


async def test_the_next_worker_goes_on_behind_the_last_message_that_was_read(
    client: Client, scene: Cluster
) -> None:
    handle = await client.start_workflow("inbox", args=[100, []], id="w", task_queue="q")
    async with Worker(client, task_queue="q", workflows=[Inbox]):
        await handle.signal("go")
        await send(scene, "w", "mail", "m1", "a")
        while "m1" not in str(await scene.events("w")):
            await asyncio.sleep(0.01)
    await send(scene, "w", "mail", "m2", "b")
    await send(scene, "w", "mail", "m3", "stop")
    async with Worker(client, task_queue="q", workflows=[Inbox]):
        assert await handle.result() == [[1, "a"], [2, "b"]]


def test_a_name_that_no_stream_has_is_refused() -> None:
    with pytest.raises(ValueError, match="stream name has 1 to 128"):
        workflow.message_stream("a b")
