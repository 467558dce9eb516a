"""Workers of two servers on one PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.worker import Worker
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import connected
from tests.support.live import migrate, running, server
from tests.support.patience import PATIENCE
from tests.support.servers import Server, create_database, drop_database

SHORT = PATIENCE
_ids = itertools.count(1)


@pytest.fixture(scope="module")
async def cluster(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("workers-on-postgres")
    url = await create_database(postgres)
    migrate(folder, url)
    servers = [server(folder, url, name=f"server-{number}") for number in range(2)]
    with running(*servers):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield Cluster(servers, session)
    await drop_database(postgres, url)


async def at(scene: Cluster, number: int) -> Client:
    """A client of one of the servers."""
    return await connected(Cluster([scene.servers[number]], scene.session, scene.namespace))


@activity.defn
async def add(one: int, other: int) -> int:
    return one + other


@workflow.defn
class Adding:
    def __init__(self) -> None:
        self.more: list[int] = []
        self.enough = False

    @workflow.run
    async def run(self, first: int) -> int:
        total = first
        while True:
            await workflow.wait_condition(lambda: bool(self.more) or self.enough)
            if not self.more:
                return total
            total = await workflow.execute_activity(
                add, args=[total, self.more.pop(0)], start_to_close_timeout=SHORT
            )

    @workflow.signal
    def put(self, number: int) -> None:
        self.more.append(number)

    @workflow.signal
    def finish(self) -> None:
        self.enough = True

    @workflow.query
    def waiting(self) -> int:
        return len(self.more)


CODE: dict[str, Any] = {"workflows": [Adding], "activities": [add]}


async def drive(client: Client, count: int) -> list[int]:
    """Start runs, signal each the numbers 1 to 5, and collect the results."""
    handles = [
        await client.start_workflow(Adding.run, n, id=f"p-{next(_ids)}", task_queue="q") for n in range(count)
    ]
    for number in range(1, 6):
        await asyncio.gather(*(handle.signal(Adding.put, number) for handle in handles))
    await asyncio.gather(*(handle.signal(Adding.finish) for handle in handles))
    return [await handle.result() for handle in handles]


async def test_runs_end_as_they_should_with_workers_on_two_servers(scene: Cluster) -> None:
    async with (
        await at(scene, 0) as one,
        await at(scene, 1) as other,
        Worker(one, task_queue="q", **CODE),
        Worker(other, task_queue="q", **CODE),
    ):
        assert await drive(one, 10) == [15 + n for n in range(10)]


@pytest.mark.parametrize("cached", [0, 1, 1000])
async def test_the_size_of_the_cache_changes_nothing(scene: Cluster, cached: int) -> None:
    async with (
        await at(scene, 0) as client,
        Worker(client, task_queue="q", max_cached_workflows=cached, **CODE),
    ):
        assert await drive(client, 5) == [15 + n for n in range(5)]


async def test_workers_that_come_and_go_lose_nothing(scene: Cluster) -> None:
    async with await at(scene, 0) as client:
        driving = asyncio.ensure_future(drive(client, 8))
        while not driving.done():
            async with Worker(client, task_queue="q", **CODE):
                handle = await client.start_activity(
                    add, args=[1, 1], id=f"a-{next(_ids)}", task_queue="q", start_to_close_timeout=SHORT
                )
                await handle.result()
        assert await driving == [15 + n for n in range(8)]
