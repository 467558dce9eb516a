"""One server shared by the SDK tests, with a namespace and a client for each test.

A module that needs other settings, or kills its server, starts its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from penstock.sdk.clients.client import Client
from penstock.sdk.connection.transport import HttpTransport
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import connected, new_namespace, serving
from tests.support import unknown_fields


@pytest.fixture(scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with serving(tmp_path_factory.mktemp("sdk")) as made:
        yield made


@pytest.fixture
async def scene(cluster: Cluster) -> Cluster:
    return await new_namespace(cluster)


@pytest.fixture
async def client(scene: Cluster) -> AsyncIterator[Client]:
    async with await connected(scene) as made:
        yield made


@pytest.fixture(autouse=True)
def no_unknown_fields() -> Iterator[None]:
    """Nothing that our SDK sends in any test is unknown to the server."""
    with unknown_fields.none_are_sent(HttpTransport, "_read"):
        yield
