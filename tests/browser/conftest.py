"""One browser a test process, and pages that are watched."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.support.browser import WatchedBrowsing, playwright, start_browser


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """The browser that all tests of a process share; contexts keep them apart."""
    async with playwright() as driver:
        yield await start_browser(driver)


@pytest.fixture
async def browsing(chromium: Browser) -> AsyncIterator[WatchedBrowsing]:
    """Open pages with `await browsing.open(url)`; at the end nothing may have gone wrong on them."""
    watched = WatchedBrowsing(chromium)
    yield watched
    await watched.close()
