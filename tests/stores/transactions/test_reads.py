"""A read sees one snapshot, whatever is committed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from penstock.core.model import RunId
from penstock.errors import Unavailable
from penstock.ports.store import Store, Tx
from penstock.stores.postgres.database_clock import DatabaseClock
from penstock.stores.postgres.readers import GROUPS_AT_ONCE, Readers
from penstock.stores.postgres.store import PostgresStore
from penstock.stores.sql.row_cache import ImmutableCache
from penstock.wakeups.local import LocalWakeups
from tests.stores.store_operations import record
from tests.support.builders import a_run, an_instance
from tests.support.patience import PATIENCE_S

RENAME = "UPDATE runs SET workflow_id = workflow_id || '+'"


def rename_the_runs(address: str | Path) -> None:
    """Commit a change on another connection, in another thread."""
    if isinstance(address, Path):
        with sqlite3.connect(address) as connection:
            connection.execute(RENAME)
        connection.close()
        return

    async def rename() -> None:
        connection = await asyncpg.connect(address)
        await connection.execute(RENAME)
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(rename()))
    thread.start()
    thread.join()


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_read_sees_nothing_that_was_committed_between_its_questions(
    store: Store, address: str | Path
):
    """Also the first of its kind, of which the store does not know yet that it needs a second statement."""
    await record(store, lambda tx: tx.runs.insert(a_run("r1", workflow_id="one")))

    async def names(tx: Tx) -> list[str]:
        before = await tx.runs.get(RunId("r1"))
        rename_the_runs(address)
        after = await tx.runs.get(RunId("r1"))
        assert before is not None
        assert after is not None
        return [before.workflow_id, after.workflow_id]

    for _ in range(2):
        first, second = await store.read(names)
        assert first == second
    renamed = await store.read(lambda tx: tx.runs.get(RunId("r1")))
    assert renamed is not None
    assert renamed.workflow_id.startswith("one+")


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_read_that_would_change_something_fails_and_changes_nothing(store: Store):
    with pytest.raises(Exception, match=r"read-?only|store_unavailable"):
        await store.read(lambda tx: tx.runs.reserve(an_instance(run_id="r1")))
    assert await store.read(lambda tx: tx.runs.instance("default", "order-1")) is None


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_a_read_does_not_wait_for_a_row_that_another_holds(store: Store, address: str):
    await record(store, lambda tx: tx.runs.insert(a_run("r1", workflow_id="one")))
    holder = await asyncpg.connect(address)
    async with holder.transaction():
        await holder.execute("SELECT * FROM runs FOR UPDATE")
        found = await asyncio.wait_for(store.read(lambda tx: tx.runs.lock(RunId("r1"))), PATIENCE_S)
    await holder.close()
    assert found is not None
    assert found.workflow_id == "one"


async def test_reads_that_come_together_get_each_its_own_answer(store: Store):
    def start_all(tx: Tx) -> None:
        for number in range(20):
            tx.runs.insert(a_run(f"r{number}", workflow_id=f"w{number}"))

    await record(store, start_all)

    async def look(number: int) -> str:
        async def operation(tx: Tx) -> str:
            run = await tx.runs.get(RunId(f"r{number}"))
            assert run is not None, f"r{number} is not there"
            again = await tx.runs.get(RunId(f"r{(number + 1) % 20}"))
            assert again is not None
            return f"{run.workflow_id} {again.workflow_id}"

        return await store.read(operation)

    answers = await asyncio.gather(*(look(number) for number in range(21)), return_exceptions=True)
    assert answers[:20] == [f"w{number} w{(number + 1) % 20}" for number in range(20)]
    assert isinstance(answers[20], AssertionError)


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_a_caller_who_goes_away_leaves_the_reads_beside_it_alone(store: Store):
    await record(store, lambda tx: tx.runs.insert(a_run("r1", workflow_id="one")))
    looks = [asyncio.create_task(store.read(lambda tx: tx.runs.get(RunId("r1")))) for _ in range(5)]
    await asyncio.sleep(0)
    looks[2].cancel()
    found = await asyncio.gather(*looks, return_exceptions=True)
    assert isinstance(found[2], asyncio.CancelledError)
    assert [each.workflow_id for place, each in enumerate(found) if place != 2] == ["one"] * 4  # type: ignore[union-attr]


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_reads_go_on_after_all_connections_were_broken(store: Store, address: str):
    await record(store, lambda tx: tx.runs.insert(a_run("r1", workflow_id="one")))
    await store.read(lambda tx: tx.runs.get(RunId("r1")))
    other = await asyncpg.connect(address)
    await other.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    await other.close()
    found = None
    for _ in range(10):  # each broken connection may be met once
        with contextlib.suppress(Unavailable):
            found = await store.read(lambda tx: tx.runs.get(RunId("r1")))
    assert found is not None
    assert found.workflow_id == "one"


class GatedDatabase:
    """A pool that delays the release of connections."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.ending = 0

    def get_max_size(self) -> int:
        return GROUPS_AT_ONCE

    @contextlib.asynccontextmanager
    async def acquire(self, *, timeout: float) -> AsyncIterator[GatedDatabase]:
        yield self
        self.ending += 1
        await self.may_end.wait()

    async def fetchval(self, _sql: str) -> int:
        return 1


async def test_a_read_is_answered_that_comes_in_the_moment_in_which_all_groups_end():
    database = GatedDatabase()
    readers = Readers(cast("Any", database), {}, ImmutableCache(), DatabaseClock())

    async def operation(_: Tx) -> str:
        return "read"

    async with asyncio.timeout(PATIENCE_S):
        for number in range(GROUPS_AT_ONCE):
            assert await readers.read(operation, long=False) == "read"
            while database.ending <= number:
                await asyncio.sleep(0)
        database.may_end.set()
        assert await asyncio.create_task(readers.read(operation, long=False)) == "read"


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_a_read_that_is_too_slow_leaves_the_reads_beside_it_alone(store: Store, address: str):
    await record(store, lambda tx: tx.runs.insert(a_run("r1", workflow_id="one")))
    hasty = await PostgresStore.open(address, LocalWakeups(), statement_timeout_ms=200)
    holder = await asyncpg.connect(address)
    async with holder.transaction():
        await holder.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        slow = hasty.read(lambda tx: tx.outbox.get("one"))
        quick = [hasty.read(lambda tx: tx.runs.get(RunId("r1"))) for _ in range(3)]
        found = await asyncio.gather(slow, *quick, return_exceptions=True)
    await holder.close()
    await hasty.close()
    assert isinstance(found[0], Unavailable)
    assert [each.workflow_id for each in found[1:]] == ["one"] * 3  # type: ignore[union-attr]


class SilentDatabase(GatedDatabase):
    """A database that takes connections and does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def fetchval(self, _sql: str) -> int:
        self.asked += 1
        await self.may_end.wait()
        raise TimeoutError

    def terminate(self) -> None:
        """There is no lock to hold."""


async def test_reads_that_wait_for_a_database_that_is_silent_are_told_so_together():
    database = SilentDatabase()
    readers = Readers(cast("Any", database), {}, ImmutableCache(), DatabaseClock())
    looks: list[asyncio.Task[None]] = []

    async def operation(_: Tx) -> None:
        """It is never begun."""

    async with asyncio.timeout(PATIENCE_S):
        for _ in range(GROUPS_AT_ONCE + 3):
            looks.append(asyncio.create_task(readers.read(operation, long=False)))
            while database.asked < min(len(looks), GROUPS_AT_ONCE):
                await asyncio.sleep(0)
        database.may_end.set()
        answers = await asyncio.gather(*looks, return_exceptions=True)
    assert [type(each) for each in answers] == [Unavailable] * len(looks)
    assert database.asked == GROUPS_AT_ONCE


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_long_reads_leave_connections_to_short_ones(store: Store, address: str):
    await record(store, lambda tx: tx.runs.insert(a_run("r1", workflow_id="one")))
    holder = await asyncpg.connect(address)
    async with holder.transaction():
        await holder.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        long = [asyncio.create_task(store.read(lambda tx: tx.outbox.get("one"), long=True)) for _ in range(8)]
        await asyncio.sleep(0)
        found = await store.read(lambda tx: tx.runs.get(RunId("r1")))
        assert not any(each.done() for each in long)
    assert found is not None
    await asyncio.gather(*long)
    await holder.close()


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_a_store_that_closes_answers_the_reads_that_were_handed_in(store: Store, address: str):
    await record(store, lambda tx: tx.runs.insert(a_run("r1", workflow_id="one")))
    closing = await PostgresStore.open(address, LocalWakeups())
    looks = [asyncio.create_task(closing.read(lambda tx: tx.runs.get(RunId("r1")))) for _ in range(200)]
    await asyncio.sleep(0)
    await closing.close()
    assert [each.workflow_id for each in await asyncio.gather(*looks) if each is not None] == ["one"] * 200
