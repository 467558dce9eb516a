"""One read sees one moment, whatever is committed while it goes on."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import asyncpg
import pytest

from penstock.core.model import RunId
from penstock.ports.store import Store, Tx
from tests.stores.working import record
from tests.support.builders import a_run

RENAME = "UPDATE runs SET workflow_id = 'another'"


def rename_the_runs(address: str | Path) -> None:
    """Commit a change from outside, on a connection and a thread of its own."""
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
async def test_a_read_sees_nothing_that_was_committed_after_it_began(store: Store, address: str | Path):
    await record(store, lambda tx: tx.runs.insert(a_run("r1", workflow_id="one")))

    async def names(tx: Tx) -> list[str]:
        before = await tx.runs.get(RunId("r1"))
        rename_the_runs(address)
        after = await tx.runs.get(RunId("r1"))
        assert before is not None
        assert after is not None
        return [before.workflow_id, after.workflow_id]

    assert await store.read(names) == ["one", "one"]
    renamed = await store.read(lambda tx: tx.runs.get(RunId("r1")))
    assert renamed is not None
    assert renamed.workflow_id == "another"


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_a_read_does_not_wait_for_a_row_that_another_holds(store: Store, address: str):
    await record(store, lambda tx: tx.runs.insert(a_run("r1", workflow_id="one")))
    holder = await asyncpg.connect(address)
    async with holder.transaction():
        await holder.execute("SELECT * FROM runs FOR UPDATE")
        found = await asyncio.wait_for(store.read(lambda tx: tx.runs.lock(RunId("r1"))), 10)
    await holder.close()
    assert found is not None
    assert found.workflow_id == "one"
