"""A Redis that is flushed, killed or frozen: clients get a reason, no task is lost, and servers recover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from redis.asyncio import Redis

from tests.acceptance.cluster import Cluster, Hand, Reply
from tests.acceptance.messaging.test_queries import a_waiting_run, answer, ask
from tests.faults.deadlines import until
from tests.support.live import running, server
from tests.support.servers import CrashableRedis, crashable_redis

pytestmark = pytest.mark.faults

TakeAway = Callable[[CrashableRedis], None]
BringBack = Callable[[CrashableRedis], None]
OUTAGES = {
    "killed": (CrashableRedis.kill, CrashableRedis.start),
    "stands still": (CrashableRedis.pause, CrashableRedis.resume),
}


@dataclass(frozen=True)
class Scene:
    """Two servers on one PostgreSQL that coordinate through a Redis of their own."""

    cluster: Cluster
    redis: CrashableRedis

    async def ready_at(self, number: int) -> Reply:
        return await self.cluster.get("/api/ready", server=self.cluster.servers[number])

    async def all_coordinated(self) -> None:
        await self._cache_is("ok")

    async def none_coordinated(self) -> None:
        await self._cache_is("unavailable")

    async def _cache_is(self, status: str) -> None:
        """Every server stays ready, and finally reports this status of its cache."""

        async def so() -> bool:
            replies = [
                (await self.ready_at(number)).expect(200) for number in range(len(self.cluster.servers))
            ]
            return all(reply["checks"]["cache"]["status"] == status for reply in replies)

        await until(f"every server says that its cache is {status}", so)

    async def queries(self) -> dict[str, object]:
        described = (await self.cluster.get("/api/task-queues/q")).expect(200)
        return dict(described["admission"]["query_tasks"])


@pytest.fixture
def own_redis() -> Iterator[CrashableRedis]:
    with crashable_redis() as redis:
        yield redis


@pytest.fixture
async def scene(own_redis: CrashableRedis, postgres_database: str, tmp_path: Path) -> AsyncIterator[Scene]:
    settings = {
        "DW_COORDINATION": "redis",
        "DW_REDIS_URL": own_redis.server.url,
        "DW_QUERY_TASK_TIMEOUT": "60",
    }
    servers = [
        server(tmp_path, postgres_database, name=f"server-{number}", settings=settings) for number in (0, 1)
    ]
    with running(*servers):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            found = Scene(Cluster(servers, session), own_redis)
            await found.all_coordinated()
            yield found


async def a_whole_run(cluster: Cluster, hand: Hand, workflow_id: str) -> None:
    """Started at one server and done at another."""
    first, last = cluster.first, cluster.last
    taking = asyncio.create_task(hand.take(server=last))
    (await cluster.start(workflow_id, server=first)).expect(201)
    (await hand.finish(await taking, "done")).expect(200)
    assert (await cluster.describe(workflow_id))["status"] == "completed"


async def test_readiness_names_redis_as_what_coordinates(scene: Scene):
    ready = (await scene.ready_at(0)).expect(200)
    assert ready["checks"]["cache"] == {"status": "ok", "driver": "redis"}


@pytest.mark.parametrize(("take_away", "bring_back"), OUTAGES.values(), ids=list(OUTAGES))
async def test_while_redis_is_away_queries_are_refused_by_name_and_work_goes_on(
    scene: Scene, take_away: TakeAway, bring_back: BringBack
):
    cluster = scene.cluster
    hand = await a_waiting_run(cluster)
    take_away(scene.redis)
    await scene.none_coordinated()
    cache = (await scene.ready_at(1))["checks"]["cache"]
    assert cache == {"status": "unavailable", "driver": "redis", "reason": "coordination_unavailable"}
    health = (await cluster.get("/api/health")).expect(200)
    assert health["checks"] == {"database": "ok", "cache": "unavailable"}

    refused = (await ask(cluster)).expect(503, "query_task_queue_unavailable")
    assert refused.headers["Retry-After"] == "1"
    polled = (await hand.poll_once("query", 30)).expect(503, "query_task_queue_unavailable")
    assert (polled["poll_status"], polled["task"]) == ("unavailable", None)
    section = await scene.queries()
    assert (section["status"], section["lock_supported"]) == ("unavailable", False)

    for number in range(3):
        await a_whole_run(cluster, hand, f"while-{number}")

    bring_back(scene.redis)
    await scene.all_coordinated()
    section = await scene.queries()
    assert (section["status"], section["lock_supported"]) == ("accepting", True)
    asked = ask(cluster)
    (await answer(hand, await hand.take("query"), result=7)).expect(200)
    assert (await asked).expect(200)["result"] == 7


async def test_what_one_server_rings_is_published_in_redis(scene: Scene):
    async with Redis.from_url(scene.redis.server.url, decode_responses=True) as client:
        radio = client.pubsub(ignore_subscribe_messages=True)
        await radio.subscribe("penstock:wakeups:0")
        (await scene.cluster.start("order-1")).expect(201)

        async def heard() -> bool:
            message = await radio.get_message(timeout=1)
            return message is not None and ",queue:" in message["data"]

        await until("the queue's bell is heard", heard)
        await radio.aclose()


async def test_a_query_that_waits_survives_a_redis_that_is_emptied(scene: Scene):
    hand = await a_waiting_run(scene.cluster)
    asked = ask(scene.cluster)

    async def waits() -> bool:
        return (await scene.queries())["approximate_pending_count"] == 1

    await until("the query waits", waits)
    async with Redis.from_url(scene.redis.server.url) as client:
        await client.flushall()
    (await answer(hand, await hand.take("query"), result=7)).expect(200)
    assert (await asked).expect(200)["result"] == 7


async def test_a_query_that_waits_is_answered_though_redis_has_died(scene: Scene):
    hand = await a_waiting_run(scene.cluster)
    asked = ask(scene.cluster)

    async def waits() -> bool:
        return (await scene.queries())["approximate_pending_count"] == 1

    await until("the query waits", waits)
    scene.redis.kill()
    await scene.none_coordinated()
    (await answer(hand, await hand.take("query"), result=7)).expect(200)
    assert (await asked).expect(200)["result"] == 7


@pytest.mark.parametrize(("take_away", "bring_back"), OUTAGES.values(), ids=list(OUTAGES))
async def test_while_redis_is_away_a_line_with_a_limit_gives_nothing_and_says_why(
    scene: Scene, take_away: TakeAway, bring_back: BringBack
):
    cluster = scene.cluster
    (await cluster.config(max_running=2)).expect(200)
    hand = await cluster.worker("w1")
    for number in range(3):
        (await cluster.start_activity(f"charge-{number}")).expect(201)
    first = await hand.take("activity")
    take_away(scene.redis)
    await scene.none_coordinated()

    held = (await hand.poll_once("activity", 1)).expect(200)
    assert (held["poll_status"], held["task"]) == ("unavailable", None)
    (await hand.finish(first)).expect(200)
    await a_whole_run(cluster, hand, "line-without-limits")

    bring_back(scene.redis)
    await scene.all_coordinated()
    rest = [await hand.take("activity"), await hand.take("activity")]
    for task in rest:
        (await hand.finish(task)).expect(200)


async def test_redis_that_dies_again_and_again_loses_no_task(scene: Scene):
    cluster = scene.cluster
    hand = await cluster.worker("w1")
    for number in range(3):
        scene.redis.kill()
        await a_whole_run(cluster, hand, f"dead-{number}")
        scene.redis.start()
        await a_whole_run(cluster, hand, f"back-{number}")
    await scene.all_coordinated()


async def test_a_server_starts_and_works_without_its_redis(
    own_redis: CrashableRedis, postgres_database: str, tmp_path: Path
):
    url = own_redis.server.url
    own_redis.kill()
    settings = {"DW_COORDINATION": "redis", "DW_REDIS_URL": url}
    with running(server(tmp_path, postgres_database, settings=settings)) as servers:
        async with aiohttp.ClientSession() as session:
            alone = Scene(Cluster(servers, session), own_redis)
            await alone.none_coordinated()
            hand = await alone.cluster.worker("w1")
            await a_whole_run(alone.cluster, hand, "order-1")
            own_redis.start()
            await alone.all_coordinated()


async def test_a_stopped_server_ends_in_order_while_redis_stands_still(scene: Scene):
    scene.redis.pause()
    try:
        assert await asyncio.to_thread(scene.cluster.first.stop) == 0
    finally:
        scene.redis.resume()
