"""Lost responses and a server that dies: requests take effect once, and waits continue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from penstock.sdk.clients.client import Client
from penstock.sdk.clients.starts import ActivityStart
from penstock.sdk.failures import Unreachable
from tests.acceptance.cluster import Cluster, Hand
from tests.sdk.server_fixtures import OPERATOR, connected, serving


class LosingProxy:
    """Forwards requests to a server and drops a given number of responses."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.to_lose = 0
        self.lost = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", self._port)
        back = asyncio.create_task(self._pass_back(there, writer))
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                out.write(chunk)
                await out.drain()
        back.cancel()
        for each in (out, writer):
            each.transport.abort()

    async def _pass_back(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await there.read(65_536):
                if self.to_lose:
                    self.to_lose -= 1
                    self.lost += 1
                    break
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()


@pytest.fixture
async def proxy(scene: Cluster) -> AsyncIterator[tuple[LosingProxy, str]]:
    made = LosingProxy(scene.first.port)
    serving = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    yield made, f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}"
    serving.close()


@pytest.fixture
async def losing(proxy: tuple[LosingProxy, str]) -> LosingProxy:
    return proxy[0]


@pytest.fixture
async def client(proxy: tuple[LosingProxy, str], scene: Cluster) -> AsyncIterator[Client]:
    async with await Client.connect(proxy[1], namespace=scene.namespace, token=OPERATOR) as made:
        yield made


async def test_a_start_whose_answer_was_lost_is_one_start(client: Client, losing: LosingProxy) -> None:
    losing.to_lose = 2
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    made_up = await client.start_workflow("greeter", task_queue="q")
    assert losing.lost == 2
    assert (handle.is_new, made_up.is_new) == (True, True)
    assert (await client.count_workflows()).count == 2


async def test_a_signal_and_a_start_with_a_signal_are_heard_once(
    client: Client, losing: LosingProxy, scene: Cluster
) -> None:
    losing.to_lose = 1
    handle = await client.start_workflow("greeter", id="w", task_queue="q", start_signal="approve")
    losing.to_lose = 1
    await handle.signal("approve")
    assert losing.lost == 2
    await handle.terminate()
    assert (await scene.event_types("w")).count("SignalReceived") == 2


async def test_an_update_is_accepted_once_and_a_cancel_is_no_error(
    client: Client, losing: LosingProxy, scene: Cluster
) -> None:
    handle = await client.start_workflow("greeter", id="w", task_queue="q")
    losing.to_lose = 1
    await handle.start_update("add", 1)
    losing.to_lose = 1
    await handle.cancel("enough")
    assert losing.lost == 2
    assert (await scene.event_types("w")).count("UpdateAccepted") == 1


async def test_activities_whose_answer_was_lost_are_started_once(
    client: Client, losing: LosingProxy, scene: Cluster
) -> None:
    losing.to_lose = 1
    await client.start_activity("greet", task_queue="q")
    losing.to_lose = 1
    handles = await client.start_activities([ActivityStart("greet", task_queue="q") for _ in range(5)])
    assert losing.lost == 2
    assert len(handles) == 5
    assert [each async for each in client.list_activities()] != []
    assert (await scene.line())["ready_count"] == 6


async def test_a_wait_for_a_result_outlives_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with serving(tmp_path_factory.mktemp("dying")) as cluster, await connected(cluster) as client:
        hand = await cluster.worker("w1")
        handle = await client.start_workflow("greeter", id="w", task_queue="q")
        waiting = asyncio.create_task(handle.result())
        await handle.describe()  # sent after the wait, so that it has arrived
        cluster.first.kill()
        with pytest.raises(Unreachable):
            await impatient(cluster)
        cluster.first.start()
        await finish(hand)
        assert await waiting == "alive"


async def impatient(cluster: Cluster) -> None:
    async with await Client.connect(cluster.first.url, token=OPERATOR, retry_for=timedelta(0)):
        pass


async def finish(hand: Hand) -> None:
    await hand.finish(await hand.take(), "alive")
