"""The file of a SQLite store: its lock, its permissions, its schema and its backups."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from penstock.errors import Reason, StoreRefused
from penstock.stores import private_files
from penstock.stores.migrations.registry import migrations, pending
from penstock.stores.sql.catalogue import Dialect

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import pysqlite3 as sqlite3
    except ImportError:
        import sqlite3

from penstock.stores.sqlite import connections
from penstock.stores.sqlite.connections import sqlite3

_COMPANIONS = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a database."""


def exclusive(path: Path) -> IO[str]:
    """Lock the file for this process; a second process is refused with the name of the holder."""
    real = path.resolve()  # so that a symbolic link and its target share one lock
    real.parent.mkdir(parents=True, exist_ok=True)
    lock = real.with_name(real.name + ".lock").open("a+", encoding="utf-8")
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
            # Not by `connections.connect`: its settings would be written into the file of another program.
            with contextlib.closing(sqlite3.connect(str(path))) as connection:
                _check(connection)
        _keep_private(path)
        with contextlib.closing(connections.connect(path, "full")) as connection:
            return _migrate(connection, path, existed)
    except sqlite3.DatabaseError as error:
        raise StoreRefused(
            Reason.STORE_DAMAGED,
            f"{path.name} is not a database that can be served ({error}). "
            "Nothing was changed. Restore a backup, or move the file away to start empty.",
        ) from error


def _keep_private(path: Path) -> None:
    """Restrict the database, its log and the copies made before migrations to their owner. Earlier versions did not.

    SQLite follows a symbolic link and keeps the log beside the real file; the copies are made beside the link.
    """
    private_files.create(path)
    real = path.resolve()
    for companion in (*(real.with_name(real.name + suffix) for suffix in _COMPANIONS), *_copies(path)):
        private_files.restrict(companion)


def _copies(path: Path) -> list[Path]:
    """The copies that were made before migrations; none if the directory may not be listed."""
    start = f"{path.name}.before-"
    with contextlib.suppress(PermissionError):
        return [each for each in path.parent.iterdir() if each.name.startswith(start)]
    return []


def _check(connection: sqlite3.Connection) -> None:
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(str(verdict))
    if not _applied(connection) and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise sqlite3.DatabaseError("it holds tables of another program")


def applied_migrations(path: Path) -> Mapping[int, str]:
    with contextlib.closing(connections.connect(path, "full")) as connection:
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
    """The statements of a script; migrations hold no semicolon inside a statement."""
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]


def backup(path: Path, target: Path) -> None:
    """Copy a database, also while a server uses it. The copy is readable by its owner only."""
    private_files.create(target)
    with (
        contextlib.closing(sqlite3.connect(str(path))) as source,
        contextlib.closing(sqlite3.connect(str(target))) as copy,
    ):
        source.backup(copy)
