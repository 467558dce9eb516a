"""What the machine itself allows: commits of the same disk, with nothing of ours in between."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg

from benchmarks.sqlite_library import sqlite3

GROUP = 100
CONNECTIONS = 8
ROW = "x" * 200
TABLE = "CREATE TABLE limits (id {key}, body TEXT NOT NULL)"

Rates = dict[str, float]
"""Committed rows per second by the way in which they were committed."""


def sqlite_commits(folder: Path, seconds: float) -> Rates:
    """Rows of 200 bytes, WAL, synchronous FULL: a commit each, and a commit per hundred."""
    path = folder / f"limits-{time.monotonic_ns()}.sqlite"
    with contextlib.closing(sqlite3.connect(str(path), isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(TABLE.format(key="INTEGER PRIMARY KEY"))

        def insert(rows: int) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO limits (body) VALUES (?)", [(ROW,)] * rows)
            connection.execute("COMMIT")

        return {
            "commits one by one": _rate(lambda: insert(1), seconds),
            f"rows in commits of {GROUP}": _rate(lambda: insert(GROUP), seconds) * GROUP,
        }


def _rate(act: Callable[[], None], seconds: float) -> float:
    act()
    done, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        act()
        done += 1
    return max(done, 1) / passed


def postgres_commits(url: str, seconds: float) -> Rates:
    """The same on PostgreSQL: one connection, eight at once, and a commit per hundred rows."""
    return asyncio.run(_postgres_commits(url, seconds))


async def _postgres_commits(url: str, seconds: float) -> Rates:
    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    try:
        key = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        await connections[0].execute("DROP TABLE IF EXISTS limits")
        await connections[0].execute(TABLE.format(key=key))
        one = await asyncio.gather(_commit_for(connections[0], 1, seconds))
        several = await asyncio.gather(*(_commit_for(each, 1, seconds) for each in connections))
        grouped = await asyncio.gather(_commit_for(connections[0], GROUP, seconds))
        return {
            "commits one by one": sum(one),
            f"commits on {CONNECTIONS} connections": sum(several),
            f"rows in commits of {GROUP}": sum(grouped),
        }
    finally:
        for connection in connections:
            await connection.close()


async def _commit_for(connection: asyncpg.Connection[asyncpg.Record], rows: int, seconds: float) -> float:
    """Rows per second of one connection; a statement outside a transaction is a transaction of its own."""
    insert = await connection.prepare("INSERT INTO limits (body) SELECT unnest($1::text[])")
    bodies = [ROW] * rows
    await insert.fetch(bodies)
    done, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        await insert.fetch(bodies)
        done += rows
    return max(done, rows) / passed
