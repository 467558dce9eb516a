"""Servers that lend each other locks through one real Redis."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from penstock.coordination.redis_locks import RedisCoordination, connect
from penstock.system_clock import SystemEntropy

_nodes = itertools.count(1)
Join = Callable[[str], Awaitable[RedisCoordination]]


@pytest.fixture
async def join() -> AsyncIterator[Join]:
    """Have one more server join at the Redis of that URL."""
    async with contextlib.AsyncExitStack() as stack:

        async def one_more(url: str) -> RedisCoordination:
            client = connect(url)
            stack.push_async_callback(client.aclose)
            joined = RedisCoordination(client, f"node-{next(_nodes)}", SystemEntropy())
            await joined.start()
            stack.push_async_callback(joined.close)
            return joined

        yield one_more
