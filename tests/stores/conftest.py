"""The stores under test, each empty and ready."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from penstock.ports.store import Store
from penstock.stores.sql import statement_merger
from penstock.wakeups.local import LocalWakeups
from tests.stores.shared_database import SharedDatabase
from tests.support.builders import NOW_MS
from tests.support.clock import ManualClock
from tests.support.servers import Server, drop_database

HOLD_MS = 120_000
"""How long a write may hold its locks, though this process is suspended inside it."""


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the SQLite store; PostgreSQL has its own."""
    return ManualClock(NOW_MS)


@pytest.fixture(autouse=True)
def _merge_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge statements from the first time on, so that every test exercises it."""
    monkeypatch.setattr(statement_merger, "HOT_AFTER", 0)


@pytest.fixture
def wakeups() -> LocalWakeups:
    return LocalWakeups()


@pytest.fixture(scope="session")
async def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the current schema and no rows, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "penstock.db"
    await (await open_store(path, ManualClock(NOW_MS), LocalWakeups())).close()
    return path


@pytest.fixture(scope="session")
async def shared_database(postgres: Server) -> AsyncIterator[SharedDatabase]:
    shared_database = await SharedDatabase.made_on(postgres)
    yield shared_database
    await drop_database(postgres, shared_database.url)


@pytest.fixture
async def shared_database_url(shared_database: SharedDatabase) -> AsyncIterator[str]:
    """A database with the current schema and no rows, shared with other tests one after the other."""
    yield shared_database.url
    await shared_database.empty()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path, migrated_file: Path) -> str | Path:
    """Where the store keeps its rows: in a file, or in an empty database."""
    if request.param == "sqlite":
        return Path(shutil.copy(migrated_file, tmp_path))
    url: str = request.getfixturevalue("shared_database_url")
    return url


@pytest.fixture
async def store(address: str | Path, clock: ManualClock, wakeups: LocalWakeups) -> AsyncIterator[Store]:
    opened = await open_store(address, clock, wakeups)
    yield opened
    await opened.close()


@pytest.fixture
async def reopened(
    store: Store, address: str | Path, clock: ManualClock, wakeups: LocalWakeups
) -> AsyncIterator[Callable[[], Awaitable[Store]]]:
    """Closes the store, and opens it again where it keeps its rows."""
    stores: list[Store] = []

    async def reopen() -> Store:
        await store.close()
        stores.append(await open_store(address, clock, wakeups))
        return stores[-1]

    yield reopen
    for each in stores:
        await each.close()


async def open_store(
    address: str | Path, clock: ManualClock, wakeups: LocalWakeups, *, journals: bool = False
) -> Store:
    match address:
        case Path():
            from tests.support.checked_store import CheckedStore

            return await CheckedStore.open(address, clock, wakeups, journals=journals)
        case str():
            from penstock.stores.postgres.schema import migrate
            from penstock.stores.postgres.store import PostgresStore

            await migrate(address)
            # A busy machine may suspend this process within a transaction; what then happens is tested elsewhere.
            return await PostgresStore.open(address, wakeups, hold_ms=HOLD_MS, journals=journals)
