"""A server waits for its PostgreSQL at startup, up to a limit, without tracebacks of the driver in its log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from tests.acceptance.cluster import Cluster
from tests.faults.deadlines import until
from tests.support.live import migrate, running, server
from tests.support.servers import crashable_postgres, create_database

pytestmark = pytest.mark.faults

QUICK = {"DW_STATEMENT_TIMEOUT_MS": "500"}


def log_of(folder: Path, name: str = "server") -> str:
    return (folder / f"{name}.log").read_text(errors="replace")


async def test_a_server_waits_for_a_postgres_that_starts_later(tmp_path: Path) -> None:
    with crashable_postgres() as postgres:
        url = await create_database(postgres.server)
        migrate(tmp_path, url)
        postgres.kill()
        waiting = server(tmp_path, url)
        try:
            waiting.start(wait=False)
            await until(
                "it waits", lambda: waiting.log.exists() and "waiting for PostgreSQL" in log_of(tmp_path)
            )
            await asyncio.to_thread(postgres.start)
            await asyncio.to_thread(waiting.wait_until_ready)
            assert "Traceback" not in log_of(tmp_path)
        finally:
            waiting.kill()


async def test_a_server_waits_for_a_postgres_that_takes_no_writes_yet(
    tmp_path: Path, postgres_database: str
) -> None:
    name = urlsplit(postgres_database).path.removeprefix("/")
    outsider = await asyncpg.connect(postgres_database)
    await outsider.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    waiting = server(tmp_path, postgres_database)
    try:
        waiting.start(wait=False)
        await until("it waits", lambda: waiting.log.exists() and "takes no writes" in log_of(tmp_path))
        await outsider.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await asyncio.to_thread(waiting.wait_until_ready)
        assert "Traceback" not in log_of(tmp_path)
    finally:
        waiting.kill()
        await outsider.close()


async def test_a_server_that_waited_in_vain_says_what_to_do(tmp_path: Path) -> None:
    lost = server(tmp_path, "postgresql://postgres@127.0.0.1:1/x", settings={"DW_DATABASE_WAIT_SECONDS": "1"})
    lost.start(wait=False)
    assert await asyncio.to_thread(lost.exited) == 1
    log = log_of(tmp_path)
    assert "store_unavailable" in log
    assert "DW_DATABASE_WAIT_SECONDS" in log
    assert "Traceback" not in log


async def test_a_server_whose_database_does_not_exist_does_not_wait_for_it(
    tmp_path: Path, postgres_database: str
) -> None:
    wrong = server(tmp_path, postgres_database + "_gone", settings={"DW_DATABASE_WAIT_SECONDS": "600"})
    wrong.start(wait=False)
    assert await asyncio.to_thread(wrong.exited) == 1
    log = log_of(tmp_path)
    assert "refused the connection" in log
    assert "DW_DATABASE_URL" in log
    assert "Traceback" not in log


async def test_an_outage_of_postgres_leaves_no_traceback_in_the_log(tmp_path: Path) -> None:
    with crashable_postgres() as postgres:
        url = await create_database(postgres.server)
        migrate(tmp_path, url)
        with running(server(tmp_path, url, settings=QUICK)) as servers:
            async with aiohttp.ClientSession() as session:
                cluster = Cluster(servers, session)
                (await cluster.start("before")).expect(201)
                postgres.kill()
                (await cluster.start("while")).expect(503, "store_unavailable")
                (await cluster.get("/api/ready")).expect(503)
                await asyncio.to_thread(postgres.start)

                async def is_ready() -> bool:
                    return (await cluster.get("/api/ready")).status == 200

                await until("it is ready again", is_ready)
        assert "Traceback" not in log_of(tmp_path)
