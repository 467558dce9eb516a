"""An environment for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from penstock.testing import WorkflowEnvironment


@pytest.fixture
async def env() -> AsyncIterator[WorkflowEnvironment]:
    """Time is skipped, and waits in vain fail immediately."""
    async with await WorkflowEnvironment.start_time_skipping(patience=timedelta(0)) as started:
        yield started
