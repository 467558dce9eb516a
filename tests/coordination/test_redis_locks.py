"""Locks between servers, lent by a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from penstock.coordination.redis_locks import PREFIX, RedisCoordination
from penstock.errors import Reason, Unavailable
from penstock.ports.coordination import LOCK_TTL_S
from tests.coordination.conftest import Join
from tests.faults.deadlines import until
from tests.support.servers import crashable_redis


@pytest.fixture
async def outsider(redis_url: str) -> AsyncIterator[Redis]:
    """Somebody who looks at the keys themselves."""
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


class Visit:
    """A caller that takes a lock, and keeps it until told to leave."""

    def __init__(self, server: RedisCoordination, name: str = "desk") -> None:
        self.inside = asyncio.Event()
        self.may_leave = asyncio.Event()
        self.task = asyncio.create_task(self._visit(server, name))

    async def _visit(self, server: RedisCoordination, name: str) -> None:
        async with server.lock(name):
            self.inside.set()
            await self.may_leave.wait()

    async def leave(self) -> None:
        self.may_leave.set()
        await self.task


async def test_of_two_servers_one_waits_until_the_other_has_left(redis_url: str, join: Join):
    one, other = await join(redis_url), await join(redis_url)
    first = Visit(one)
    await first.inside.wait()
    second = Visit(other)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not second.inside.is_set()
    await first.leave()
    await second.inside.wait()
    await second.leave()


async def test_callers_of_one_server_share_its_lock(redis_url: str, join: Join):
    server = await join(redis_url)
    first, second = Visit(server), Visit(server)
    await asyncio.gather(first.inside.wait(), second.inside.wait())
    await first.leave()
    await second.leave()


async def test_locks_of_two_names_do_not_meet(redis_url: str, join: Join):
    first, second = Visit(await join(redis_url), "one"), Visit(await join(redis_url), "two")
    await asyncio.gather(first.inside.wait(), second.inside.wait())
    await first.leave()
    await second.leave()


async def test_a_server_whose_callers_keep_coming_lets_others_have_their_turn(redis_url: str, join: Join):
    busy, patient = await join(redis_url), await join(redis_url)
    ended = asyncio.Event()

    async def keep_coming() -> None:
        while not ended.is_set():
            async with busy.lock("desk"):
                await asyncio.sleep(0.01)

    crowd = [asyncio.create_task(keep_coming()) for _ in range(3)]
    try:
        async with patient.lock("desk"):
            pass
    finally:
        ended.set()
        await asyncio.gather(*crowd)


async def test_a_lock_that_somebody_keeps_is_refused_after_a_bounded_wait(
    redis_url: str, join: Join, outsider: Redis
):
    server = await join(redis_url)
    await outsider.set(f"{PREFIX}desk", "a server that stands still", px=60_000)
    with pytest.raises(Unavailable) as refused:
        async with server.lock("desk"):
            pass
    assert refused.value.reason is Reason.COORDINATION_UNAVAILABLE
    assert (refused.value.details["outcome"], refused.value.details["retry_after_seconds"]) == ("none", 1)
    assert server.is_supported, "somebody else's lock is no outage"


async def test_a_lock_ends_by_itself(redis_url: str, join: Join, outsider: Redis):
    visit = Visit(await join(redis_url))
    await visit.inside.wait()
    assert 0 < await outsider.pttl(f"{PREFIX}desk") <= LOCK_TTL_S * 1000
    await visit.leave()


async def test_a_lock_that_ended_and_is_somebody_elses_by_now_is_not_released(
    redis_url: str, join: Join, outsider: Redis
):
    server = await join(redis_url)
    visit = Visit(server)
    await visit.inside.wait()
    await outsider.set(f"{PREFIX}desk", "another server's token", px=60_000)
    await visit.leave()
    await server.close()
    assert await outsider.get(f"{PREFIX}desk") == "another server's token"


async def test_a_caller_that_goes_away_leaves_no_lock_behind(redis_url: str, join: Join, outsider: Redis):
    server = await join(redis_url)
    visit = Visit(server)
    await visit.inside.wait()
    visit.task.cancel()
    await asyncio.wait([visit.task])
    await server.close()
    assert await outsider.get(f"{PREFIX}desk") is None


async def test_a_caller_that_goes_away_in_line_stands_in_nobodys_way(
    redis_url: str, join: Join, outsider: Redis
):
    one, other = await join(redis_url), await join(redis_url)
    first = Visit(one)
    await first.inside.wait()
    gone, patient = Visit(other), Visit(other)
    await asyncio.sleep(0)
    gone.task.cancel()
    await asyncio.wait([gone.task])
    await first.leave()
    await patient.inside.wait()
    await patient.leave()
    await one.close()
    await other.close()
    assert await outsider.get(f"{PREFIX}desk") is None


async def test_a_redis_that_was_emptied_lends_locks_as_before(redis_url: str, join: Join, outsider: Redis):
    server = await join(redis_url)
    first = Visit(server)
    await first.inside.wait()
    await outsider.flushall()
    await first.leave()
    async with server.lock("desk"):
        assert server.is_supported


@pytest.mark.faults
async def test_a_redis_that_is_killed_is_noticed_and_so_is_its_return(join: Join):
    with crashable_redis() as redis:
        server = await join(redis.server.url)
        assert server.is_supported
        redis.kill()
        await until("it is noticed", lambda: not server.is_supported)
        with pytest.raises(Unavailable) as refused:
            async with server.lock("desk"):
                pass
        assert refused.value.reason is Reason.COORDINATION_UNAVAILABLE
        redis.start()
        await until("its return is noticed", lambda: server.is_supported)
        async with server.lock("desk"):
            pass


@pytest.mark.faults
async def test_a_redis_that_stands_still_is_noticed_and_so_is_that_it_goes_on(join: Join):
    with crashable_redis() as redis:
        server = await join(redis.server.url)
        redis.pause()
        try:
            with pytest.raises(Unavailable):
                async with server.lock("desk"):
                    pass
            await until("it is noticed", lambda: not server.is_supported)
        finally:
            redis.resume()
        await until("it goes on", lambda: server.is_supported)


@pytest.mark.faults
async def test_a_redis_that_answers_but_takes_no_writes_lends_no_locks(join: Join):
    with crashable_redis() as redis:
        server = await join(redis.server.url)
        async with Redis.from_url(redis.server.url) as client:
            await client.config_set("min-replicas-to-write", 1)
            await until("it is noticed", lambda: not server.is_supported)
            assert await client.ping()
            await client.config_set("min-replicas-to-write", 0)
        await until("it takes writes again", lambda: server.is_supported)


@pytest.mark.faults
async def test_a_server_starts_without_its_redis_and_finds_it_later(join: Join):
    with crashable_redis() as redis:
        redis.kill()
        server = await join(redis.server.url)
        assert not server.is_supported
        redis.start()
        await until("it is found", lambda: server.is_supported)
