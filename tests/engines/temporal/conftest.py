"""One Temporal server for all tests of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from penstock import Client
from tests.support.temporal import TemporalServer, temporal_server


@pytest.fixture(scope="session")
def temporal() -> Iterator[TemporalServer]:
    with temporal_server() as server:
        yield server


@pytest.fixture
async def temporal_client(temporal: TemporalServer) -> AsyncIterator[Client]:
    async with await Client.connect(temporal.url) as client:
        yield client
