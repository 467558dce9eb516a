"""A fresh scene for every test."""

from __future__ import annotations

import pytest

from tests.engine.support.scene import Scene, a_scene


@pytest.fixture
def scene() -> Scene:
    return a_scene()
