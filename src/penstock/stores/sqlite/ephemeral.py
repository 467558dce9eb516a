"""A SQLite store that lasts as long as its server: `memory://`, for tests and trials.

It is the ordinary store on a database in a private directory, in shared memory (`/dev/shm`) where there is room. So
every feature is written once, and a test on `memory://` runs the statements of production. What differs:

- The file starts as a copy of an empty, migrated database, which is made once per process. Opening takes a
  millisecond, because test suites open thousands of stores.
- Nothing is synced, so commits and long reads run on the event loop instead of in threads. An in-process server with
  a clock of its own (`penstock.testing`) is therefore as deterministic as its event loop.
- `close` removes the directory, as does the end of the process. What a killed process left behind is removed by the
  next one that opens such a store.

Rejected: `:memory:` and the `memdb` VFS. Readers of a shared cache, and of `memdb`, are refused while a write
transaction is open, and the writer yields to the event loop inside of one; in WAL mode, which needs a file, readers see
the last commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import time
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp
from typing import Any, Self, TypeVar

from penstock.errors import StoreRefused
from penstock.ports.clock import Clock
from penstock.ports.store import Operation
from penstock.ports.wakeups import Wakeups
from penstock.stores.group_commit import CommitHook, no_hook
from penstock.stores.sqlite import connections, schema
from penstock.stores.sqlite.store import SqliteStore

T = TypeVar("T")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (each store has a private directory there)
ROOM_MIN = 1 << 30
"""With less free memory than this (containers often have 64 MB), the directory for temporary files is used instead."""
PREFIX, DATABASE = "penstock-ephemeral-", "penstock.db"
ABANDONED_AFTER_S = 60.0
"""A directory that is younger may belong to a process that has not locked its database yet."""


class _PrivateDirectory:
    """A directory that is removed when it is no longer used, at the latest at the end of the process."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix=PREFIX, dir=_parent()))
        self.cleanup = weakref.finalize(self, _remove_own, self.path, os.getpid())


class EphemeralStore(SqliteStore):
    """Created by `create`. Keeps the guarantees of a store except durability."""

    _directory: _PrivateDirectory

    @classmethod
    def create(
        cls, clock: Clock, wakeups: Wakeups, *, on_commit: CommitHook = no_hook, journals: bool = False
    ) -> Self:
        """Create an empty database for this store alone; parameters as in `SqliteStore.open`."""
        directory = _PrivateDirectory()
        path = directory.path / DATABASE
        path.write_bytes(_empty_database())
        connections.register_adapters()
        store = cls(path, clock, wakeups, "off", schema.exclusive(path), on_commit, journals)
        store._directory = directory
        return store

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        return await super().read(operation)

    async def _on_disk(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    async def _end(self) -> None:
        if self._writer is not None:
            await asyncio.wait([self._writer])
        self._close_connections()
        self._lock.close()
        self._directory.cleanup()


def _remove_own(directory: Path, pid: int) -> None:
    """Remove a store's directory; not in a process that was forked from its owner, which still uses it."""
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)


@cache
def _parent() -> Path:
    """The directory in which stores are created."""
    parent = SHARED_MEMORY if _has_room(SHARED_MEMORY) else Path(gettempdir())
    _remove_abandoned(parent)
    return parent


def _has_room(parent: Path) -> bool:
    with contextlib.suppress(OSError), TemporaryDirectory(dir=parent):
        return shutil.disk_usage(parent).free >= ROOM_MIN
    return False


def _remove_abandoned(parent: Path) -> None:
    """Remove the stores of processes that were killed: their locks are free.

    The parent may be writable by everybody, so only private directories of this user are touched: what others made
    may hold links to files of ours.
    """
    for directory in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, StoreRefused):
            made = directory.lstat()
            is_own = stat.S_ISDIR(made.st_mode) and made.st_uid == os.geteuid() and not made.st_mode & 0o077
            if is_own and time.time() - made.st_mtime > ABANDONED_AFTER_S:
                with schema.exclusive(directory / DATABASE):
                    shutil.rmtree(directory)


@cache
def _empty_database() -> bytes:
    """A database with the current schema and no rows."""
    with TemporaryDirectory(prefix=PREFIX, dir=_parent()) as directory:
        path = Path(directory) / DATABASE
        schema.prepare(path)
        return path.read_bytes()
