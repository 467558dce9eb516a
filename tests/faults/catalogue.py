"""Fixtures of the catalogue tests: servers with short leases, and a namespace per test."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from tests.acceptance.cluster import Cluster
from tests.acceptance.conftest import serving
from tests.support.servers import Server

_numbers = itertools.count(1)


@contextlib.asynccontextmanager
async def clusters(
    topology: str, folder: Path, postgres: Server, settings: Mapping[str, str]
) -> AsyncIterator[Cluster]:
    """Real servers of one topology, stopped after the block."""
    async with serving(topology, folder, postgres, settings) as cluster:
        yield cluster


async def apart(cluster: Cluster) -> Cluster:
    """The cluster with an empty namespace."""
    name = f"fault-{next(_numbers)}"
    (await cluster.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
    return cluster.at(name)


def said(cluster: Cluster, event: str) -> list[dict[str, Any]]:
    """Log lines of the servers with an event, in the namespace of the cluster."""
    lines: list[dict[str, Any]] = []
    for server in cluster.servers:
        for text in server.log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(text))
    return [
        line
        for line in lines
        if isinstance(line, dict)
        and line.get("event") == event
        and line.get("namespace") == cluster.namespace
    ]
