"""Storage for the clusters of this folder: a directory that their servers share, and an S3-compatible server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.acceptance.cluster import Cluster
from tests.acceptance.payloads.storages import FOLDER, S3, Storage


@pytest.fixture(scope="session", autouse=True)
def storage_servers() -> Iterator[None]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        S3.start()
        yield
    finally:
        S3.stop()
        shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.fixture(params=["local", "s3"])
async def storage(request: pytest.FixtureRequest, scene: Cluster) -> Storage:
    """The storage of the test's namespace, turned on with a threshold of 4 KiB."""
    assert scene.namespace is not None
    made = Storage(request.param, scene.namespace)
    await made.turn_on(scene)
    return made
