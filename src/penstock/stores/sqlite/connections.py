"""Connections to a SQLite file, with the settings that the store relies on."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import pysqlite3 as sqlite3
    except ImportError:
        import sqlite3

__all__ = [
    "begin_when_free",
    "connect",
    "connect_reader",
    "connect_without_waiting",
    "library_version",
    "register_adapters",
    "sqlite3",
]
BUSY_S = 5.0
"""How long to wait for another process that writes to the file by hand."""
CACHE_KIB, READ_CACHE_KIB = 24_576, 4_096
"""Page cache of the writer and of each reader; the operating system caches the rest."""


def register_adapters() -> None:
    """Register adapters for None and for our enumerations: without one, the driver searches for one at every value."""
    sqlite3.register_adapter(type(None), cast("Callable[[None], None]", {}.get))
    for words in StrEnum.__subclasses__():
        if words.__module__.startswith("penstock."):
            sqlite3.register_adapter(words, str.__str__)


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        str(path), isolation_level=None, check_same_thread=False, cached_statements=256, timeout=BUSY_S
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def connect_without_waiting(path: Path, synchronous: str) -> sqlite3.Connection:
    """A connection for the event loop, which must not block on a lock of another process."""
    connection = connect(path, synchronous)
    connection.execute("PRAGMA busy_timeout = 0")
    return connection


def begin_when_free(cursor: sqlite3.Cursor) -> None:
    cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
    cursor.execute("BEGIN IMMEDIATE")
    cursor.execute("PRAGMA busy_timeout = 0")


def library_version() -> str:
    return str(sqlite3.sqlite_version)


def connect_reader(path: Path, synchronous: str) -> sqlite3.Connection:
    """A connection that can neither write nor checkpoint."""
    connection = connect(path, synchronous)
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{READ_CACHE_KIB}")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection
