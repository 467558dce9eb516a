"""Transactions on PostgreSQL in as few round trips as possible: begun late, committed with the last write.

At READ COMMITTED every statement has its own snapshot, so until something is locked or changed a transaction makes no
difference. BEGIN is sent with the first statement that locks or changes rows, COMMIT with the last one (`pipeline`). A
transaction that only read needs neither, and a single write is a transaction by itself.
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
"""A statement and its parameters."""
NOTIFY = "SELECT pg_notify($1, $2)"
BEGIN, COMMIT = "BEGIN", "COMMIT"
BEGIN_SNAPSHOT, END = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "END"
_STATEMENT_NAMES = {BEGIN: "penstock_begin", COMMIT: "penstock_commit", BEGIN_SNAPSHOT: "penstock_look"}
PIGGYBACKED = {sql: bind_and_execute(name) for sql, name in _STATEMENT_NAMES.items()}
"""The wire messages of each, for sending together with another statement."""


async def prepare_piggybacked(connection: PipelinedConnection) -> None:
    """Prepare the piggybacked statements; they stay prepared as long as the connection refers to them."""
    connection.prepared = [await connection.prepare(sql, name=name) for sql, name in _STATEMENT_NAMES.items()]


class PipelinedTransaction:
    """The transaction of one group of operations."""

    merges_always = False

    def __init__(self, connection: PipelinedConnection, hot_batches: statement_merger.HotBatches) -> None:
        self._connection = connection
        self.hot_batches = hot_batches
        self.begun = False
        self._writes_before_commit: int | None = None

    @property
    def commit_was_sent(self) -> bool:
        """Whether COMMIT may have reached the database: its outcome is unknown until it is confirmed."""
        before = self._writes_before_commit
        return before is not None and self._connection.writes > before

    async def fetch(self, sql: str, *values: Any, needs_transaction: bool = False) -> Rows:
        if self.begun or not needs_transaction:
            return cast("Rows", await self._connection.fetch(sql, *values))
        self.begun = True
        return cast("Rows", await self._connection.fetch_after(PIGGYBACKED[BEGIN], sql, *values))

    async def write(self, sending: OutgoingStatement) -> None:
        """Execute a write that is not the last one."""
        sql, values = sending
        before = b"" if self.begun else PIGGYBACKED[BEGIN]
        self.begun = True
        await self._connection.execute_between(before, sql, values, b"")

    async def commit(self, last: OutgoingStatement | None) -> None:
        """Execute the last write, if there is one, and commit."""
        status = ""
        self._writes_before_commit = self._connection.writes
        if last is not None:
            sql, values = last
            after = PIGGYBACKED[COMMIT] if self.begun else b""
            status = await self._connection.execute_between(b"", sql, values, after)
        if self.begun and status != COMMIT:
            await self._connection.execute_between(b"", COMMIT, (), b"")


class SnapshotRead:
    """A group of reads in one repeatable-read snapshot.

    Args:
        connection: Where they are executed.
        hot_batches: Which combinations of reads recur.
        merges_always: Whether those of one step are always merged: for long reads, which have many.
    """

    def __init__(
        self,
        connection: PipelinedConnection,
        hot_batches: statement_merger.HotBatches,
        *,
        merges_always: bool = False,
    ) -> None:
        self._connection = connection
        self.hot_batches = hot_batches
        self.merges_always = merges_always
        self._begun = False

    async def fetch(self, sql: str, *values: Any, needs_transaction: bool = False) -> Rows:
        if self._begun:
            return cast("Rows", await self._connection.fetch(sql, *values))
        self._begun = True
        return cast("Rows", await self._connection.fetch_after(PIGGYBACKED[BEGIN_SNAPSHOT], sql, *values))

    async def end(self) -> None:
        if self._begun:
            await self._connection.execute(END)


class SingleStatementRead:
    """Reads of a single statement each, which is a snapshot by itself: no transaction is needed."""

    merges_always = False

    def __init__(self, connection: PipelinedConnection, hot_batches: statement_merger.HotBatches) -> None:
        self._connection = connection
        self.hot_batches = hot_batches

    async def fetch(self, sql: str, *values: Any, needs_transaction: bool = False) -> Rows:
        return cast("Rows", await self._connection.fetch(sql, *values))


def outgoing_statements(
    writes: statement_merger.Writes, notifications: Sequence[str], hot_batches: statement_merger.HotBatches
) -> list[OutgoingStatement]:
    """All writes of a transaction, merged where the batch is hot, and at the end the notifications of other servers."""
    batches = list(statement_merger.batches(writes))
    sent = [
        each for batch in (batches[:-1] if notifications else batches) for each in _batch(batch, hot_batches)
    ]
    if not notifications:
        return sent
    first, *others = notifications
    last = batches[-1] if batches else []
    statements = _statements(last)
    if last and statement_merger.are_mergeable(statements) and hot_batches.is_hot(statements):
        sent.append(
            (statement_merger.merged(statements, NOTIFY), (*statement_merger.values_of(last), CHANNEL, first))
        )
    else:
        sent += [*_separately(last), (NOTIFY, (CHANNEL, first))]
    return sent + [(NOTIFY, (CHANNEL, notification)) for notification in others]


def _batch(
    batch: statement_merger.Writes, hot_batches: statement_merger.HotBatches
) -> Iterator[OutgoingStatement]:
    if len(batch) > 1 and hot_batches.is_hot(_statements(batch)):
        yield statement_merger.merged(_statements(batch)), statement_merger.values_of(batch)
    else:
        yield from _separately(batch)


def _separately(batch: statement_merger.Writes) -> Iterator[OutgoingStatement]:
    for statement, rows in batch:
        if statement.unmerged:
            yield from ((statement.sql, row) for row in rows)
        else:
            yield statement.sql, statement_merger.parameters_for(statement, rows)


def _statements(batch: statement_merger.Writes) -> tuple[Statement, ...]:
    return tuple(statement for statement, _ in batch)
