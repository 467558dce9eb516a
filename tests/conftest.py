"""Fixtures that every room may use: real servers, started on first use and once a session."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis as redis_client
from hypothesis import settings

from tests.support.chromium import describe_chromium
from tests.support.effort import times
from tests.support.servers import (
    Server,
    create_database,
    describe_servers,
    drop_database,
    postgres_server,
    redis_server,
)

# A busy machine is no reason to fail.
settings.register_profile("house", deadline=None, max_examples=times(30))
settings.load_profile("house")


def pytest_configure() -> None:
    """Give the tests a home they may enter: database clients look there for keys and fail if they may not."""
    if not os.access(Path("~").expanduser(), os.X_OK):
        os.environ["HOME"] = tempfile.gettempdir()
    # Shells start background jobs with SIGINT ignored, and children inherit that; tests send it to theirs.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> list[str]:
    return [*(f"server: {line}" for line in describe_servers()), f"browser: {describe_chromium()}"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The PostgreSQL that all tests of a session share."""
    with postgres_server() as server:
        yield server


@pytest.fixture
async def postgres_url(postgres: Server) -> AsyncIterator[str]:
    """A fresh, empty database of the test's own."""
    url = await create_database(postgres)
    yield url
    await drop_database(postgres, url)


@pytest.fixture(scope="session")
def redis() -> Iterator[Server]:
    """The Redis or Valkey that all tests of a session share."""
    with redis_server() as server:
        yield server


@pytest.fixture
def redis_url(redis: Server) -> str:
    """An empty Redis, unless it is somebody else's, which is left as it is."""
    if redis.pid is not None:
        with redis_client.Redis.from_url(redis.url) as client:
            client.flushall()
    return redis.url
