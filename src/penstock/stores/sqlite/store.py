"""The embedded store: one SQLite file, one writer that commits in groups, readers beside it.

Operations that arrive together share one transaction and one fsync; each caller is answered after the commit.
They run on the event loop itself, a few milliseconds at a time: they need the interpreter all along, and a thread
would only take it from the loop and give it back at every statement. What waits for the disk (opening, committing)
and reads that look at much have threads of their own.
The writer's connection alone writes and checkpoints, and a lock file keeps other processes away, so the
WAL-reset race of SQLite 3.7.0 to 3.51.2 (two connections writing or checkpointing at once) cannot happen here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec
import structlog

from penstock.errors import Reason, Unavailable
from penstock.ports.clock import Clock
from penstock.ports.store import Operation, StoreHealth, Transaction, TransactionClass, Tx
from penstock.ports.wakeups import Wakeups
from penstock.stores.group_commit import (
    CommitHook,
    CommitPoint,
    DirtyFailure,
    QueuedOperation,
    ReadOnlySession,
    WriteHealth,
    no_hook,
    queued_operation,
    queued_operations,
)
from penstock.stores.sql.catalogue import Dialect, Statement, catalogue
from penstock.stores.sql.immutable_cache import ImmutableCache
from penstock.stores.sql.row_cache import RowCache
from penstock.stores.sql.session import Fetch, Row, Rows, Session
from penstock.stores.sql.tasks.activities import ACTIVITIES
from penstock.stores.sql.tasks.tasks import TASKS
from penstock.stores.sql.transaction import SqlTx
from penstock.stores.sql.workflows.runs import RUNS
from penstock.stores.sql.write_buffer import WriteBuffer
from penstock.stores.sqlite import connections, schema
from penstock.stores.sqlite.connections import sqlite3

T = TypeVar("T")
GROUP_MAX = 256
"""Most operations in one transaction: bounds how long the first of them waits for the last."""
FEW = 4
"""Callers of so few are answered before the next group runs; those of more, while its commit is on its way."""
AT_A_STRETCH_S = 0.002
"""How long operations of one group run before others get their turn on the loop."""
ROWS_AT_A_STRETCH = 200
"""Most rows that are written without a look at the time."""
TABLES = (RUNS, TASKS, ACTIVITIES)
"""Of these the writer has rows at hand."""
MANY = 4
"""So many equal questions are asked as one."""
READERS = 2
WAITING_MAX = 20_000
"""Most operations that may wait for the writer; beyond it callers are told to come back."""
_OPERATION_ERRORS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
"""Errors that one operation brought about by itself; all others speak of the file."""
log = structlog.get_logger("penstock.store")


class SqliteStore:
    """Made by `open`; close it, so that the write-ahead log is folded into the file."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        wakeups: Wakeups,
        synchronous: str,
        lock: IO[str],
        on_commit: CommitHook,
        journals: bool,
    ) -> None:
        self.journals = journals
        self._path = path.absolute()
        self._clock = clock
        self._wakeups = wakeups
        self._synchronous = synchronous
        self._lock = lock
        self._on_moment = on_commit
        self._statements = catalogue(Dialect.SQLITE)
        self._known = ImmutableCache()
        self._row_cache = RowCache(TABLES, self._statements.values())
        self._write_buffer = WriteBuffer(self._statements.values(), TABLES)
        """What operations of this group have to write, until one of them asks for it or the group ends."""
        self._flushed = 0
        """How many changes of this connection were writes that had been kept back."""
        self._version = 0
        """What the writer's connection called the database when it saw it last: it changes when others write."""
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[QueuedOperation] = deque()
        self._writer: asyncio.Task[None] | None = None
        """Commits while there is something to commit."""
        self._began_at: float | None = None
        """When the group began that is being committed."""
        self._vitals = WriteHealth()
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._announced: Collection[str] = ()
        """The bells of this group of which somebody was told before its commit."""
        self._closing = False
        self._ending: asyncio.Task[None] | None = None
        self._until = 0.0
        """When this stretch of work on the loop is over."""
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="penstock-disk")
        self._local = threading.local()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="penstock-reader")
        self._read_connections: list[sqlite3.Connection] = []

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Clock,
        wakeups: Wakeups,
        *,
        synchronous: str = "full",
        on_commit: CommitHook = no_hook,
        journals: bool = False,
    ) -> SqliteStore:
        """Lock the file, bring its schema up to date (after a backup copy) and start the writer."""
        lock = schema.exclusive(path)
        try:
            await asyncio.to_thread(schema.prepare, path)
        except BaseException:
            lock.close()
            raise
        connections.register_adapters()
        return cls(path, clock, wakeups, synchronous, lock, on_commit, journals)

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        future: asyncio.Future[T] = self._loop.create_future()
        self._hand_in([queued_operation(operation, key, future)])
        return await future

    async def transact_all(self, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        future: asyncio.Future[list[T | Exception]] = self._loop.create_future()
        self._hand_in(queued_operations(asked, future))
        return await future

    def _hand_in(self, jobs: Sequence[QueuedOperation]) -> None:
        if self._closing:
            raise Unavailable(Reason.SERVER_DRAINING, "The store is closing.", outcome="none")
        if len(self._jobs) + len(jobs) > WAITING_MAX:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE, "The disk does not keep up. Try again shortly.", outcome="none"
            )
        self._jobs.extend(jobs)
        if self._writer is None:
            self._writer = self._loop.create_task(self._write(), name="penstock-writer")
            self._writer.add_done_callback(self._ended)

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        if self._closing:
            raise Unavailable(Reason.SERVER_DRAINING, "The store is closing.", outcome="none")
        typed = cast("Callable[[Tx], Coroutine[Any, Any, T]]", operation)
        if long:
            return await self._loop.run_in_executor(self._readers, self._read_aside, typed)
        if self._reading is None:
            self._reading = self._reader()
        return self._read_one(self._reading, typed)

    async def check(self) -> None:
        async def nothing(tx: Tx) -> None:
            await tx.namespaces.list()

        if not self._path.exists():
            raise Unavailable(
                Reason.STORE_UNAVAILABLE, "The database file is gone from its place.", outcome="none"
            )
        await self.read(nothing)

    def health(self) -> StoreHealth:
        began_at = self._began_at
        stalled_s = 0.0 if began_at is None else self._loop.time() - began_at
        return StoreHealth(round(stalled_s * 1000), self._vitals.refusal)

    async def close(self) -> None:
        """Finish what was handed in, then fold the log into the file and let others in."""
        self._closing = True
        if self._ending is None:
            self._ending = self._loop.create_task(self._end(), name="penstock-store-end")
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        if self._writer is not None:
            await asyncio.wait([self._writer])
        await asyncio.to_thread(self._close_all)

    def _close_all(self) -> None:
        self._disk.shutdown()
        self._readers.shutdown()
        for connection in (*self._read_connections, self._writing):
            if connection is not None:
                connection.close()
        with contextlib.closing(connections.connect(self._path, self._synchronous)) as last:
            last.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._lock.close()

    # writing

    async def _write(self) -> None:
        """Commit group after group, as long as there is one."""
        jobs: list[QueuedOperation] = []
        try:
            while self._jobs:
                jobs = self._next_jobs(GROUP_MAX)
                self._began_at = self._loop.time()
                await self._commit_group(jobs)
                self._began_at = None
                self._deliver(jobs)
                if len(jobs) <= FEW:
                    await asyncio.sleep(0)
        except BaseException:
            self._abandon(jobs)
            raise
        finally:
            self._writer = self._began_at = None

    def _ended(self, writer: asyncio.Task[None]) -> None:
        """A writer that was stopped before its first step could not say so."""
        if self._writer is writer:
            self._writer = None
            self._abandon([])

    def _next_jobs(self, most: int) -> list[QueuedOperation]:
        return [self._jobs.popleft() for _ in range(min(most, len(self._jobs)))]

    def _abandon(self, jobs: list[QueuedOperation]) -> None:
        """The writer was stopped, with its loop or by something that ends programs: nobody is left waiting for it."""
        connection, self._writing = self._writing, None
        self._forget()
        if connection is not None:
            self._disk.submit(connection.close)  # behind a commit that may be under way
        for job in (*jobs, *self._jobs):
            job.error = Unavailable(Reason.STORE_UNAVAILABLE, "The store was stopped.", outcome="unknown")
            job.answer()
        self._jobs.clear()

    async def _commit_group(self, jobs: list[QueuedOperation]) -> None:
        """Commit together. If that fails, the next group gets a new connection."""
        committing = False
        self._announced = ()
        try:
            if self._writing is None:
                self._writing = await self._on_disk(
                    connections.connect_without_waiting, self._path, self._synchronous
                )
            cursor, before = self._writing.cursor(), self._writing.total_changes
            await self._begin(cursor)
            await self._run_group(cursor, jobs)
            committing = True
            if self._writing.total_changes == before:
                self._commit(cursor)  # of nothing: the disk has no part in it
            else:
                await self._on_disk(self._commit, cursor)
        except Exception as error:
            self._failed(self._writing, jobs, error, committing)
            self._writing = None

    async def _on_disk(self, work: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._disk, work, *arguments)

    async def _begin(self, cursor: sqlite3.Cursor) -> None:
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            # Somebody writes to the file by hand: wait for them, but not on the loop.
            await self._on_disk(connections.begin_when_free, cursor)
        [version] = cursor.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._row_cache.forget_all()

    async def _run_group(self, cursor: sqlite3.Cursor, jobs: list[QueuedOperation]) -> None:
        try:
            await self._run_all(cursor, jobs, self._run)
            if followers := await self._follow_ups(jobs):
                jobs += followers
                await self._run_all(cursor, followers, self._run)
            await self._flush(cursor)
        except DirtyFailure:
            cursor.execute("ROLLBACK")
            self._forget()
            for job in jobs:
                job.begin_again()
            await self._begin(cursor)
            await self._run_all(cursor, jobs, self._run_apart)

    async def _follow_ups(self, jobs: list[QueuedOperation]) -> list[QueuedOperation]:
        """What others hand in because of this group, such as the claim of a task that it starts: one commit for all."""
        self._announced = self._wakeups.notify_before_commit(_bells(jobs))
        if not self._announced:
            return []
        await self._breathe()
        return self._next_jobs(GROUP_MAX - len(jobs))

    async def _run_all(
        self,
        cursor: sqlite3.Cursor,
        jobs: list[QueuedOperation],
        run: Callable[[sqlite3.Cursor, QueuedOperation, int], Coroutine[Any, Any, None]],
    ) -> None:
        now_ms = self._clock.now_ms()
        self._until = self._loop.time() + AT_A_STRETCH_S
        for job in jobs:
            await run(cursor, job, now_ms)

    async def _breathe(self) -> None:
        """Let others have their turn; nobody else uses the connection meanwhile."""
        await asyncio.sleep(0)
        self._until = self._loop.time() + AT_A_STRETCH_S

    def _commit(self, cursor: sqlite3.Cursor) -> None:
        self._on_moment(CommitPoint.BEFORE_COMMIT)
        cursor.execute("COMMIT")
        self._on_moment(CommitPoint.AFTER_COMMIT)

    async def _run(self, cursor: sqlite3.Cursor, job: QueuedOperation, now_ms: int) -> None:
        """Run one operation inside the group's transaction; if it raises, it must not have changed anything there."""
        session = Session(self._statements, now_ms, journals=self.journals, row_cache=self._row_cache)
        before, is_kept_back = self._traces(cursor), False
        try:
            job.result = await self._drive(cursor, job.operation(SqlTx(session, self._known)))
            if not self._write_buffer.can_append(session.writes):
                await self._flush(cursor)
            is_kept_back = True
            self._write_buffer.add(session.writes)
            session.written()
            job.ended(session)
        except DirtyFailure:
            raise
        except Exception as error:
            if _is_file_error(error):
                raise
            job.error = error
            if is_kept_back or self._traces(cursor) != before:
                raise DirtyFailure from error

    def _traces(self, cursor: sqlite3.Cursor) -> int:
        """How much operations have changed before their end."""
        return cursor.connection.total_changes - self._flushed

    async def _drive(self, cursor: sqlite3.Cursor, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run an operation to its end, answering each question at once, and others in between if it takes long."""
        try:
            fetches = _next_asks(coroutine, None)
            while True:
                if self._must_flush(fetches):
                    await self._flush(cursor)
                answers = _answer(cursor, fetches)
                self._notice(fetches)
                if self._loop.time() > self._until:
                    await self._breathe()
                fetches = _next_asks(coroutine, answers)
        except StopIteration as end:
            return end.value
        finally:
            coroutine.close()

    def _notice(self, fetches: tuple[Fetch, ...]) -> None:
        """Forget what a question changed that does not say which rows."""
        invalidated_by = self._row_cache.invalidated_by
        for fetch in fetches:
            for table_cache in invalidated_by.get(fetch.statement, ()):
                table_cache.forget_all()

    def _must_flush(self, fetches: Any) -> bool:
        return isinstance(fetches, tuple) and any(
            self._write_buffer.must_flush_before(fetch.statement) for fetch in fetches
        )

    async def _flush(self, cursor: sqlite3.Cursor) -> None:
        """Write what was kept back. Which operation it is whose values are refused, nobody can say then."""
        before = cursor.connection.total_changes
        try:
            for statement, rows in self._write_buffer.drain():
                await self._record(cursor, statement.sql, rows)
        except Exception as error:
            if _is_file_error(error):
                raise
            raise DirtyFailure from error
        self._flushed += cursor.connection.total_changes - before

    async def _record(self, cursor: sqlite3.Cursor, sql: str, rows: list[tuple[Any, ...]]) -> None:
        for start in range(0, len(rows), ROWS_AT_A_STRETCH):
            if self._loop.time() > self._until:
                await self._breathe()
            cursor.executemany(sql, rows[start : start + ROWS_AT_A_STRETCH])

    async def _run_apart(self, cursor: sqlite3.Cursor, job: QueuedOperation, now_ms: int) -> None:
        """The same, and written at once; what it changed is taken back if it raises."""
        cursor.execute("SAVEPOINT operation")
        try:
            await self._run(cursor, job, now_ms)
            await self._flush(cursor)
        except DirtyFailure as left:
            cursor.execute("ROLLBACK TO operation")
            self._forget()
            job.begin_again()
            job.error = left.__cause__
        cursor.execute("RELEASE operation")

    def _forget(self) -> None:
        """What was changed is taken back: nothing is at hand, and nothing is left to write."""
        self._row_cache.forget_all()
        self._write_buffer.clear()

    def _failed(
        self,
        connection: sqlite3.Connection | None,
        jobs: list[QueuedOperation],
        error: Exception,
        committing: bool,
    ) -> None:
        """The group did not commit, or nobody can say: drop the connection and tell the callers."""
        self._forget()
        log.error("group commit failed", error=str(error), operations=len(jobs), committing=committing)
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        full = "full" in str(error)
        refusal = Unavailable(
            Reason.STORAGE_FULL if full else Reason.STORE_UNAVAILABLE,
            "The disk is full: free space, the server goes on by itself."
            if full
            else f"The database failed: {error}",
            outcome="unknown" if committing and not full else "none",
        )
        self._vitals.refused(refusal.reason)
        for job in jobs:
            job.begin_again()
            job.error = refusal

    def _deliver(self, jobs: list[QueuedOperation]) -> None:
        """Answer the callers, then ring."""
        for job in jobs:
            job.answer()
            self._known.remember(job.cacheable)
        if topics := _bells(jobs):
            self._wakeups.notify(topics, self._announced)

    # reading

    def _read_aside(self, operation: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        """Read in one of the reader threads; each has a connection of its own."""
        if getattr(self._local, "connection", None) is None:
            self._local.connection = self._reader()
        return self._read_one(self._local.connection, operation)

    def _read_one(
        self, connection: sqlite3.Connection, operation: Callable[[Tx], Coroutine[Any, Any, T]]
    ) -> T:
        session = ReadOnlySession(self._statements, self._clock.now_ms())
        try:
            cursor = connection.execute("BEGIN")
            return cast("T", _driven(cursor, operation(SqlTx(session, self._known))))
        except sqlite3.Error as error:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE, f"The database failed: {error}", outcome="none"
            ) from error
        finally:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")

    def _reader(self) -> sqlite3.Connection:
        connection = connections.connect_reader(self._path, self._synchronous)
        self._read_connections.append(connection)
        return connection


def _is_file_error(error: Exception) -> bool:
    """Whether all who share the transaction are concerned, and not one operation alone."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, _OPERATION_ERRORS)


def _bells(jobs: list[QueuedOperation]) -> dict[str, None]:
    return {topic: None for job in jobs for topic in job.topics}


def _next_asks(coroutine: Coroutine[Any, Any, Any], answers: list[Rows] | None) -> Any:
    """An operation that says it was cancelled has failed; it is not the writer who is to stop."""
    try:
        return coroutine.send(answers)
    except asyncio.CancelledError as error:
        raise RuntimeError("an operation was cancelled") from error


def _driven(cursor: sqlite3.Cursor, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run an operation that only reads to its end, answering each question at once."""
    try:
        fetches = coroutine.send(None)
        while True:
            fetches = coroutine.send(_answer(cursor, fetches))
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()


def _answer(cursor: sqlite3.Cursor, fetches: Any) -> list[Rows]:
    if not isinstance(fetches, tuple):
        raise RuntimeError(f"an operation awaited {fetches!r}; it may await only the store")
    if len(fetches) < MANY:
        return [cursor.execute(fetch.statement.sql, fetch.values).fetchall() for fetch in fetches]
    answers: list[Rows] = []
    for statement, equal in groupby(fetches, attrgetter("statement")):
        answers += _answer_equal(cursor, statement, [fetch.values for fetch in equal])
    return answers


def _answer_equal(cursor: sqlite3.Cursor, statement: Statement, asked: list[tuple[Any, ...]]) -> list[Rows]:
    """The answers to one question about several things."""
    if statement.many is None or len(asked) < MANY:
        return [cursor.execute(statement.sql, values).fetchall() for values in asked]
    found: list[list[Row]] = [[] for _ in asked]
    texts = msgspec.json.encode([text for (text,) in asked]).decode()
    for row in cursor.execute(statement.many, (texts,)):
        found[row[0] - 1].append(row)
    return [*found]
