"""The whole application in process, on each store; a live server for tests of sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock import assembly
from penstock.settings import load
from tests.server.client import Client
from tests.support import live
from tests.support.servers import Server, create_database, drop_database

SETTINGS = live.TOKENS | {"DW_WORKER_POLL_TIMEOUT": "1"}


async def _serving(database_url: str) -> AsyncIterator[Client]:
    settings = load(SETTINGS | {"DW_DATABASE_URL": database_url})
    async with assembly.assembled(settings) as server:
        client = Client(server.application)
        for name in ("elsewhere", "quiet"):
            (await client.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
        yield client


@pytest.fixture(scope="session")
async def penstock() -> AsyncIterator[Client]:
    """A server on an ephemeral store, for errors that never reach a store."""
    async for client in _serving("memory://"):
        yield client


@pytest.fixture(scope="session")
async def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    async for client in _serving(f"sqlite:///{tmp_path_factory.mktemp('server') / 'penstock.db'}"):
        yield client


@pytest.fixture(scope="session")
async def on_postgres(postgres: Server) -> AsyncIterator[Client]:
    url = await create_database(postgres)
    await _migrate(url)
    async for client in _serving(url):
        yield client
    await drop_database(postgres, url)


async def _migrate(url: str) -> None:
    from penstock.stores.postgres.schema import migrate

    await migrate(url)


@pytest.fixture(params=["sqlite", "postgres"])
def everywhere(request: pytest.FixtureRequest) -> Client:
    """A server on each store in turn: for input that a database might trip over."""
    client: Client = request.getfixturevalue(f"on_{request.param}")
    return client


@pytest.fixture(scope="session")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[live.LiveServer]:
    folder: Path = tmp_path_factory.mktemp("live")
    with live.running(live.server(folder, f"sqlite:///{folder / 'penstock.db'}")) as (server,):
        yield server
