"""A real server for each test module of the SDK, and a namespace for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from penstock.sdk.clients.client import Client
from tests.acceptance.cluster import Cluster
from tests.support.live import running, server

OPERATOR, WORKER = "operator-secret", "worker-secret"
_numbers = itertools.count(1)


@asynccontextmanager
async def serving(folder: Path, **settings: str) -> AsyncIterator[Cluster]:
    """Run one server on SQLite for the block."""
    made = server(folder, f"sqlite:///{folder}/penstock.db", settings=settings)
    with running(made):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield Cluster([made], session)


async def new_namespace(cluster: Cluster) -> Cluster:
    name = f"sdk-{next(_numbers)}"
    (await cluster.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
    return cluster.at(name)


async def connected(scene: Cluster, **options: Any) -> Client:
    """A client in the scene's namespace with operator and worker permissions."""
    tokens = {"control_token": OPERATOR, "worker_token": WORKER}
    return await Client.connect(scene.first.url, namespace=scene.namespace, **(tokens | options))
