"""PostgreSQL that is down, frozen or read-only: clients get errors, and the server recovers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from tests.acceptance.cluster import Cluster, Reply
from tests.faults.deadlines import until
from tests.support.live import migrate, running, server
from tests.support.servers import CrashablePostgres, crashable_postgres, create_database, drop_database

pytestmark = pytest.mark.faults

SETTINGS = {"DW_STATEMENT_TIMEOUT_MS": "200"}


@dataclass(frozen=True)
class Outage:
    """A server, its PostgreSQL, and the ways to take the database away."""

    cluster: Cluster
    postgres: CrashablePostgres
    database: str

    async def execute(self, statement: str) -> None:
        """Run a statement on PostgreSQL from outside the server's database."""
        connection = await asyncpg.connect(self.postgres.server.url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def alter(self, how: str) -> None:
        """Change the database for all sessions that begin from now on, and end those that there are."""
        await self.execute(f'ALTER DATABASE "{self.database}" {how}')
        await self.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.database}'"
        )

    async def works_again(self, workflow_id: str) -> None:
        """Wait until a start is taken and the server calls itself ready."""

        async def started() -> bool:
            return (await self.cluster.start(workflow_id)).status in (200, 201)

        async def ready() -> bool:
            return (await self.cluster.get("/api/ready")).status == 200

        await until("a start is taken", started)
        await until("the server is ready", ready)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[CrashablePostgres]:
    with crashable_postgres() as postgres:
        yield postgres


@asynccontextmanager
async def served(postgres: CrashablePostgres, folder: Path) -> AsyncIterator[Outage]:
    url = await create_database(postgres.server)
    migrate(folder, url)
    with running(server(folder, url, settings=SETTINGS)) as servers:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield Outage(Cluster(servers, session), postgres, urlsplit(url).path.removeprefix("/"))
    await drop_database(postgres.server, url)


@pytest.fixture
async def outage(own_postgres: CrashablePostgres, tmp_path: Path) -> AsyncIterator[Outage]:
    async with served(own_postgres, tmp_path) as found:
        yield found


async def test_a_start_on_a_postgres_that_stands_still_is_refused_and_works_once_it_goes_on(outage: Outage):
    (await outage.cluster.start("before")).expect(201)
    outage.postgres.pause()
    try:
        reply, ready = await asyncio.gather(outage.cluster.start("while"), outage.cluster.get("/api/ready"))
    finally:
        outage.postgres.resume()
    reply.expect(503, "store_unavailable")
    assert ready.status == 503
    await outage.works_again("after")


async def test_reads_and_polls_of_a_postgres_that_stands_still_are_refused(outage: Outage):
    (await outage.cluster.start("before")).expect(201)
    hand = await outage.cluster.worker("w1")
    outage.postgres.pause()
    try:
        replies = await asyncio.gather(
            outage.cluster.get("/api/workflows/before"), hand.poll_once("workflow", 1)
        )
    finally:
        outage.postgres.resume()
    for reply in replies:
        reply.expect(503, "store_unavailable")
    await outage.works_again("after")


async def test_a_read_only_postgres_is_told_apart_and_writes_work_when_it_is_writable_again(outage: Outage):
    await outage.alter("SET default_transaction_read_only = on")

    tries = itertools.count()

    async def refused() -> Reply | None:
        reply = await outage.cluster.start(f"while-{next(tries)}")
        return reply if reply.status != 201 else None

    (await until("a start is refused", refused)).expect(503, "store_unavailable")
    assert (await outage.cluster.get("/api/ready")).status == 503
    await outage.execute(f'ALTER DATABASE "{outage.database}" RESET default_transaction_read_only')
    await outage.works_again("after")


async def test_timers_fire_after_a_database_that_took_no_connections_is_back(outage: Outage):
    hand = await outage.cluster.worker("w1")
    (await outage.cluster.start("order-1")).expect(201)
    task = await hand.take()
    await outage.alter("WITH ALLOW_CONNECTIONS false")
    (await outage.cluster.start("while")).expect(503, "store_unavailable")
    await outage.execute(f'ALTER DATABASE "{outage.database}" WITH ALLOW_CONNECTIONS true')

    async def decided() -> bool:
        return (await hand.decide(task, {"type": "start_timer", "delay_seconds": 1})).status == 200

    async def fired() -> bool:
        return "TimerFired" in await outage.cluster.event_types("order-1")

    await until("a timer is started", decided)
    await until("the timer fires", fired)


async def test_refusals_of_a_group_that_failed_speak_of_each_callers_own_task(outage: Outage):
    """Tenants share commits, but errors of one never reach another."""
    held = []
    for tenant in ("tenant-a", "tenant-b"):
        (await outage.cluster.post("/api/namespaces", {"name": tenant}, role="admin")).expect(201)
        hand = await outage.cluster.at(tenant).worker("w1")
        for number in range(6):
            (await hand.cluster.start_activity(f"charge-{number}")).expect(201)
        polled = (await hand.poll("activity", max_tasks=6)).expect(200)
        held += [(hand, task) for task in polled["tasks"]]
    assert len(held) == 12
    outage.postgres.kill()
    try:
        replies = await asyncio.gather(*(hand.finish(task) for hand, task in held))
    finally:
        outage.postgres.start()
    for reply, (_, task) in zip(replies, held, strict=True):
        assert reply.status == 503
        told = {name: reply[name] for name in ("task_id", "activity_attempt_id")}
        assert told == {name: task[name] for name in told}
    again = await asyncio.gather(*(hand.finish(task) for hand, task in held))
    assert [reply.status for reply in again] == [200] * 12
