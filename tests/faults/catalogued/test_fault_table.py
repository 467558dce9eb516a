"""Each row of the fault table in the guide, on real servers."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from tests.acceptance.cluster import Cluster, Reply
from tests.faults.databases.test_full_disk import on_a_small_disk
from tests.faults.deadlines import until
from tests.faults.lossy_proxy import swallowing_proxy
from tests.faults.servers import Doomed, serving
from tests.support.live import migrate
from tests.support.servers import (
    CrashablePostgres,
    crashable_postgres,
    crashable_redis,
    create_database,
)

pytestmark = pytest.mark.faults

GUIDE = Path(__file__).parents[3] / "docs/guides/observing.md"
QUICK = {"DW_STATEMENT_TIMEOUT_MS": "500"}
NO_ROOM = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER no_room BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION no_room()
"""
LARGE = "x" * 50_000
_numbers = itertools.count()


@dataclass(frozen=True)
class Row:
    """What the guide says of one fault: a status, and the reason of a refusal, for each kind of request."""

    health: str
    ready: str
    start: str
    read: str


def table() -> dict[str, Row]:
    section = GUIDE.read_text("utf-8").partition("### What a fault does")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|\n ").split("|")]
        for line in re.findall(r"^\|.*$", section, re.M)
    ]
    return {cells[0]: Row(*cells[1:5]) for cells in rows[2:]}


async def found(cluster: Cluster) -> Row:
    """What the server says now, in the words of the table."""
    start, read, health, ready = await asyncio.gather(
        cluster.start(f"order-{next(_numbers)}", input=[LARGE]),
        cluster.get("/api/workflows/before"),
        cluster.get("/api/health"),
        cluster.get("/api/ready"),
    )
    return Row(str(health.status), str(ready.status), _shown(start), _shown(read))


def _shown(reply: Reply) -> str:
    return f"{reply.status}" if reply.reason is None else f"{reply.status} `{reply.reason}`"


@asynccontextmanager
async def asking(*doomed: Doomed) -> AsyncIterator[Cluster]:
    """The first of some servers that run, with a workflow that can be read."""
    async with serving(*doomed), aiohttp.ClientSession() as session:
        cluster = Cluster([doomed[0].live], session)
        (await cluster.start("before")).expect(201)
        yield cluster


@asynccontextmanager
async def on_postgres(
    folder: Path, count: int = 1
) -> AsyncIterator[tuple[Cluster, CrashablePostgres, list[Doomed]]]:
    with crashable_postgres() as postgres:
        url = await create_database(postgres.server)
        migrate(folder, url)
        doomed = [Doomed(folder, url, name=f"server-{number}", settings=QUICK) for number in range(count)]
        async with asking(*doomed) as cluster:
            yield cluster, postgres, doomed


@asynccontextmanager
async def nothing(folder: Path) -> AsyncIterator[Cluster]:
    async with on_postgres(folder) as (cluster, _, _):
        yield cluster


@asynccontextmanager
async def stopped(folder: Path) -> AsyncIterator[Cluster]:
    async with on_postgres(folder) as (cluster, postgres, _):
        postgres.kill()
        yield cluster


@asynccontextmanager
async def frozen(folder: Path) -> AsyncIterator[Cluster]:
    async with on_postgres(folder) as (cluster, postgres, _):
        postgres.pause()
        try:
            yield cluster
        finally:
            postgres.resume()


@asynccontextmanager
async def read_only(folder: Path) -> AsyncIterator[Cluster]:
    async with on_postgres(folder) as (cluster, postgres, doomed):
        name = urlsplit(doomed[0].live.environment["DW_DATABASE_URL"]).path.removeprefix("/")
        outsider = await asyncpg.connect(postgres.server.url)
        await outsider.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        await outsider.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        await outsider.close()
        yield cluster


@asynccontextmanager
async def full_postgres(folder: Path) -> AsyncIterator[Cluster]:
    async with on_postgres(folder) as (cluster, _, doomed):
        outsider = await asyncpg.connect(doomed[0].live.environment["DW_DATABASE_URL"])
        await outsider.execute(NO_ROOM)
        await outsider.close()
        yield cluster


@asynccontextmanager
async def full_sqlite(folder: Path) -> AsyncIterator[Cluster]:
    doomed, kind_of_disk, disk_folder = on_a_small_disk(folder)
    async with asking(doomed) as cluster:
        disk = kind_of_disk(doomed, disk_folder)
        disk.fill()
        yield cluster
        disk.free()


@asynccontextmanager
async def cut_off(folder: Path) -> AsyncIterator[Cluster]:
    with crashable_postgres() as postgres:
        url = await create_database(postgres.server)
        migrate(folder, url)
        async with (
            swallowing_proxy(url) as proxy,
            asking(Doomed(folder, proxy.url, settings=QUICK)) as cluster,
        ):
            proxy.silent = True
            yield cluster
            proxy.speak_again()


@asynccontextmanager
async def another_frozen(folder: Path) -> AsyncIterator[Cluster]:
    async with on_postgres(folder, count=2) as (cluster, _, doomed):
        doomed[1].send(SIGSTOP)
        try:
            yield cluster
        finally:
            doomed[1].send(SIGCONT)


@asynccontextmanager
async def another_killed(folder: Path) -> AsyncIterator[Cluster]:
    async with on_postgres(folder, count=2) as (cluster, _, doomed):
        await doomed[1].kill()
        yield cluster


@asynccontextmanager
async def without_redis(folder: Path) -> AsyncIterator[Cluster]:
    with crashable_redis() as redis, crashable_postgres() as postgres:
        url = await create_database(postgres.server)
        migrate(folder, url)
        settings = {"DW_COORDINATION": "redis", "DW_REDIS_URL": redis.server.url}
        async with asking(Doomed(folder, url, settings=settings)) as cluster:
            redis.kill()

            async def is_noticed() -> bool:
                health = (await cluster.get("/api/health")).expect(200)
                return bool(health["checks"].get("cache") == "unavailable")

            await until("the server notices", is_noticed)
            yield cluster


FAULTS: dict[str, Callable[[Path], AbstractAsyncContextManager[Cluster]]] = {
    "none": nothing,
    "PostgreSQL is stopped": stopped,
    "PostgreSQL is frozen": frozen,
    "PostgreSQL is read-only": read_only,
    "PostgreSQL's disk is full": full_postgres,
    "the disk of an SQLite file is full": full_sqlite,
    "this server is cut off from PostgreSQL": cut_off,
    "another server is frozen": another_frozen,
    "another server is killed": another_killed,
    "Redis is gone": without_redis,
}


def test_every_fault_of_the_guide_is_tried() -> None:
    assert table().keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", list(FAULTS))
async def test_health_readiness_and_requests_are_during_a_fault_as_the_guide_says(
    tmp_path: Path, fault: str
) -> None:
    async with FAULTS[fault](tmp_path) as cluster:
        seen: list[Row] = []

        async def as_written() -> bool:
            seen.append(await found(cluster))
            return seen[-1] == table()[fault]

        try:
            await until(f"it is as the guide says: {fault}", as_written)
        except AssertionError:
            raise AssertionError(f"expected {table()[fault]}, found {seen[-3:]}") from None


async def test_a_server_whose_disk_was_full_is_ready_again_by_itself(tmp_path: Path) -> None:
    doomed, kind_of_disk, disk_folder = on_a_small_disk(tmp_path)
    async with asking(doomed) as cluster:
        disk = kind_of_disk(doomed, disk_folder)
        disk.fill()

        async def refused() -> bool:
            return (await cluster.start(f"full-{next(_numbers)}", input=[LARGE])).status in (503, 507)

        await until("a start is refused", refused)
        ready = await cluster.get("/api/ready")
        assert (ready.status, ready["checks"]["storage"]["status"] in ("full", "failing")) == (503, True)
        disk.free()

        async def is_ready() -> bool:
            return (await cluster.get("/api/ready")).status == 200

        await until("it is ready again", is_ready)
        (await cluster.start("after")).expect(201)
