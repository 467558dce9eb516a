"""Ephemeral stores of tests. A database is emptied and used again: preparing statements takes most of a short test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from penstock.ports.clock import Clock
from penstock.ports.wakeups import Wakeups
from penstock.stores.group_commit import no_hook
from penstock.stores.sqlite.ephemeral import EphemeralStore
from penstock.stores.sqlite.store import TABLES
from tests.support.checked_store import CheckedWriteBuffer

_FILLED = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('migrations', 'admission')"
_FREE_MAX = 4


class RecycledStore(EphemeralStore):
    """Refuses operations that write a row twice, and leaves its database to the next store."""

    _used: ClassVar[list[RecycledStore]] = []
    _free: ClassVar[list[RecycledStore]] = []

    @classmethod
    def take(cls, clock: Clock, wakeups: Wakeups, *, journals: bool) -> RecycledStore:
        if cls._free:
            before = cls._free.pop()
            store = cls(before._path, clock, wakeups, "off", before._lock, no_hook, journals)
            store._directory, store._writing = before._directory, before._writing
            store._reading, store._read_connections = before._reading, before._read_connections
        else:
            store = cls.create(clock, wakeups, journals=journals)
        store._write_buffer = CheckedWriteBuffer(store._statements.values(), TABLES)
        cls._used.append(store)
        return store

    @classmethod
    def recycle(cls) -> None:
        """Empty the databases of the stores that the test has left open, and close those that are still in use."""
        while cls._used:
            store = cls._used.pop()
            if store._closing:
                continue
            store._closing = True
            if store._writer is None and len(cls._free) < _FREE_MAX:
                store._empty()
                cls._free.append(store)
            else:
                store._close_connections()
                store._lock.close()
                store._directory.cleanup()

    def _empty(self) -> None:
        if (connection := self._writing) is None:
            return
        connection.execute("BEGIN IMMEDIATE")
        for (table,) in connection.execute(_FILLED).fetchall():
            connection.execute(f"DELETE FROM {table}")
        connection.execute(
            "UPDATE admission SET version = 0, stamp = '', declared = NULL, declared_by = NULL, declared_at_ms = NULL"
        )
        connection.execute("COMMIT")


def ephemeral_store(clock: Clock, wakeups: Wakeups, *, journals: bool = False) -> EphemeralStore:
    """An empty store, until the test ends."""
    return RecycledStore.take(clock, wakeups, journals=journals)


@pytest.fixture(autouse=True)
def recycle_ephemeral_stores() -> Iterator[None]:
    """Imported by the conftest of tests that use ephemeral stores."""
    yield
    RecycledStore.recycle()
