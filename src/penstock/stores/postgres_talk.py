"""How operations talk to PostgreSQL: equal questions of several travel as one, and what its errors mean."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeAlias, cast

import asyncpg

from penstock.errors import Reason, Unavailable
from penstock.stores.driving import Job
from penstock.stores.sql import merging
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.session import Ask, Rows

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
CHANNEL = "penstock_wakeups"
NOTIFY = "SELECT pg_notify($1, $2)"
NOW_MS = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"

TRY_AGAIN = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
)
GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg says when the connection breaks in the middle of an exchange
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    OSError,
)


Waiting: TypeAlias = tuple[int, Coroutine[Any, Any, Any], tuple[Ask, ...]]
"""An operation that waits for answers: its place in the group, itself, and what it asked."""


def advance(
    jobs: Sequence[Job],
    index: int,
    coroutine: Coroutine[Any, Any, Any],
    answers: Sequence[Rows] | None,
    waiting: list[Waiting],
) -> None:
    """Let one operation go on to its next question, its result or its refusal."""
    try:
        asks = coroutine.send(answers)
    except StopIteration as end:
        jobs[index].result = end.value
    except Exception as error:
        jobs[index].error = error
    else:
        waiting.append((index, coroutine, expect(asks)))


def expect(asks: Any) -> tuple[Ask, ...]:
    if not isinstance(asks, tuple):
        raise RuntimeError(f"an operation awaited {asks!r}; it may await only the store")
    return asks


async def answer_all(connection: Connection, asks: Sequence[Ask]) -> list[Rows]:
    """Ask each distinct statement once, and hand each asker its own rows."""
    places: dict[Statement, list[int]] = {}
    for place, ask in enumerate(asks):
        places.setdefault(ask.statement, []).append(place)
    answers: list[Rows] = [()] * len(asks)
    for statement in sorted(places, key=lambda each: each.rank):
        askers = places[statement]
        if statement.alone:
            for place in askers:
                answers[place] = cast("Rows", await connection.fetch(statement.sql, *asks[place].values))
            continue
        rows = await connection.fetch(statement.sql, *_columns([asks[place].values for place in askers]))
        if not statement.answers:
            continue
        if len(askers) == 1:
            answers[askers[0]] = cast("Rows", rows)
            continue
        shares: list[list[asyncpg.Record]] = [[] for _ in askers]
        for row in rows:
            shares[row[0] - 1].append(row)
        for place, share in zip(askers, shares, strict=True):
            answers[place] = cast("Rows", share)
    return answers


async def write_all(
    connection: Connection, writes: merging.Writes, notes: Sequence[str], habits: merging.Habits
) -> None:
    """Carry out all writes of a transaction, as many in one statement as is usual, and tell the other servers."""
    left = list(merging.batches(writes))
    for batch in left[:-1] if notes else left:
        await _write(connection, batch, habits)
    if not notes:
        return
    first, *others = notes
    if left and _is_mergeable(left[-1]) and habits.knows(_statements(left[-1])):
        sql = merging.merged(_statements(left[-1]), NOTIFY)
        await connection.execute(sql, *merging.values_of(left[-1]), CHANNEL, first)
    else:
        await _write_apart(connection, left[-1] if left else [])
        await connection.execute(NOTIFY, CHANNEL, first)
    for note in others:
        await connection.execute(NOTIFY, CHANNEL, note)


def _statements(batch: merging.Writes) -> tuple[Statement, ...]:
    return tuple(statement for statement, _ in batch)


def _is_mergeable(batch: merging.Writes) -> bool:
    return merging.can_be_parts(_statements(batch))


async def _write(connection: Connection, batch: merging.Writes, habits: merging.Habits) -> None:
    if len(batch) > 1 and habits.knows(_statements(batch)):
        await connection.execute(merging.merged(_statements(batch)), *merging.values_of(batch))
    else:
        await _write_apart(connection, batch)


async def _write_apart(connection: Connection, batch: merging.Writes) -> None:
    for statement, rows in batch:
        if statement.alone:
            for row in rows:
                await connection.execute(statement.sql, *row)
        else:
            await connection.execute(statement.sql, *_columns(rows))


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


_OUTAGES = frozenset({"08", "25", "28", "3D", "53", "55", "57", "58"})
"""Classes of SQLSTATE that speak of the server's state, not of our statement: try later, on another connection."""


def is_outage(error: asyncpg.PostgresError) -> bool:
    return str(getattr(error, "sqlstate", None) or "")[:2] in _OUTAGES


def unavailable(error: BaseException) -> Unavailable:
    if isinstance(error, asyncpg.DiskFullError):
        return Unavailable(
            Reason.STORAGE_FULL, "PostgreSQL's disk is full; nothing was changed.", outcome="none"
        )
    return Unavailable(
        Reason.STORE_UNAVAILABLE,
        f"PostgreSQL cannot be used now ({type(error).__name__}). Nothing was changed; try again shortly.",
        outcome="none",
        retryable=True,
    )
