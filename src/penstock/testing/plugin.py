"""The pytest plugin: fixtures `penstock_env` and `penstock_client` for async tests.

Every pytest in an environment with Penstock installed loads it, so it imports nothing else itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.sdk.clients.client import Client
    from penstock.testing.environment import WorkflowEnvironment

_fixture: Callable[..., Any]
try:
    from pytest_asyncio import fixture as _fixture
except ImportError:

    def _fixture(made: Callable[..., Any]) -> Any:
        """Fail tests that use an async fixture without pytest-asyncio, and say why."""

        def missing() -> None:
            pytest.fail(
                f"{made.__name__} needs pytest-asyncio (pip install pytest-asyncio). Without it, start a "
                "WorkflowEnvironment inside of asyncio.run.",
                pytrace=False,
            )

        return pytest.fixture(name=made.__name__)(missing)


@_fixture
async def penstock_env() -> AsyncIterator[WorkflowEnvironment]:
    """An in-process server with time skipping, for one test."""
    from penstock.testing.environment import WorkflowEnvironment

    async with await WorkflowEnvironment.start_time_skipping() as env:
        yield env


@_fixture
async def penstock_client(penstock_env: WorkflowEnvironment) -> Client:
    """The client of `penstock_env`."""
    return penstock_env.client
