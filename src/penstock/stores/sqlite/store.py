"""The embedded store: one SQLite file, one writer that commits in groups, readers beside it.

Theory of operation
-------------------
Operations that arrive together share one transaction and one fsync; each caller is answered after the commit (see
`stores.group_commit`). They run on the event loop, a few milliseconds at a time: they need the interpreter
throughout, and a thread would only pass the GIL back and forth at every statement. What waits for the disk (opening,
committing) and long reads have threads of their own.

The stages of a group, each a method:

1. `_write` takes what waits, up to `GROUP_MAX` operations. It runs while there are any, and ends when there are none.
2. `_commit_group` opens the connection if there is none, begins, runs the group, and commits in the disk thread. Any
   error here concerns the file: all callers are refused, and the next group gets a new connection.
3. `_run_group` runs the operations, then those that were submitted in response to them, and flushes their writes. If
   one fails after it has changed rows (`DirtyFailure`), all run again, each in a savepoint.
4. `_run` runs one operation: `_drive` executes its fetches, its writes go to the buffer, and the row cache follows.
5. `_flush` executes the buffered writes: before a fetch that could see them, and at the end of the group.
6. `deliver` (of `stores.group_commit`) answers the callers; then the topics are notified.

Two things make the writer fast: rows that it read or wrote recently are cached (`sql.row_cache`), and the writes of a
group are buffered and coalesced (`sql.write_buffer`).

Only the writer's connection writes and checkpoints, and a lock file keeps other processes away, so the WAL-reset race
of SQLite 3.7.0 to 3.51.2 (two connections writing or checkpointing at once) cannot happen here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar, cast

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
    WriteHealth,
    deliver,
    no_hook,
    queued_operations,
)
from penstock.stores.sql.catalogue import Dialect, catalogue
from penstock.stores.sql.row_cache import ImmutableCache, RowCache
from penstock.stores.sql.session import Fetch, ReadOnlySession, Rows, Session
from penstock.stores.sql.tasks.activities import ACTIVITIES
from penstock.stores.sql.tasks.tasks import TASKS
from penstock.stores.sql.transaction import SqlTx
from penstock.stores.sql.workflows.runs import RUNS
from penstock.stores.sql.write_buffer import WriteBuffer
from penstock.stores.sqlite import connections, schema
from penstock.stores.sqlite.connections import sqlite3
from penstock.stores.sqlite.fetches import MergedReads, execute

T = TypeVar("T")
GROUP_MAX = 256
"""Most operations in one transaction: bounds how long the first of them waits for the last."""
SMALL_GROUP = 4
"""Callers of a group this small are answered before the next group runs; others while its commit is under way."""
YIELD_AFTER_S = 0.002
"""How long operations of a group run before they yield to the event loop."""
ROWS_PER_CHECK = 200
"""Most rows that are written between two looks at the clock."""
TABLES = (RUNS, TASKS, ACTIVITIES)
"""The tables whose rows the writer caches."""
READERS = 2
WAITING_MAX = 20_000
"""Most operations that may wait for the writer; further ones are refused as retryable."""
_OPERATION_ERRORS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
"""Errors that a single operation causes; all others concern the file."""
log = structlog.get_logger("penstock.store")


class SqliteStore:
    """Created by `open`. Must be closed, so that the write-ahead log is checkpointed into the file."""

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
        self._on_commit = on_commit
        self._statements = catalogue(Dialect.SQLITE)
        self._immutable = ImmutableCache()
        self._row_cache = RowCache(TABLES, self._statements.values())
        self._write_buffer = WriteBuffer(self._statements.values(), TABLES)
        """The writes of this group, until one of its operations reads them or the group ends."""
        self._flushed = 0
        """How many changes of this connection came from the write buffer."""
        self._version = 0
        """The last `PRAGMA data_version`: it changes when another connection has written."""
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[QueuedOperation] = deque()
        self._writer: asyncio.Task[None] | None = None
        """Runs while there are operations to commit."""
        self._began_at: float | None = None
        """When the current group began."""
        self._write_health = WriteHealth()
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._announced: Collection[str] = ()
        """The topics of this group that were notified before its commit."""
        self._closing = False
        self._ending: asyncio.Task[None] | None = None
        self._yield_at = 0.0
        """When to yield to the event loop."""
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="penstock-disk")
        self._local = threading.local()
        self._merged_reads = MergedReads()
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
        """Lock the file, bring its schema up to date (after a backup copy) and start the writer.

        Args:
            path: the database file; created if it does not exist.
            clock: the source of `now_ms`.
            wakeups: is notified of topics after each commit.
            synchronous: `full` (an fsync per commit) or `normal` (a power cut may lose the last commits).
            on_commit: called before and after every commit.
            journals: whether transitions are written to the journal.

        Raises `StoreRefused` when another process holds the file, or when it is damaged or newer than this program.
        """
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
        self._submit([QueuedOperation(cast("Any", operation), key, future)])
        return await future

    async def transact_all(self, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        future: asyncio.Future[list[T | Exception]] = self._loop.create_future()
        self._submit(queued_operations(asked, future))
        return await future

    def _submit(self, jobs: Sequence[QueuedOperation]) -> None:
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
            return await self._loop.run_in_executor(self._readers, self._read_in_thread, typed)
        if self._reading is None:
            self._reading = self._reader()
        return self._read_one(self._reading, typed, execute)

    async def check(self) -> None:
        async def nothing(tx: Tx) -> None:
            await tx.namespaces.list()

        if not self._path.exists():
            raise Unavailable(Reason.STORE_UNAVAILABLE, "The database file has been removed.", outcome="none")
        await self.read(nothing)

    def health(self) -> StoreHealth:
        began_at = self._began_at
        stalled_s = 0.0 if began_at is None else self._loop.time() - began_at
        health = self._write_health
        return StoreHealth(round(stalled_s * 1000), health.refusal, health.committed)

    async def close(self) -> None:
        """Finish what was submitted, checkpoint the log into the file, and release the file lock."""
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
        self._close_connections()
        with contextlib.closing(connections.connect(self._path, self._synchronous)) as last:
            last.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._lock.close()

    def _close_connections(self) -> None:
        for connection in (*self._read_connections, self._writing):
            if connection is not None:
                connection.close()

    # writing

    async def _write(self) -> None:
        """Commit group after group while operations wait; answer the callers of each, then notify."""
        jobs: list[QueuedOperation] = []
        try:
            while self._jobs:
                jobs = [self._jobs.popleft() for _ in range(min(GROUP_MAX, len(self._jobs)))]
                self._began_at = self._loop.time()
                await self._commit_group(jobs)
                self._began_at = None
                self._write_health.committed += len(jobs)
                if topics := deliver(jobs, self._immutable):
                    self._wakeups.notify(topics, self._announced)
                if len(jobs) <= SMALL_GROUP:
                    await asyncio.sleep(0)
        except BaseException:
            self._abandon(jobs)
            raise
        finally:
            self._writer = self._began_at = None

    def _ended(self, writer: asyncio.Task[None]) -> None:
        """Handle a writer task that was cancelled before its first step, and so could not clean up itself."""
        if self._writer is writer:
            self._writer = None
            self._abandon([])

    def _abandon(self, jobs: list[QueuedOperation]) -> None:
        """The writer was cancelled: fail all callers, so that none waits forever."""
        connection, self._writing = self._writing, None
        self._discard_pending()
        if connection is not None:
            self._disk.submit(connection.close)  # queued behind a commit that may be under way
        for job in (*jobs, *self._jobs):
            job.error = Unavailable(Reason.STORE_UNAVAILABLE, "The store was stopped.", outcome="unknown")
            job.answer()
        self._jobs.clear()

    async def _commit_group(self, jobs: list[QueuedOperation]) -> None:
        """Run and commit a group. If that fails, the next group gets a new connection."""
        committing = False
        self._announced = ()
        try:
            if self._writing is None:
                connect = connections.connect_without_waiting
                self._writing = await self._on_disk(connect, self._path, self._synchronous)
            cursor, before = self._writing.cursor(), self._writing.total_changes
            await self._begin(cursor)
            await self._run_group(cursor, jobs)
            committing, keys = True, [job.key for job in jobs]
            if self._writing.total_changes == before:
                self._commit(cursor, keys)  # nothing was written, so there is no fsync
            else:
                await self._on_disk(self._commit, cursor, keys)
        except Exception as error:
            self._fail_group(self._writing, jobs, error, committing)
            self._writing = None

    async def _on_disk(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run what may wait for the disk in its thread, so that the event loop goes on."""
        return await self._loop.run_in_executor(self._disk, work, *arguments)

    async def _begin(self, cursor: sqlite3.Cursor) -> None:
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            # Another process writes to the file by hand: wait for it in a thread.
            await self._on_disk(connections.begin_when_free, cursor)
        [version] = cursor.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._row_cache.clear()

    def _commit(self, cursor: sqlite3.Cursor, keys: Sequence[str]) -> None:
        self._on_commit(CommitPoint.BEFORE_COMMIT, keys)
        cursor.execute("COMMIT")
        self._on_commit(CommitPoint.AFTER_COMMIT, keys)

    async def _run_group(self, cursor: sqlite3.Cursor, jobs: list[QueuedOperation]) -> None:
        """Run the operations of a group, and those that are submitted in response to it before its commit.

        A response is, for example, the claim of a task that the group starts.
        """
        try:
            await self._run_all(cursor, jobs, self._run)
            sessions = [job.session for job in jobs if job.session is not None]
            self._announced = self._wakeups.notify_before_commit(
                {topic: None for session in sessions for topic in session.topics}
            )
            if self._announced:
                await self._yield_to_loop()
                room = min(GROUP_MAX - len(jobs), len(self._jobs))
                followers = [self._jobs.popleft() for _ in range(room)]
                jobs += followers
                await self._run_all(cursor, followers, self._run)
            await self._flush(cursor)
        except DirtyFailure:
            cursor.execute("ROLLBACK")
            self._discard_pending()
            for job in jobs:
                job.begin_again()
            await self._begin(cursor)
            await self._run_all(cursor, jobs, self._run_in_savepoint)

    async def _run_all(
        self,
        cursor: sqlite3.Cursor,
        jobs: list[QueuedOperation],
        run: Callable[[sqlite3.Cursor, QueuedOperation, int], Coroutine[Any, Any, None]],
    ) -> None:
        now_ms = self._clock.now_ms()
        self._yield_at = self._loop.time() + YIELD_AFTER_S
        for job in jobs:
            await run(cursor, job, now_ms)

    async def _run(self, cursor: sqlite3.Cursor, job: QueuedOperation, now_ms: int) -> None:
        """Run one operation in the group's transaction; `DirtyFailure` if it raises after it has changed rows."""
        connection, row_cache, is_buffered = cursor.connection, self._row_cache, False
        session = Session(
            self._statements, now_ms, self._immutable, journals=self.journals, row_cache=row_cache
        )
        before = connection.total_changes - self._flushed
        try:
            job.result = await self._drive(cursor, job.operation(SqlTx(session, now_ms, session.wake)))
            is_buffered = True
            while not self._write_buffer.append(session.writes):
                await self._flush(cursor)
            for effect, row in session.effects:
                effect(row)
            row_cache.invalidate(session.writes)
            job.session = session
        except DirtyFailure:
            raise
        except Exception as error:
            if _is_file_error(error):
                raise
            job.error = error
            if is_buffered or connection.total_changes - self._flushed != before:
                raise DirtyFailure from error

    async def _drive(self, cursor: sqlite3.Cursor, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run an operation to its end, executing each fetch at once and yielding to the event loop now and then."""
        answers: list[Rows] | None = None
        try:
            while True:
                try:
                    fetches = coroutine.send(answers)
                except (
                    asyncio.CancelledError
                ) as error:  # the operation has failed: the writer is not cancelled
                    raise RuntimeError("an operation was cancelled") from error
                if isinstance(fetches, tuple) and self._write_buffer.must_flush_before(fetches):
                    await self._flush(cursor, fetches)
                answers = execute(cursor, fetches)
                self._row_cache.invalidate(fetch.statement for fetch in fetches)
                if self._loop.time() > self._yield_at:
                    await self._yield_to_loop()
        except StopIteration as end:
            return end.value
        finally:
            coroutine.close()

    async def _flush(self, cursor: sqlite3.Cursor, before_fetches: Sequence[Fetch] | None = None) -> None:
        """Execute the buffered writes, or those that some fetches could see.

        If one is refused, its operation is unknown: `DirtyFailure`.
        """
        buffer, before = self._write_buffer, cursor.connection.total_changes
        try:
            for statement, rows in (
                buffer.drain() if before_fetches is None else buffer.drain_before(before_fetches)
            ):
                for start in range(0, len(rows), ROWS_PER_CHECK):
                    if self._loop.time() > self._yield_at:
                        await self._yield_to_loop()
                    cursor.executemany(statement.sql, rows[start : start + ROWS_PER_CHECK])
        except Exception as error:
            if _is_file_error(error):
                raise
            raise DirtyFailure from error
        self._flushed += cursor.connection.total_changes - before

    async def _yield_to_loop(self) -> None:
        """Yield to the event loop; only this task uses the connection."""
        await asyncio.sleep(0)
        self._yield_at = self._loop.time() + YIELD_AFTER_S

    async def _run_in_savepoint(self, cursor: sqlite3.Cursor, job: QueuedOperation, now_ms: int) -> None:
        """Run one operation inside a savepoint and flush its writes; roll back to the savepoint if it raises."""
        cursor.execute("SAVEPOINT operation")
        try:
            await self._run(cursor, job, now_ms)
            await self._flush(cursor)
        except DirtyFailure as dirty:
            cursor.execute("ROLLBACK TO operation")
            self._discard_pending()
            job.begin_again()
            job.error = dirty.__cause__
        cursor.execute("RELEASE operation")

    def _discard_pending(self) -> None:
        """Discard cache and buffer after a rollback."""
        self._row_cache.clear()
        self._write_buffer.drain()

    def _fail_group(
        self,
        connection: sqlite3.Connection | None,
        jobs: list[QueuedOperation],
        error: Exception,
        committing: bool,
    ) -> None:
        """The group did not commit, or its outcome is unknown: drop the connection and refuse all callers."""
        self._discard_pending()
        log.error("group commit failed", error=str(error), operations=len(jobs), committing=committing)
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        full = "full" in str(error)
        refusal = Unavailable(
            Reason.STORAGE_FULL if full else Reason.STORE_UNAVAILABLE,
            "The disk is full: free space, the server then continues by itself."
            if full
            else f"The database failed: {error}",
            outcome="unknown" if committing and not full else "none",
        )
        self._write_health.refused(refusal.reason)
        for job in jobs:
            job.begin_again()
            job.error = refusal

    # reading

    def _read_in_thread(self, operation: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        """Read in a reader thread, each of which has its own connection."""
        if getattr(self._local, "connection", None) is None:
            self._local.connection = self._reader()
        return self._read_one(self._local.connection, operation, self._merged_reads.execute)

    def _read_one(
        self,
        connection: sqlite3.Connection,
        operation: Callable[[Tx], Coroutine[Any, Any, T]],
        execute: Execute,
    ) -> T:
        session = ReadOnlySession(self._statements, self._clock.now_ms(), self._immutable)
        tx = SqlTx(session, session.now_ms, session.wake)
        try:
            cursor = connection.execute("BEGIN")
            return cast("T", _run_read(cursor, operation(tx), execute))
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
    """Whether an error concerns the file, and so the whole group, instead of a single operation."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, _OPERATION_ERRORS)


Execute: TypeAlias = Callable[[sqlite3.Cursor, Any], "list[Rows]"]


def _run_read(cursor: sqlite3.Cursor, coroutine: Coroutine[Any, Any, Any], execute: Execute) -> Any:
    """Run a read to its end, executing its fetches step by step."""
    try:
        fetches = coroutine.send(None)
        while True:
            fetches = coroutine.send(execute(cursor, fetches))
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()
