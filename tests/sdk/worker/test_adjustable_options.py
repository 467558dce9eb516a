"""Adjusting a running worker: more slots, fewer slots, another rate."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import ActivityStart
from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.worker import Worker
from penstock.sdk.worker.claim_options import Claiming
from penstock.sdk.worker.error_policy import ErrorPolicy
from penstock.sdk.worker.matching.poller import PollContext, Poller
from penstock.sdk.worker.matching.rate_limiter import RateLimiter
from penstock.sdk.worker.matching.round_robin_poller import PolledQueue, RoundRobinPoller
from penstock.sdk.worker.matching.slots import Slots
from penstock.sdk.worker.matching.token_bucket import NANO
from penstock.sdk.worker.metrics import NullMetrics
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import connected, new_namespace
from tests.support.patience import PATIENCE, PATIENCE_S
from tests.support.sdk import Gates, Watched

QUEUE = "q"
LONG = PATIENCE
_ids = itertools.count(1)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with asyncio.timeout(PATIENCE_S), await connected(await new_namespace(cluster)) as made:
        yield made


async def send(client: Client, count: int) -> list[Any]:
    return [
        await client.start_activity(
            "pass_gate",
            f"{number}",
            id=f"a-{next(_ids)}",
            task_queue=QUEUE,
            start_to_close_timeout=LONG,
        )
        for number in range(count)
    ]


CLAIMS = {
    "polls": Claiming(),
    "rounds": Claiming(batch_max=2),
    "ahead": Claiming(prefetch=2, lease_ms=5000),
}


@pytest.mark.parametrize("claiming", CLAIMS.values(), ids=CLAIMS)
async def test_more_places_fill_at_once_and_fewer_wait_for_what_runs(
    client: Client, claiming: Claiming
) -> None:
    gates = Gates()
    async with Worker(
        client,
        task_queue=QUEUE,
        activities=[gates.pass_gate],
        max_concurrent_activities=1,
        claiming=claiming,
    ) as worker:
        handles = await send(client, 6)
        await gates.until(lambda: len(gates.running) == 1)
        await worker.adjust(max_concurrent_activities=4)
        await gates.until(lambda: len(gates.running) == 4)
        await worker.adjust(max_concurrent_activities=1)
        for name in sorted(gates.running)[:3]:
            gates.let_go(name)
        await gates.until(lambda: len(gates.running) == 1)
        assert len(gates.ran) == 4
        gates.peak = 0
        gates.open()
        for each in handles:
            await each.result()
        assert gates.peak == 1


@pytest.mark.parametrize("claiming", CLAIMS.values(), ids=CLAIMS)
async def test_what_comes_for_places_that_are_gone_is_handed_back(client: Client, claiming: Claiming) -> None:
    """Polls in flight when the number of slots shrinks may return as many tasks as before."""
    watched, gates = Watched(client.transport), Gates()
    own = Client(watched, namespace=client.namespace)
    async with Worker(
        own,
        task_queue=QUEUE,
        activities=[gates.pass_gate],
        max_concurrent_activities=6,
        claiming=claiming,
    ) as worker:
        await watched.until("/activity-tasks/poll")
        await worker.adjust(max_concurrent_activities=1)
        handles = await send(client, 6)
        await gates.until(lambda: len(gates.running) == 1)
        gates.open()
        for each in handles:
            assert await each.result() is not None
        assert gates.peak == 1
        described = await client.transport.control("GET", f"/workers/{worker.identity}", idempotent=True)
    assert described["max_concurrent_activity_tasks"] == 1, "what is claimed ahead takes no slot"


STORMS = {**CLAIMS, "one ahead": Claiming(prefetch=2, lease_ms=1000, most=1)}


@pytest.mark.parametrize("queues", [1, 2])
@pytest.mark.parametrize("claiming", STORMS.values(), ids=STORMS)
async def test_whatever_the_numbers_do_no_task_starts_without_a_place_and_each_runs_once(
    client: Client, claiming: Claiming, queues: int
) -> None:
    dice, ran = random.Random(7), list[int]()
    running, places, over, ended = 0, 4, 0, asyncio.Event()

    @activity.defn
    async def work(number: int) -> int:
        nonlocal running, over
        running += 1
        over += running > places
        ran.append(number)
        await asyncio.sleep(dice.random() / 100)  # it takes its time
        running -= 1
        ended.set()
        return number

    names = [f"{QUEUE}-{number}" for number in range(queues)]
    starts = [ActivityStart(work, number, task_queue=names[number % queues]) for number in range(60)]
    async with Worker(
        client, task_queues=names, activities=[work], max_concurrent_activities=places, claiming=claiming
    ) as worker:
        handles = await client.start_activities(starts)
        while len(ran) < len(starts):
            ended.clear()
            wanted = dice.randint(1, 8)
            places = max(places, wanted)
            await worker.adjust(
                max_concurrent_activities=wanted, max_activities_per_second=dice.choice([None, 300, 900])
            )
            places = wanted
            if len(ran) < len(starts):
                await ended.wait()
        results = [await each.result() for each in handles]
    assert (over, sorted(ran), results) == (0, list(range(60)), list(range(60)))


async def test_another_rate_holds_at_once_also_for_who_waits(client: Client) -> None:
    gates = Gates(opened=True)
    async with Worker(
        client, task_queue=QUEUE, activities=[gates.pass_gate], max_activities_per_second=0.001
    ) as worker:
        first, second = await send(client, 2)
        await first.result()
        await worker.adjust(max_activities_per_second=None, max_task_queue_activities_per_second=77)
        await second.result()
        said = await client.transport.control(
            "GET",
            f"/task-queues/{QUEUE}/config",
            idempotent=True,
            query={"task_queue_type": "activity"},
        )
    assert said["effective"]["queue_rps_limit"] == 77


async def test_workflow_and_local_places_are_resized_and_runs_end(client: Client) -> None:
    gates = Gates()

    @workflow.defn(name="Locally")
    class Locally:
        @workflow.run
        async def run(self) -> list[str]:
            calls = [
                workflow.execute_local_activity("pass_gate", f"{number}", start_to_close_timeout=LONG)
                for number in range(3)
            ]
            return list(await asyncio.gather(*calls))

    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Locally],
        activities=[gates.pass_gate],
        max_concurrent_local_activities=1,
        max_concurrent_workflow_tasks=3,
    ) as worker:
        handle = await client.start_workflow("Locally", id="l", task_queue=QUEUE, result_type=list[str])
        await gates.until(lambda: len(gates.running) == 1)
        await worker.adjust(max_concurrent_local_activities=3, max_concurrent_workflow_tasks=1)
        await gates.until(lambda: len(gates.running) == 3)
        described = await client.transport.control("GET", f"/workers/{worker.identity}", idempotent=True)
        gates.open()
        assert await handle.result() == ["0", "1", "2"]
    assert described["max_concurrent_workflow_tasks"] == 1


async def test_a_worker_that_has_ended_is_not_made_known_again(client: Client) -> None:
    gates = Gates(opened=True)
    async with Worker(client, task_queue=QUEUE, activities=[gates.pass_gate]) as worker:
        pass
    await worker.adjust(max_concurrent_activities=7, max_activities_per_second=3)
    known = await client.transport.control("GET", "/workers", idempotent=True)
    assert known["workers"] == []


async def test_what_cannot_change_is_refused_and_nothing_has_changed(client: Client) -> None:
    worker = Worker(
        client, task_queue=QUEUE, activities=[Gates().pass_gate], max_concurrent_local_activities=0
    )
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"max_concurrent_activities": 0}, ValueError, "cannot be 0 while the worker runs"),
        ({"max_concurrent_local_activities": 5}, ValueError, "is 0 and stays so"),
        ({"max_concurrent_activities": -1}, ValueError, "max_concurrent_activity_tasks is 0 to"),
        ({"max_cached_workflows": 1}, TypeError, "does not change while a worker runs"),
        ({"max_activities_per_second": 0}, ValueError, "None is no limit"),
    ]
    for numbers, kind, words in cases:
        with pytest.raises(kind, match=words):
            await worker.adjust(**numbers)
    assert worker._options.max_concurrent_activity_tasks == 100


# ── slots and tokens ────────────────────────────────────────────────────────────────────────────────────────────


async def test_places_that_are_too_many_are_gone_when_they_are_given_back() -> None:
    slots = Slots(4)
    assert await slots.take(3) == 3
    slots.resize(1)
    assert (slots.free, slots.taken, slots.fitting(3), slots.fitting(1)) == (0, 3, 1, 0)
    slots.give_back(2)
    assert not slots.take_now()
    slots.give_back()
    await slots.all_free()
    slots.resize(2)
    assert await slots.take(9) == 2


async def test_tokens_of_another_rate_count_what_polls_have_already() -> None:
    now = [NANO]
    rate_limiter = RateLimiter(None, lambda: now[0])
    assert await rate_limiter.take(40) == 40
    rate_limiter.change(20)
    assert rate_limiter.fitting(40) == 2
    rate_limiter.settle(40, 2)
    waiting = asyncio.ensure_future(rate_limiter.take(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    rate_limiter.change(None)
    assert await waiting == 1


async def test_a_rate_that_is_raised_forgets_what_was_owed_at_the_old_one() -> None:
    now = [NANO]
    rate_limiter = RateLimiter(0.01, lambda: now[0])
    assert await rate_limiter.take(5) == 1
    rate_limiter.settle(1, 1)
    rate_limiter.change(10)
    now[0] += NANO // 10
    assert await rate_limiter.take(5) == 1


class Waiting:
    """A server that answers when told to, and records what happens to its tasks."""

    def __init__(self) -> None:
        self.asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.answers = asyncio.Event()
        self.started: list[int] = []
        self.back: list[int] = []

    async def ask(self, tasks_max: int, poll_id: str, *, waits: bool = True) -> list[Any]:
        if self.asked.done():
            await asyncio.Event().wait()
        self.asked.set_result(tasks_max)
        await self.answers.wait()
        return list(range(tasks_max))

    def start(self, task: Any) -> None:
        self.started.append(task)

    async def hand_back(self, task: Any) -> None:
        self.back.append(task)


@pytest.mark.parametrize("goes_round", [False, True])
@pytest.mark.parametrize(("places", "rate"), [(1, None), (4, 10)])
async def test_a_poll_that_waited_starts_what_still_fits_and_hands_the_rest_back(
    uses_round_robin: bool, places: int, rate: float | None
) -> None:
    server, slots, rate_limiter = Waiting(), Slots(4), RateLimiter(None, lambda: NANO)
    poll_context = PollContext(_nothing, ErrorPolicy("a worker"), NullMetrics())
    polling: Poller | RoundRobinPoller
    if uses_round_robin:
        polling = RoundRobinPoller(
            [PolledQueue(QUEUE, server.ask, server.start, server.hand_back, poll_context)],
            slots,
            rate_limiter=rate_limiter,
        )
    else:
        polling = Poller(
            "activity",
            server.ask,
            server.start,
            slots,
            poll_context,
            polls=1,
            batch_max=100,
            rate_limiter=rate_limiter,
            hand_back=server.hand_back,
        )
    running = asyncio.ensure_future(polling.run())
    async with asyncio.timeout(PATIENCE_S):
        assert await server.asked == 4
        slots.resize(places)
        rate_limiter.change(rate)
        server.answers.set()
        while len(server.started) + len(server.back) < 4:
            await asyncio.sleep(0)
    running.cancel()
    assert (server.started, server.back) == ([0], [1, 2, 3])


async def _nothing() -> None: ...
