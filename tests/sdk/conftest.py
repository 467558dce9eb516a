"""One server that the tests of the SDK share, a namespace of its own for each test, and a client there.

A module whose server is to have other settings, or is to be killed, makes one by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.sdk.client import Client
from tests.acceptance.cluster import Cluster
from tests.sdk.serving import connected, new_namespace, serving


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
