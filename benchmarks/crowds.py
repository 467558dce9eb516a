"""A crowd of tasks, made by copying the rows of one real task: 100,000 in seconds instead of minutes.

Copies of a waiting task wait in its lane, or in the lanes of as many keys as asked for; copies of a finished one
have ended. A server must not be running on the database meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import asyncpg

from benchmarks.sqlite_library import sqlite3

TABLES = ("instances", "runs", "events", "activities", "tasks")
READ_BY_CLAIMS = ("runs", "activities", "tasks")
"""Enough for tasks that are handed out and never reported."""
NUMBERED_BY_DATABASE = "seq"
NUMBER_DIGITS = 8

_SQLITE_NUMBERS = (
    "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) "
    f"SELECT n, printf('%0{NUMBER_DIGITS}d', n) AS number FROM c)"
)
_POSTGRES_NUMBERS = (
    f"(SELECT n, lpad(n::text, {NUMBER_DIGITS}, '0') AS number FROM generate_series(1, {{count}}) AS c(n))"
)

Columns = list[tuple[str, bool]]
"""Each column of a table, and whether it holds text."""


NEWEST = "SELECT run_id, workflow_id FROM runs ORDER BY started_at_ms DESC, run_id DESC LIMIT 1"


def grow_sqlite(path: Path, count: int, keys: int = 1, tables: Sequence[str] = TABLES) -> None:
    """Copy the newest run in the file `count` times; the copies have the given number of fairness keys in turn."""
    with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
        # A file that a power cut would spoil is thrown away with the rest; its pages stay in memory till the end.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -1000000")
        run_id, workflow_id = connection.execute(NEWEST).fetchone()

        def columns(table: str) -> Columns:
            found = connection.execute(f"PRAGMA table_info({table})").fetchall()
            return [(row[1], row[2] == "TEXT") for row in found]

        connection.execute("BEGIN IMMEDIATE")
        for table in tables:
            numbers = _SQLITE_NUMBERS.format(count=count)
            connection.execute(_copy(table, columns(table), run_id, workflow_id, numbers, keys))
        for statement in _fill_lanes(columns("lanes"), run_id, count, keys, _SQLITE_NUMBERS):
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def grow_postgres(url: str, count: int, keys: int = 1, tables: Sequence[str] = TABLES) -> None:
    """The same on PostgreSQL, swept and with the statistics that autovacuum would gather a minute later."""
    asyncio.run(_grow_postgres(url, count, keys, tables))


async def _grow_postgres(url: str, count: int, keys: int, tables: Sequence[str]) -> None:
    connection = await asyncpg.connect(url)
    try:
        run_id, workflow_id = await connection.fetchrow(NEWEST) or ("", "")

        async def columns(table: str) -> Columns:
            found = await connection.fetch(
                "SELECT column_name, data_type FROM information_schema.columns "
                "WHERE table_name = $1 AND table_schema = current_schema() ORDER BY ordinal_position",
                table,
            )
            return [(row[0], row[1] == "text") for row in found]

        async with connection.transaction():
            for table in tables:
                numbers = _POSTGRES_NUMBERS.format(count=count)
                await connection.execute(
                    _copy(table, await columns(table), run_id, workflow_id, numbers, keys)
                )
            for statement in _fill_lanes(await columns("lanes"), run_id, count, keys, _POSTGRES_NUMBERS):
                await connection.execute(statement)
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


def _copy(table: str, columns: Columns, run_id: str, workflow_id: str, numbers: str, keys: int) -> str:
    """Copies of one run's rows, in which every text names the copy instead of the original."""
    kept = [(name, is_text) for name, is_text in columns if name != NUMBERED_BY_DATABASE]
    prefix = run_id[:-NUMBER_DIGITS]

    def value(name: str, is_text: bool) -> str:
        if name == "key" and keys > 1:
            return _key("t.key", f"c.n % {keys}")
        if not is_text:
            return f"t.{name}"
        return (
            f"replace(replace(t.{name}, '{run_id}', '{prefix}' || c.number), "
            f"'{workflow_id}', '{workflow_id}.' || c.number)"
        )

    names = ", ".join(name for name, _ in kept)
    values = ", ".join(value(*column) for column in kept)
    return (
        f"INSERT INTO {table} ({names}) SELECT {values} "
        f"FROM {table} t CROSS JOIN {numbers} c WHERE t.run_id = '{run_id}'"
    )


def _key(original: str, number: str) -> str:
    """The key of the n-th of several: the first is the original's own."""
    return f"CASE WHEN {number} = 0 THEN {original} ELSE {original} || '-' || ({number}) END"


def _fill_lanes(columns: Columns, run_id: str, count: int, keys: int, numbers: str) -> Iterator[str]:
    """Copies that wait are counted in the lanes of their keys; copies that have ended are in none."""
    assert (count + 1) % keys == 0, "each key has as many tasks as any other"
    where = " AND ".join(
        f"{name} = (SELECT {name} FROM tasks WHERE run_id = '{run_id}' AND state = 'ready')"
        for name in ("queue_id", "level", "key")
    )
    yield f"UPDATE lanes SET count = {(count + 1) // keys} WHERE {where}"
    if keys > 1:
        names = [name for name, _ in columns]
        values = [_key("t.key", "c.n") if name == "key" else f"t.{name}" for name in names]
        yield (
            f"INSERT INTO lanes ({', '.join(names)}) SELECT {', '.join(values)} "
            f"FROM lanes t CROSS JOIN {numbers.format(count=keys - 1)} c WHERE {where}"
        )
