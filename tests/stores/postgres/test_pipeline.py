"""Piggybacked BEGIN and COMMIT have the same effect as separate ones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from penstock.stores.postgres import pipeline
from penstock.stores.postgres.pipeline import PipelinedConnection
from penstock.stores.postgres.transactions import PipelinedTransaction, prepare_piggybacked
from penstock.stores.sql.statement_merger import HotBatches

LOCK = "SELECT number FROM wired WHERE number = 1 FOR UPDATE"
ADD = "INSERT INTO wired SELECT q.number, q.words FROM unnest($1::bigint[], $2::text[]) q(number, words)"
REMOVE = "DELETE FROM wired WHERE number = any($1::bigint[])"


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Another session that reads the same table."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE wired (number BIGINT PRIMARY KEY, words TEXT)")
    yield connection
    await connection.close()


@pytest.fixture
async def wired(postgres_url: str, other: object) -> AsyncIterator[PipelinedConnection]:
    connection = await pipeline.connect(postgres_url, server_settings={"statement_timeout": "300"})
    await prepare_piggybacked(connection)
    yield connection
    await connection.close()


async def numbers(connection: asyncpg.Connection[asyncpg.Record]) -> list[int]:
    return [row[0] for row in await connection.fetch("SELECT number FROM wired ORDER BY number")]


async def add(wired: PipelinedConnection, *added: int) -> None:
    """One after the other, in a transaction that holds a lock."""
    transaction = PipelinedTransaction(wired, HotBatches())
    await transaction.fetch(LOCK, needs_transaction=True)
    for number in added[:-1]:
        await transaction.write((ADD, ([number], ["more"])))
    await transaction.commit((ADD, ([added[-1]], ["last"])))


async def test_writes_of_a_transaction_are_committed_together_from_its_first_time_on(
    wired: PipelinedConnection, other: asyncpg.Connection[asyncpg.Record]
):
    """The first time, asyncpg queries the types of a statement before it sends it."""
    for first in (1, 11, 21):
        await add(wired, first, first + 1, first + 2)
        assert not wired.is_in_transaction()
        sharing = "SELECT count(DISTINCT xmin::text) FROM wired WHERE number BETWEEN $1 AND $1 + 2"
        assert await other.fetchval(sharing, first) == 1
    assert len(await numbers(other)) == 9


async def test_a_transaction_is_open_from_the_first_lock_to_the_last_write(
    wired: PipelinedConnection, other: asyncpg.Connection[asyncpg.Record]
):
    await add(wired, 1)
    transaction = PipelinedTransaction(wired, HotBatches())
    await transaction.fetch("SELECT number FROM wired")
    assert not wired.is_in_transaction(), "a plain question needs none"
    await transaction.fetch(LOCK, needs_transaction=True)
    assert wired.is_in_transaction()
    with pytest.raises(asyncpg.LockNotAvailableError):
        await other.fetch(LOCK + " NOWAIT")
    await transaction.write((ADD, ([2], ["more"])))
    assert await numbers(other) == [1]
    await transaction.commit((ADD, ([3], ["last"])))
    assert await numbers(other) == [1, 2, 3]
    await other.fetch(LOCK + " NOWAIT")


@pytest.mark.parametrize("times", [0, 3], ids=["the first time", "later"])
async def test_nothing_is_committed_if_the_last_write_fails(
    wired: PipelinedConnection, other: asyncpg.Connection[asyncpg.Record], times: int
):
    for number in range(times):
        await add(wired, 100 + number)
    before = await numbers(other)
    with pytest.raises(asyncpg.UniqueViolationError):
        await add(wired, 1, 2, 1)
    await wired.execute("ROLLBACK")
    assert await numbers(other) == before
    await add(wired, 1, 2)
    assert await numbers(other) == [1, 2, *before]


async def test_a_single_write_is_a_transaction_by_itself(
    wired: PipelinedConnection, other: asyncpg.Connection[asyncpg.Record]
):
    await add(wired, 1, 2)
    await PipelinedTransaction(wired, HotBatches()).commit((REMOVE, ([1],)))
    assert not wired.is_in_transaction()
    assert await numbers(other) == [2]


async def test_what_asyncpg_refuses_to_send_leaves_nothing_behind_for_the_next_statement(
    wired: PipelinedConnection, other: asyncpg.Connection[asyncpg.Record]
):
    await add(wired, 1)
    with pytest.raises(asyncpg.DataError):
        await PipelinedTransaction(wired, HotBatches()).write((ADD, (["no number"], ["more"])))
    await wired.fetch("SELECT number FROM wired")
    assert not wired.is_in_transaction()


async def test_a_connection_that_is_not_used_for_longer_than_a_statement_may_take_is_still_good(
    wired: PipelinedConnection, other: asyncpg.Connection[asyncpg.Record]
):
    await other.execute("SELECT pg_sleep(0.5)")
    await add(wired, 1)
    assert await numbers(other) == [1]
