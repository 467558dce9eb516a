"""A transaction on PostgreSQL, in as few journeys as can be: it begins late and is committed with its last write.

Statements of a transaction see each its own moment, so until something is locked or changed nothing parts questions
that are asked inside one from others. It begins with the first statement that locks or changes; one that does neither
needs no end; and a single write is a transaction by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from penstock.stores.postgres.batched_queries import CHANNEL
from penstock.stores.postgres.pipeline import PipelinedConnection, bind_and_execute
from penstock.stores.sql import statement_merger
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.session import Rows

OutgoingStatement = tuple[str, Sequence[Any]]
"""A text, and what it takes."""
NOTIFY = "SELECT pg_notify($1, $2)"
BEGIN, COMMIT = "BEGIN", "COMMIT"
BEGIN_SNAPSHOT, END = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "END"
_NAMES = {BEGIN: "penstock_begin", COMMIT: "penstock_commit", BEGIN_SNAPSHOT: "penstock_look"}
PIGGYBACKED = {sql: bind_and_execute(name) for sql, name in _NAMES.items()}
"""What each of them is on the wire, where another statement carries it."""


async def prepare_piggybacked(connection: PipelinedConnection) -> None:
    """Prepare what is carried by other statements; it stays as long as the connection knows of it."""
    connection.prepared = [await connection.prepare(sql, name=name) for sql, name in _NAMES.items()]


class PipelinedTransaction:
    """Of one group of operations."""

    def __init__(self, connection: PipelinedConnection, habits: statement_merger.HotBatches) -> None:
        self._connection = connection
        self.habits = habits
        self.begun = False
        self._writes_before_commit: int | None = None

    @property
    def commit_was_sent(self) -> bool:
        """Whether the database may have been asked to commit: nobody can say what became of it without its answer."""
        before = self._writes_before_commit
        return before is not None and self._connection.writes > before

    async def fetch(self, sql: str, *values: Any, holds: bool = False) -> Rows:
        if self.begun or not holds:
            return cast("Rows", await self._connection.fetch(sql, *values))
        self.begun = True
        return cast("Rows", await self._connection.fetch_after(PIGGYBACKED[BEGIN], sql, *values))

    async def write(self, sending: OutgoingStatement) -> None:
        """Carry out what is not the last write."""
        sql, values = sending
        before = b"" if self.begun else PIGGYBACKED[BEGIN]
        self.begun = True
        await self._connection.execute_between(before, sql, values, b"")

    async def commit(self, last: OutgoingStatement | None) -> None:
        """Carry out the last write, if there is one, and commit all."""
        told = ""
        self._writes_before_commit = self._connection.writes
        if last is not None:
            sql, values = last
            after = PIGGYBACKED[COMMIT] if self.begun else b""
            told = await self._connection.execute_between(b"", sql, values, after)
        if self.begun and told != COMMIT:
            await self._connection.execute_between(b"", COMMIT, (), b"")


class SnapshotRead:
    """Of one group of reads: all questions see one moment."""

    def __init__(self, connection: PipelinedConnection, habits: statement_merger.HotBatches) -> None:
        self._connection = connection
        self.habits = habits
        self._begun = False

    async def fetch(self, sql: str, *values: Any, holds: bool = False) -> Rows:
        if self._begun:
            return cast("Rows", await self._connection.fetch(sql, *values))
        self._begun = True
        return cast("Rows", await self._connection.fetch_after(PIGGYBACKED[BEGIN_SNAPSHOT], sql, *values))

    async def end(self) -> None:
        if self._begun:
            await self._connection.execute(END)


class SingleStatementRead:
    """Of reads of which each asks one question: its answer is of one moment by itself."""

    def __init__(self, connection: PipelinedConnection, habits: statement_merger.HotBatches) -> None:
        self._connection = connection
        self.habits = habits

    async def fetch(self, sql: str, *values: Any, holds: bool = False) -> Rows:
        return cast("Rows", await self._connection.fetch(sql, *values))


def outgoing_statements(
    writes: statement_merger.Writes, notes: Sequence[str], habits: statement_merger.HotBatches
) -> list[OutgoingStatement]:
    """All writes of a transaction, as many in one text as is usual, and at the end what tells the other servers."""
    batches = list(statement_merger.batches(writes))
    sent = [each for batch in (batches[:-1] if notes else batches) for each in _batch(batch, habits)]
    if not notes:
        return sent
    first, *others = notes
    last = batches[-1] if batches else []
    statements = _statements(last)
    if last and statement_merger.are_mergeable(statements) and habits.is_hot(statements):
        sent.append(
            (statement_merger.merged(statements, NOTIFY), (*statement_merger.values_of(last), CHANNEL, first))
        )
    else:
        sent += [*_apart(last), (NOTIFY, (CHANNEL, first))]
    return sent + [(NOTIFY, (CHANNEL, note)) for note in others]


def _batch(
    batch: statement_merger.Writes, habits: statement_merger.HotBatches
) -> Iterator[OutgoingStatement]:
    if len(batch) > 1 and habits.is_hot(_statements(batch)):
        yield statement_merger.merged(_statements(batch)), statement_merger.values_of(batch)
    else:
        yield from _apart(batch)


def _apart(batch: statement_merger.Writes) -> Iterator[OutgoingStatement]:
    for statement, rows in batch:
        if statement.alone:
            yield from ((statement.sql, row) for row in rows)
        else:
            yield statement.sql, statement_merger.parameters_for(statement, rows)


def _statements(batch: statement_merger.Writes) -> tuple[Statement, ...]:
    return tuple(statement for statement, _ in batch)
