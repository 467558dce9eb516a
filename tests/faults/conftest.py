"""Databases for fault tests: a SQLite file, or a database on a real PostgreSQL, migrated."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.ephemeral import recycle_ephemeral_stores as recycle_ephemeral_stores
from tests.support.live import migrate
from tests.support.servers import Server, create_database, drop_database


@pytest.fixture(scope="session")
async def migrated_template(postgres: Server) -> AsyncIterator[str]:
    """A template database with the schema."""
    url = await create_database(postgres)
    with tempfile.TemporaryDirectory() as folder:
        migrate(Path(folder), url)
    yield urlsplit(url).path.removeprefix("/")
    await drop_database(postgres, url)


@pytest.fixture
async def postgres_database(postgres: Server, migrated_template: str) -> AsyncIterator[str]:
    """A database for the test, with the schema and no rows."""
    url = await create_database(postgres, template=migrated_template)
    yield url
    await drop_database(postgres, url)


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/penstock.db"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Runs the test on both stores."""
    return str(request.getfixturevalue(f"{request.param}_database"))
