"""Wakeups between servers over a real Redis: late when it is away, never lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from redis.asyncio import Redis

from penstock.coordination.redis_locks import connect
from penstock.wakeups.local import LocalWakeups
from penstock.wakeups.redis import WAITING_MAX, RedisWakeups
from tests.support.patience import PATIENCE_S
from tests.support.servers import CrashableRedis, crashable_redis

_channels = itertools.count(1)
BELLS = ("queue:1", "queue:2", "queries:default:q", "the end")


class Node:
    """One server, and which bells rang at it."""

    def __init__(self, wakeups: RedisWakeups) -> None:
        self.wakeups = wakeups
        self.heard: list[str] = []
        self._changed = asyncio.Event()
        for topic in BELLS:
            wakeups.listen(topic, self._hears(topic))

    def _hears(self, topic: str) -> Callable[[], None]:
        def hear() -> None:
            self.heard.append(topic)
            self._changed.set()

        return hear

    async def hears(self, topic: str) -> None:
        """Wait until the bell has rung here, since it was last forgotten."""
        async with asyncio.timeout(PATIENCE_S):
            while topic not in self.heard:
                self._changed.clear()
                await self._changed.wait()


Nodes = Callable[[str], Node]


@pytest.fixture
async def node() -> AsyncIterator[Nodes]:
    """Servers of one cluster at the Redis of that URL."""
    channel = f"test:wakeups:{next(_channels)}"
    names = itertools.count(1)
    async with contextlib.AsyncExitStack() as stack:

        def one_more(url: str) -> Node:
            client = connect(url)
            stack.push_async_callback(client.aclose)
            wakeups = RedisWakeups(client, channel, f"node-{next(names)}", LocalWakeups())
            wakeups.start()
            stack.push_async_callback(wakeups.close)
            return Node(wakeups)

        yield one_more


async def quiet(*nodes: Node) -> None:
    """Wait until each hears the others: it rings all its bells when it begins to hear."""
    for each in nodes:
        await each.hears("the end")
    for each in nodes:
        each.heard.clear()


async def test_a_bell_rings_here_at_once_and_at_the_others_soon(redis_url: str, node: Nodes):
    here, there = node(redis_url), node(redis_url)
    await quiet(here, there)
    here.wakeups.notify(["queue:1", "queue:1"])
    assert here.heard == ["queue:1"]
    await there.hears("queue:1")
    assert there.heard == ["queue:1"]


async def test_a_server_does_not_hear_its_own_bells_twice(redis_url: str, node: Nodes):
    here, there = node(redis_url), node(redis_url)
    await quiet(here, there)
    here.wakeups.notify(["queue:1"])
    await there.hears("queue:1")
    there.wakeups.notify(["the end"])
    await here.hears("the end")
    assert here.heard == ["queue:1", "the end"]


async def test_thousands_of_bells_arrive(redis_url: str, node: Nodes):
    here, there = node(redis_url), node(redis_url)
    await quiet(here, there)
    here.wakeups.notify([*(f"run:{number}" for number in range(3_000)), "queue:2"])
    await there.hears("queue:2")


async def test_whoever_begins_to_hear_looks_everywhere_once(redis_url: str, node: Nodes):
    late = node(redis_url)
    await late.hears("the end")
    assert sorted(late.heard) == sorted(BELLS)


@pytest.fixture
def redis_of_its_own() -> Iterator[CrashableRedis]:
    with crashable_redis() as redis:
        yield redis


@pytest.mark.faults
async def test_bells_rung_while_redis_is_dead_arrive_when_it_is_back(
    redis_of_its_own: CrashableRedis, node: Nodes
):
    url = redis_of_its_own.server.url
    here, there = node(url), node(url)
    await quiet(here, there)
    redis_of_its_own.kill()
    here.wakeups.notify(["queue:1"])
    assert here.heard == ["queue:1"]
    redis_of_its_own.start()
    await there.hears("queue:1")


@pytest.mark.faults
async def test_everybody_looks_once_when_redis_is_back(redis_of_its_own: CrashableRedis, node: Nodes):
    url = redis_of_its_own.server.url
    here = node(url)
    await quiet(here)
    redis_of_its_own.kill()
    redis_of_its_own.start()
    await here.hears("the end")
    assert sorted(here.heard) == sorted(BELLS)


@pytest.mark.faults
async def test_a_server_that_alone_was_cut_off_still_tells_the_others(redis_url: str, node: Nodes):
    here, there = node(redis_url), node(redis_url)
    await quiet(here, there)
    async with Redis.from_url(redis_url, decode_responses=True) as outsider:
        await outsider.client_kill_filter(_type="normal", skipme=True)
    here.wakeups.notify(["queue:1"])
    await there.hears("queue:1")


@pytest.mark.faults
async def test_bells_beyond_counting_become_one_that_means_all(redis_of_its_own: CrashableRedis, node: Nodes):
    url = redis_of_its_own.server.url
    here, there = node(url), node(url)
    await quiet(here, there)
    redis_of_its_own.pause()
    try:
        for start in range(0, 2 * WAITING_MAX, 1_000):
            here.wakeups.notify([f"run:{number}" for number in range(start, start + 1_000)])
        here.wakeups.notify(["queue:2"])
    finally:
        redis_of_its_own.resume()
    await there.hears("queue:2")


@pytest.mark.faults
async def test_wakeups_end_at_once_also_when_redis_is_dead(node: Nodes):
    with crashable_redis() as redis:
        here = node(redis.server.url)
        await quiet(here)
        redis.kill()
        here.wakeups.notify(["queue:1"])
        async with asyncio.timeout(PATIENCE_S):
            await here.wakeups.close()
