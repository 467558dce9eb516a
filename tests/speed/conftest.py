"""A database for each module: its tests watch one engine after it has warmed up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.servers import Server, create_database, drop_database


@pytest.fixture(scope="module")
async def module_url(postgres: Server) -> AsyncIterator[str]:
    url = await create_database(postgres)
    yield url
    await drop_database(postgres, url)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    """Where the store keeps its rows: in a file, or in a database that is empty."""
    if request.param == "sqlite":
        return tmp_path_factory.mktemp("speed") / "penstock.db"
    url: str = request.getfixturevalue("module_url")
    return url
