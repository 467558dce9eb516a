"""One suite on three topologies: SQLite, PostgreSQL, and three servers on one PostgreSQL."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import aiohttp
import httpx
import pytest

from tests.acceptance.cluster import Cluster
from tests.support import unknown_fields
from tests.support.live import migrate, running, server
from tests.support.servers import Server, create_database, drop_database

TOPOLOGIES = {"sqlite": 1, "postgres": 1, "postgres-3": 3}
USUAL = tuple(TOPOLOGIES) if os.environ.get("PENSTOCK_TEST_TOPOLOGIES") == "all" else ("sqlite", "postgres-3")
"""Three servers on PostgreSQL cover what one shows; a single one is only tested on request."""
TRUSTS_FORWARDING = {"DW_TRUSTED_PROXIES": "127.0.0.1"}
"""Lets tests use many client addresses, so that failed logins of one do not throttle another."""
_numbers = itertools.count(1)


@contextlib.asynccontextmanager
async def database(topology: str, folder: Path, postgres: Server) -> AsyncIterator[str]:
    """The URL of an empty database with the current schema, dropped after the block."""
    if topology == "sqlite":
        yield f"sqlite:///{folder}/penstock.db"
        return
    url = await create_database(postgres)
    try:
        migrate(folder, url)
        yield url
    finally:
        await drop_database(postgres, url)


@contextlib.asynccontextmanager
async def serving(
    topology: str, folder: Path, postgres: Server, settings: Mapping[str, str]
) -> AsyncIterator[Cluster]:
    """A cluster of real server processes, stopped after the block."""
    async with database(topology, folder, postgres) as url:
        servers = [
            server(folder, url, name=f"server-{number}", settings=TRUSTS_FORWARDING | dict(settings))
            for number in range(TOPOLOGIES[topology])
        ]
        with running(*servers):
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                yield Cluster(servers, session)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("acceptance")


@pytest.fixture(scope="session")
async def plain_clusters() -> AsyncIterator[tuple[contextlib.AsyncExitStack, dict[str, Cluster]]]:
    """Clusters with default settings, shared by modules; tests use separate namespaces."""
    async with contextlib.AsyncExitStack() as stack:
        yield stack, {}


@pytest.fixture(scope="module", params=USUAL)
async def cluster(
    request: pytest.FixtureRequest,
    postgres: Server,
    tmp_path_factory: pytest.TempPathFactory,
    plain_clusters: tuple[contextlib.AsyncExitStack, dict[str, Cluster]],
) -> AsyncIterator[Cluster]:
    """A cluster of one topology with the module's `SETTINGS`; without settings it is shared by all modules."""
    topology, settings = request.param, getattr(request.module, "SETTINGS", {})
    folder = tmp_path_factory.mktemp(topology)
    if settings:
        async with serving(topology, folder, postgres, settings) as made:
            yield made
        return
    stack, running_already = plain_clusters
    if topology not in running_already:
        making = serving(topology, folder, postgres, settings)
        running_already[topology] = await stack.enter_async_context(making)
    yield running_already[topology]


@pytest.fixture
async def scene(cluster: Cluster) -> Cluster:
    """The cluster with an empty namespace for the test."""
    name = f"scene-{next(_numbers)}"
    (await cluster.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
    return cluster.at(name)


@pytest.fixture(autouse=True)
def no_unknown_fields() -> Iterator[None]:
    """Nothing that the public SDK sends in any test causes a warning."""
    with unknown_fields.none_are_sent(httpx.Response, "json"):
        yield
