"""The embedded store: one SQLite file, one writer thread that commits in groups, readers beside it.

Operations that arrive together share one transaction and one fsync; each caller is answered after the commit.
The writer's connection alone writes and checkpoints, and a lock file keeps other processes away, so the
WAL-reset race of SQLite 3.7.0 to 3.51.2 (two connections writing or checkpointing at once) cannot happen here.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import queue
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import structlog

from penstock.errors import Reason, StoreRefused, Unavailable
from penstock.ports.clock import Clock
from penstock.ports.store import Line, Operation, Tx
from penstock.ports.wakeups import Wakeups
from penstock.stores.driving import Job, Moment, OnMoment, ReadOnlySession, ordered_writes, undisturbed
from penstock.stores.migrating import migrations, pending
from penstock.stores.sql.catalogue import Dialect, catalogue
from penstock.stores.sql.known import Known
from penstock.stores.sql.session import Rows, Session
from penstock.stores.sql.tx import SqlTx

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import pysqlite3 as sqlite3
    except ImportError:
        import sqlite3

T = TypeVar("T")
GROUP_MAX = 256
"""Most operations in one transaction: bounds how long the first of them waits for the last."""
READERS = 2
CACHE_KIB, READ_CACHE_KIB = 24_576, 4_096
"""How much of the file the writer and each reader keep in memory; the system keeps what they do not."""
WAITING_MAX = 20_000
"""Most operations that may wait for the writer; beyond it callers are told to come back."""
_CLOSE = object()
_OWN_FAULTS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
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
        on_moment: OnMoment,
        journals: bool,
    ) -> None:
        self.journals = journals
        self._path = path.absolute()
        self._clock = clock
        self._wakeups = wakeups
        self._synchronous = synchronous
        self._lock = lock
        self._on_moment = on_moment
        self._statements = catalogue(Dialect.SQLITE)
        self._known = Known()
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiting = 0
        self._closing = False
        self._local = threading.local()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="penstock-reader")
        self._read_connections: list[sqlite3.Connection] = []
        self._writer = threading.Thread(target=self._write, name="penstock-writer", daemon=True)
        self._writer.start()

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Clock,
        wakeups: Wakeups,
        *,
        synchronous: str = "full",
        on_moment: OnMoment = undisturbed,
        journals: bool = False,
    ) -> SqliteStore:
        """Lock the file, bring its schema up to date (after a backup copy) and start the writer."""
        lock = exclusive(path)
        try:
            await asyncio.to_thread(prepare, path)
        except BaseException:
            lock.close()
            raise
        _know_values()
        return cls(path, clock, wakeups, synchronous, lock, on_moment, journals)

    async def transact(self, operation: Operation[T], *, key: str, line: Line = Line.WORK) -> T:
        if self._closing:
            raise Unavailable(Reason.SERVER_DRAINING, "The store is closing.", outcome="none")
        if self._waiting >= WAITING_MAX:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE, "The disk does not keep up. Try again shortly.", outcome="none"
            )
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting += 1
        self._jobs.put(Job(cast("Callable[[Tx], Coroutine[Any, Any, T]]", operation), key, future))
        return await future

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        typed = cast("Callable[[Tx], Coroutine[Any, Any, T]]", operation)
        return await self._loop.run_in_executor(self._readers, self._read_one, typed)

    async def check(self) -> None:
        async def nothing(tx: Tx) -> None:
            await tx.namespaces.list()

        if not self._path.exists():
            raise Unavailable(
                Reason.STORE_UNAVAILABLE, "The database file is gone from its place.", outcome="none"
            )
        await self.read(nothing)

    async def close(self) -> None:
        """Finish what was handed in, then fold the log into the file and let others in."""
        if self._closing:
            return
        self._closing = True
        self._jobs.put(_CLOSE)
        await asyncio.to_thread(self._writer.join)
        self._readers.shutdown()
        for connection in self._read_connections:
            connection.close()
        with contextlib.closing(_connect(self._path, self._synchronous)) as last:
            last.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._lock.close()

    # the writer thread

    def _write(self) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            jobs, last = self._next_group()
            if jobs:
                connection = self._commit_group(connection, jobs)
            if last:
                if connection is not None:
                    connection.close()
                return

    def _next_group(self) -> tuple[list[Job], bool]:
        first = self._jobs.get()
        if first is _CLOSE:
            return [], True
        group = [first]
        while len(group) < GROUP_MAX:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is _CLOSE:
                return group, True
            group.append(job)
        return group, False

    def _commit_group(
        self, connection: sqlite3.Connection | None, jobs: list[Job]
    ) -> sqlite3.Connection | None:
        """Commit together and tell the callers; returns the connection, or None when the next group needs a new one."""
        committing = False
        try:
            if connection is None:
                connection = _connect(self._path, self._synchronous)
            cursor = connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            now_ms = self._clock.now_ms()
            for job in jobs:
                self._run(cursor, job, now_ms)
            self._on_moment(Moment.BEFORE_COMMIT)
            committing = True
            cursor.execute("COMMIT")
            self._on_moment(Moment.AFTER_COMMIT)
        except sqlite3.Error as error:
            self._failed(connection, jobs, error, committing)
            connection = None
        self._loop.call_soon_threadsafe(self._deliver, jobs)
        return connection

    def _run(self, cursor: sqlite3.Cursor, job: Job, now_ms: int) -> None:
        """Run one operation inside the group's transaction; if it raises, it leaves no trace there."""
        session = Session(self._statements, now_ms, journals=self.journals)
        cursor.execute("SAVEPOINT operation")
        try:
            job.result = _drive(cursor, job.operation(SqlTx(session, self._known)))
            for statement, rows in ordered_writes([session]):
                cursor.executemany(statement.sql, rows)
            job.ended(session)
        except Exception as error:
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, _OWN_FAULTS):
                raise
            job.error = error
            cursor.execute("ROLLBACK TO operation")
        cursor.execute("RELEASE operation")

    def _failed(
        self, connection: sqlite3.Connection | None, jobs: list[Job], error: sqlite3.Error, committing: bool
    ) -> None:
        """The group did not commit, or nobody can say: drop the connection and tell the callers."""
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
        for job in jobs:
            job.begin_again()
            job.error = refusal

    def _deliver(self, jobs: list[Job]) -> None:
        """Back on the loop: answer the callers, then ring."""
        self._waiting -= len(jobs)
        bells: dict[str, None] = {}
        for job in jobs:
            job.answer()
            bells.update(job.bells)
            self._known.learn(job.learned)
        if bells:
            self._wakeups.ring(bells)

    # the reader threads

    def _read_one(self, operation: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        connection = self._reader()
        session = ReadOnlySession(self._statements, self._clock.now_ms())
        try:
            connection.execute("BEGIN")
            return cast("T", _drive(connection.cursor(), operation(SqlTx(session, self._known))))
        except sqlite3.Error as error:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE, f"The database failed: {error}", outcome="none"
            ) from error
        finally:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = _connect(self._path, self._synchronous)
            connection.execute("PRAGMA query_only = ON")
            connection.execute(f"PRAGMA cache_size = -{READ_CACHE_KIB}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            self._local.connection = connection
            self._read_connections.append(connection)
        return connection


def _drive(cursor: sqlite3.Cursor, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run an operation to its end, answering each question at once."""
    try:
        asks = coroutine.send(None)
        while True:
            asks = coroutine.send(_answer(cursor, asks))
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()


def _answer(cursor: sqlite3.Cursor, asks: Any) -> list[Rows]:
    if not isinstance(asks, tuple):
        raise RuntimeError(f"an operation awaited {asks!r}; it may await only the store")
    return [cursor.execute(ask.statement.sql, ask.values).fetchall() for ask in asks]


def _know_values() -> None:
    """Have the library take words and nothing as they are; else it looks for a way to, each time it is given one."""
    sqlite3.register_adapter(type(None), cast("Callable[[None], None]", {}.get))
    for words in StrEnum.__subclasses__():
        sqlite3.register_adapter(words, str.__str__)


def _connect(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        str(path), isolation_level=None, check_same_thread=False, cached_statements=256, timeout=5.0
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if synchronous == 'full' else 'NORMAL'}")
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def exclusive(path: Path) -> IO[str]:
    """Hold the file for this process alone; whoever comes second learns who has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(path.name + ".lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        lock.close()
        raise StoreRefused(
            Reason.STORE_IN_USE,
            f"{path.name} is in use by {holder}. One server owns a SQLite file: stop that one, name another file, "
            "or use PostgreSQL to run several servers.",
            holder=holder,
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
    lock.flush()
    return lock


def prepare(path: Path) -> list[int]:
    """Check the file and bring its schema up to date; returns the migrations applied."""
    existed = path.exists() and path.stat().st_size > 0
    try:
        if existed:
            # Not by `_connect`: its settings would be written into a file that may be somebody else's.
            with contextlib.closing(sqlite3.connect(str(path))) as connection:
                _check(connection)
        with contextlib.closing(_connect(path, "full")) as connection:
            return _migrate(connection, path, existed)
    except sqlite3.DatabaseError as error:
        raise StoreRefused(
            Reason.STORE_DAMAGED,
            f"{path.name} is not a database that can be served ({error}). "
            "Nothing was changed. Restore a backup, or move the file away to start empty.",
        ) from error


def _check(connection: sqlite3.Connection) -> None:
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(str(verdict))
    if not _applied(connection) and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise sqlite3.DatabaseError("it holds tables of another program")


def applied_migrations(path: Path) -> Mapping[int, str]:
    with contextlib.closing(_connect(path, "full")) as connection:
        return _applied(connection)


def _applied(connection: sqlite3.Connection) -> dict[int, str]:
    table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations'"
    if not connection.execute(table).fetchone():
        return {}
    return dict(connection.execute("SELECT number, checksum FROM migrations"))


def _migrate(connection: sqlite3.Connection, path: Path, existed: bool) -> list[int]:
    applied = _applied(connection)
    missing = pending(migrations(Dialect.SQLITE), applied)
    if missing and existed and applied:
        backup(path, path.with_name(f"{path.name}.before-{missing[0].number:04d}"))
    for migration in missing:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations "
                "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
            )
            for statement in _split(migration.sql):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO migrations VALUES (?, ?, ?)",
                (migration.number, migration.name, migration.checksum),
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return [migration.number for migration in missing]


def _split(script: str) -> list[str]:
    """The statements of a script; our migrations hold no semicolon inside a statement."""
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]


def backup(path: Path, target: Path) -> None:
    """Copy a database, also while it is being served."""
    with (
        contextlib.closing(sqlite3.connect(str(path))) as source,
        contextlib.closing(sqlite3.connect(str(target))) as copy,
    ):
        source.backup(copy)


def library_version() -> str:
    return str(sqlite3.sqlite_version)


__all__ = ["SqliteStore", "applied_migrations", "backup", "library_version", "prepare"]
