"""Closed runs by the million: the rows by which one is found, copied with types, ends, times and attributes that vary.

Copies have no history. A server must not be running on the database meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import asyncpg

from benchmarks.crowds import NEWEST
from benchmarks.sqlite_library import sqlite3
from penstock.core.visibility.sort_keys import number_key

TYPES, QUEUES, CUSTOMERS, AMOUNTS, FAILED_ONE_IN = 10, 20, 1000, 1000, 100
CUSTOMER, AMOUNT = "Customer", "Amount"
SPREAD_MS = 5 * 24 * 3600 * 1000
"""Copies were started over so long a time before the original: well within what a namespace keeps."""
ORIGINAL_CUSTOMER, ORIGINAL_AMOUNT = "customer-000", 0
DIGITS = 8

_NUMBERS = {
    "sqlite": "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) SELECT n FROM c)",
    "postgres": "(SELECT n FROM generate_series(1::bigint, {count}) AS c(n))",
}
_PADDED = {
    "sqlite": "printf('%0{digits}d', {number})",
    "postgres": "lpad(({number})::text, {digits}, '0')",
}
_CUSTOMER_NUMBER = f"(c.n / {TYPES}) % {CUSTOMERS}"
_AMOUNT_NUMBER = f"(c.n / 7) % {AMOUNTS}"


def grow(url: str, count: int) -> None:
    """Copy the newest run of the database `count` times."""
    if url.startswith("sqlite:"):
        _grow_sqlite(Path(url.removeprefix("sqlite:///")), count)
    else:
        asyncio.run(_grow_postgres(url, count))


def _grow_sqlite(path: Path, count: int) -> None:
    with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
        # A file that a power cut would spoil is thrown away with the rest; its pages stay in memory till the end.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -2000000")
        columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
        run_id = connection.execute(NEWEST).fetchone()[0]
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TEMP TABLE amounts (number INTEGER PRIMARY KEY, mark TEXT)")
        connection.executemany("INSERT INTO amounts VALUES (?, ?)", _amounts())
        for statement in _statements("sqlite", columns, run_id, count):
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def _grow_postgres(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_name = 'runs' AND table_schema = current_schema() ORDER BY ordinal_position"
        )
        run_id = await connection.fetchval(NEWEST)
        await connection.execute("CREATE TEMP TABLE amounts (number bigint PRIMARY KEY, mark text)")
        await connection.executemany("INSERT INTO amounts VALUES ($1, $2)", _amounts())
        async with connection.transaction():
            for statement in _statements("postgres", [row[0] for row in found], run_id, count):
                await connection.execute(statement)
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


def _amounts() -> list[tuple[int, str]]:
    return [(number, number_key(number)) for number in range(AMOUNTS)]


def _statements(dialect: str, columns: list[str], run_id: str, count: int) -> list[str]:
    """The copies of the run, then of what it is found by."""
    numbers = _NUMBERS[dialect].format(count=count)
    copy_id = f"'{run_id[:-DIGITS]}' || {_padded(dialect, 'c.n', DIGITS)}"
    earlier = f"{SPREAD_MS} - c.n * {SPREAD_MS} / {count}"
    customer = f"'customer-' || {_padded(dialect, _CUSTOMER_NUMBER, 3)}"
    failed = f"c.n % {FAILED_ONE_IN} = 0"
    varied = {
        "run_id": copy_id,
        "workflow_id": f"t.workflow_id || '.' || {_padded(dialect, 'c.n', DIGITS)}",
        "workflow_type": f"'bench.type-' || (c.n % {TYPES})",
        "task_queue": f"'queue-' || (c.n % {QUEUES})",
        "started_at_ms": f"t.started_at_ms - ({earlier})",
        "closed_at_ms": f"t.closed_at_ms - ({earlier})",
        "last_progress_at_ms": f"t.last_progress_at_ms - ({earlier})",
        "status": f"CASE WHEN {failed} THEN 'failed' ELSE t.status END",
        "closed_reason": f"CASE WHEN {failed} THEN 'failed' ELSE t.closed_reason END",
        "search_attributes": (
            f"replace(replace(t.search_attributes, '{ORIGINAL_CUSTOMER}', {customer}), "
            f"':{ORIGINAL_AMOUNT}', ':' || ({_AMOUNT_NUMBER}))"
        ),
    }
    values = ", ".join(varied.get(name, f"t.{name}") for name in columns)
    value = (
        f"CASE WHEN a.value = '' THEN '' WHEN a.name = '{CUSTOMER}' THEN 's' || {customer} ELSE m.mark END"
    )
    return [
        f"INSERT INTO runs ({', '.join(columns)}) SELECT {values} "
        f"FROM runs t CROSS JOIN {numbers} c WHERE t.run_id = '{run_id}'",
        "INSERT INTO run_attributes (run_id, name, value, namespace, started_at_ms) "
        f"SELECT {copy_id}, a.name, {value}, a.namespace, a.started_at_ms - ({earlier}) "
        f"FROM run_attributes a CROSS JOIN {numbers} c JOIN amounts m ON m.number = {_AMOUNT_NUMBER} "
        f"WHERE a.run_id = '{run_id}'",
    ]


def _padded(dialect: str, number: str, digits: int) -> str:
    return _PADDED[dialect].format(number=number, digits=digits)
