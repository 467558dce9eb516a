"""Servers with declared adapters, on each store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock import assembly
from penstock.settings import load
from tests.server.bridges.webhook import ADAPTERS, SECRETS
from tests.server.client import Client
from tests.support import live
from tests.support.servers import Server, create_database, drop_database


async def _serving(database_url: str) -> AsyncIterator[Client]:
    adapters = {"DW_BRIDGE_ADAPTERS": json.dumps(ADAPTERS)}
    place = {"DW_DATABASE_URL": database_url, "DW_TRUSTED_PROXIES": "127.0.0.1"}
    settings = load(live.TOKENS | SECRETS | adapters | place)
    async with assembly.assembled(settings) as server:
        client = Client(server.application)
        (await client.post("/api/namespaces", {"name": "shop"}, role="admin")).expect(201)
        yield client


@pytest.fixture(scope="session")
async def bridges_on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    folder: Path = tmp_path_factory.mktemp("bridges")
    async for client in _serving(f"sqlite:///{folder / 'penstock.db'}"):
        yield client


@pytest.fixture(scope="session")
async def bridges_on_postgres(postgres: Server) -> AsyncIterator[Client]:
    from penstock.stores.postgres.schema import migrate

    url = await create_database(postgres)
    await migrate(url)
    async for client in _serving(url):
        yield client
    await drop_database(postgres, url)


@pytest.fixture(params=["sqlite", "postgres"])
def penstock_with_adapters(request: pytest.FixtureRequest) -> Client:
    """A server with the adapters of `webhook.ADAPTERS`, on each store in turn."""
    client: Client = request.getfixturevalue(f"bridges_on_{request.param}")
    return client
