"""Runs from before search entries existed are found once the sweeper has indexed them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import asyncpg
import pytest

from penstock.core.model import Run, RunHost
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweepers.unindexed_runs import unindexed_runs
from penstock.ports.store import Store
from penstock.settings import load
from penstock.stores.migrations.registry import migrations
from penstock.stores.sql.catalogue import Dialect
from penstock.stores.sql.workflows.runs import row_values
from penstock.stores.sqlite import connections, schema
from penstock.wakeups.local import LocalWakeups
from tests.stores.conftest import open_store
from tests.stores.store_operations import look
from tests.stores.visibility.test_visibility import found, meaning
from tests.support.builders import a_run
from tests.support.clock import ManualClock
from tests.support.entropy import CountingEntropy

BEFORE = 4
"""The last migration without search entries."""
OLD = (
    a_run("r1", search_attributes='{"Customer": "acme", "Amount": 12.5, "Tags": ["a", "b"]}'),
    a_run("r2", memo='{"note": "old \\u0000"}'),
    a_run("r3"),
    a_run("r4", host=RunHost.ACTIVITY, memo='{"note": "x"}'),
)


def _insert(mark: str) -> str:
    columns = ", ".join(Run.__struct_fields__)
    marks = ", ".join(mark.format(n) for n in range(1, len(Run.__struct_fields__) + 1))
    return f"INSERT INTO runs ({columns}) VALUES ({marks})"


@pytest.fixture(params=["sqlite", "postgres"])
def old_address(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """The address of a database of the previous release."""
    if request.param == "sqlite":
        return tmp_path / "penstock.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


async def make_old(address: str | Path) -> None:
    if isinstance(address, Path):
        _old_file(address)
    else:
        await _old_database(address)


def _old_file(path: Path) -> None:
    with contextlib.closing(connections.connect(path, "normal")) as connection:
        connection.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, checksum TEXT)")
        for migration in migrations(Dialect.SQLITE)[:BEFORE]:
            for statement in schema._split(migration.sql):
                connection.execute(statement)
            row = (migration.number, migration.name, migration.checksum)
            connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", row)
        for run in OLD:
            connection.execute(_insert("?{}"), row_values(run))


async def _old_database(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE migrations (number BIGINT PRIMARY KEY, name TEXT, checksum TEXT)")
    for migration in migrations(Dialect.POSTGRES)[:BEFORE]:
        await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO migrations VALUES ($1, $2, $3)", migration.number, migration.name, migration.checksum
        )
    for run in OLD:
        await connection.execute(_insert("${}"), *row_values(run))
    await connection.close()


async def test_old_runs_are_found_by_what_they_carry_after_one_sweep(
    old_address: str | Path, clock: ManualClock, wakeups: LocalWakeups
):
    await make_old(old_address)
    store: Store = await open_store(old_address, clock, wakeups)
    try:
        assert await found(store, meaning("Customer = 'acme'")) == []
        assert await found(store, meaning("Status = 'running'")) == ["r3", "r2", "r1"]
        ctx = EngineContext(store, wakeups, CountingEntropy(), load({"DW_DATABASE_URL": "memory://"}))
        assert await unindexed_runs(ctx).sweep() == 2
        assert await found(store, meaning("Customer = 'acme' AND Amount > 12 AND Tags = 'b'")) == ["r1"]
        assert await found(store, meaning("memo.note STARTS_WITH 'old'")) == ["r2"]
        assert list(await look(store, lambda tx: tx.visibility.unindexed(10))) == []
    finally:
        await store.close()
