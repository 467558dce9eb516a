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
"""What one server on PostgreSQL shows, three show as well; it is tried by itself when asked for."""
TRUSTS_FORWARDING = {"DW_TRUSTED_PROXIES": "127.0.0.1"}
"""So that tests can come from many addresses, and failed logins of one do not throttle another."""
_numbers = itertools.count(1)


@contextlib.asynccontextmanager
async def database(topology: str, folder: Path, postgres: Server) -> AsyncIterator[str]:
    """The URL of an empty database with today's schema, as long as the block lasts."""
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
    """A cluster of real server processes, as long as the block lasts."""
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
    """The clusters with default settings, which modules share: tests keep apart by their namespaces."""
    async with contextlib.AsyncExitStack() as stack:
        yield stack, {}


@pytest.fixture(scope="module", params=USUAL)
async def cluster(
    request: pytest.FixtureRequest,
    postgres: Server,
    tmp_path_factory: pytest.TempPathFactory,
    plain_clusters: tuple[contextlib.AsyncExitStack, dict[str, Cluster]],
) -> AsyncIterator[Cluster]:
    """A cluster of one topology, with the module's `SETTINGS`; one without any is started once for all modules."""
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
    """The cluster, asked in an empty namespace of the test's own."""
    name = f"scene-{next(_numbers)}"
    (await cluster.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
    return cluster.at(name)


@pytest.fixture(autouse=True)
def no_unknown_fields() -> Iterator[None]:
    """Nothing that the public SDK sends in any test causes a warning."""
    with unknown_fields.none_are_sent(httpx.Response, "json"):
        yield
