"""Migrations that are killed halfway or run concurrently leave a database that migrates cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from penstock.stores.sqlite import schema
from tests.faults.deadlines import until
from tests.support.live import PENSTOCK, migrate
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.faults

SCRIPT = Path(__file__).parents[1] / "programs/crashing_migration.py"
KILLS = 5


def _environment(url: str) -> dict[str, str]:
    return dict(os.environ) | {"DW_DATABASE_URL": url, "DW_AUTH_DRIVER": "none"}


def _migrate_until(path: Path, statement: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(statement)],
        env=_environment(f"sqlite:///{path}"),
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def _schema(path: Path) -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found: list[tuple[str, ...]] = connection.execute(
            "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
        ).fetchall()
        return found + connection.execute("SELECT number, name, checksum FROM migrations").fetchall()


def test_a_sqlite_migration_killed_at_any_statement_is_all_or_nothing_and_runs_again(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    statements = int(_migrate_until(whole, 0).stdout)
    for kill in range(KILLS):
        path = tmp_path / f"killed-{kill}.db"
        at = 1 + kill * (statements - 1) // (KILLS - 1)
        assert _migrate_until(path, at).returncode == -signal.SIGKILL
        schema.prepare(path)
        assert _schema(path) == _schema(whole), f"after a kill before statement {at} of {statements}"


async def _processes_waiting(connection: asyncpg.Connection) -> int:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return int(await connection.fetchval(waiting))


async def test_a_postgres_migration_killed_half_way_leaves_nothing_behind_and_runs_again(
    tmp_path: Path, postgres_url: str
) -> None:
    blocker, watcher = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    try:
        blocking = blocker.transaction()
        await blocking.start()
        await blocker.execute("CREATE TABLE tasks (half_way INT)")
        process = await asyncio.create_subprocess_exec(
            *PENSTOCK, "db", "migrate", env=_environment(postgres_url), cwd=tmp_path
        )
        await until("the migration waits for our table", lambda: _processes_waiting(watcher))
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        await blocking.rollback()
        await asyncio.to_thread(migrate, tmp_path, postgres_url)
        tables = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'half_way'"
        assert await watcher.fetchval(tables) == 0
        assert await watcher.fetchval("SELECT count(*) FROM tasks") == 0
    finally:
        await blocker.close()
        await watcher.close()


async def test_of_three_postgres_migrations_at_once_one_works_and_the_others_wait_for_it(
    tmp_path: Path, postgres_url: str
) -> None:
    pipe = asyncio.subprocess.PIPE
    three = [
        await asyncio.create_subprocess_exec(
            *PENSTOCK,
            *("db", "migrate", "--json"),
            env=_environment(postgres_url),
            cwd=tmp_path,
            stdout=pipe,
            stderr=pipe,
        )
        for _ in range(3)
    ]
    told = await asyncio.gather(*(each.communicate() for each in three))
    assert [each.returncode for each in three] == [0, 0, 0], told
    applied = sorted(len(json.loads(out)["applied"]) for out, _ in told)
    connection = await asyncpg.connect(postgres_url)
    try:
        recorded = await connection.fetchval("SELECT count(*) FROM migrations")
    finally:
        await connection.close()
    assert applied == [0, 0, recorded]
