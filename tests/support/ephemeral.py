"""Ephemeral stores of tests, closed when the test ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.ports.clock import Clock
from penstock.ports.wakeups import Wakeups
from penstock.stores.sqlite.ephemeral import EphemeralStore
from penstock.stores.sqlite.store import TABLES
from tests.support.checked_store import CheckedWriteBuffer

_opened: list[EphemeralStore] = []


def ephemeral_store(clock: Clock, wakeups: Wakeups, *, journals: bool = False) -> EphemeralStore:
    """An empty store, which refuses operations that write a row twice; `close_ephemeral_stores` closes it."""
    store = EphemeralStore.create(clock, wakeups, journals=journals)
    store._write_buffer = CheckedWriteBuffer(store._statements.values(), TABLES)
    _opened.append(store)
    return store


@pytest.fixture(autouse=True)
async def close_ephemeral_stores() -> AsyncIterator[None]:
    """Close the stores that the test has left open. Imported by the conftest of tests that use them."""
    yield
    while _opened:
        store = _opened.pop()
        if not store._closing:
            await store.close()
