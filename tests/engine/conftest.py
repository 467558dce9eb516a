"""A fresh scene for every test."""

from __future__ import annotations

import pytest

from tests.engine.support.scene import Scene, a_scene
from tests.support.ephemeral import recycle_ephemeral_stores as recycle_ephemeral_stores


@pytest.fixture
async def scene() -> Scene:
    return a_scene()
