"""A crowd of tasks, made by copying the rows of one real task: 100,000 in seconds instead of minutes.

Copies of a waiting task wait in its lane, copies of a finished one have ended. A server must not be running on
the database meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import asyncpg

from benchmarks.sqlite_library import sqlite3

TABLES = ("instances", "runs", "events", "activities", "tasks")
NUMBERED_BY_DATABASE = "seq"
NUMBER_DIGITS = 8

_SQLITE_NUMBERS = (
    "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) "
    f"SELECT printf('%0{NUMBER_DIGITS}d', n) AS number FROM c)"
)
_POSTGRES_NUMBERS = (
    f"(SELECT lpad(n::text, {NUMBER_DIGITS}, '0') AS number FROM generate_series(1, {{count}}) AS c(n))"
)


def grow_sqlite(path: Path, count: int) -> None:
    """Copy the only run in the file `count` times."""
    with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
        run_id, workflow_id = connection.execute("SELECT run_id, workflow_id FROM runs").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        for table in TABLES:
            found = connection.execute(f"PRAGMA table_info({table})").fetchall()
            columns = [(row[1], row[2] == "TEXT") for row in found]
            connection.execute(
                _copy(table, columns, run_id, workflow_id, _SQLITE_NUMBERS.format(count=count))
            )
        connection.execute(_count_in_lane(run_id, count))
        connection.execute("COMMIT")


def grow_postgres(url: str, count: int) -> None:
    """The same on PostgreSQL, with the statistics that autovacuum would gather a minute later."""
    asyncio.run(_grow_postgres(url, count))


async def _grow_postgres(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        run_id, workflow_id = await connection.fetchrow("SELECT run_id, workflow_id FROM runs") or ("", "")
        async with connection.transaction():
            for table in TABLES:
                found = await connection.fetch(
                    "SELECT column_name, data_type FROM information_schema.columns "
                    "WHERE table_name = $1 AND table_schema = current_schema() ORDER BY ordinal_position",
                    table,
                )
                columns = [(row[0], row[1] == "text") for row in found]
                numbers = _POSTGRES_NUMBERS.format(count=count)
                await connection.execute(_copy(table, columns, run_id, workflow_id, numbers))
            await connection.execute(_count_in_lane(run_id, count))
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


def _copy(table: str, columns: list[tuple[str, bool]], run_id: str, workflow_id: str, numbers: str) -> str:
    """Copies of one run's rows, in which every text names the copy instead of the original."""
    kept = [(name, is_text) for name, is_text in columns if name != NUMBERED_BY_DATABASE]
    prefix = run_id[:-NUMBER_DIGITS]
    values = [
        f"replace(replace(t.{name}, '{run_id}', '{prefix}' || c.number), "
        f"'{workflow_id}', '{workflow_id}.' || c.number)"
        if is_text
        else f"t.{name}"
        for name, is_text in kept
    ]
    names = ", ".join(name for name, _ in kept)
    return (
        f"INSERT INTO {table} ({names}) SELECT {', '.join(values)} "
        f"FROM {table} t CROSS JOIN {numbers} c WHERE t.run_id = '{run_id}'"
    )


def _count_in_lane(run_id: str, count: int) -> str:
    """Copies that wait are counted in their lane; copies that have ended are in none."""
    return (
        f"UPDATE lanes SET count = count + {count} "
        f"WHERE queue_id = (SELECT queue_id FROM tasks WHERE run_id = '{run_id}' AND state = 'ready')"
    )
