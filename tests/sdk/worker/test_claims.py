"""Claims: several queues in order, batches, and prefetched tasks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.sdk import activity
from penstock.sdk.clients.client import Client
from penstock.sdk.failures import ActivityFailureError
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.worker import Worker
from penstock.sdk.worker.claim_options import Claiming
from penstock.sdk.worker.error_policy import ErrorPolicy
from penstock.sdk.worker.lease_renewal import SHORT_LEASE_MS
from penstock.sdk.worker.matching.backpressure import BackpressureWindow
from penstock.sdk.worker.matching.poller import PollContext
from penstock.sdk.worker.matching.round_robin_poller import PolledQueue, RoundRobinPoller
from penstock.sdk.worker.matching.slots import Slots
from penstock.sdk.worker.metrics import NullMetrics
from tests.acceptance.cluster import Cluster
from tests.sdk.activities.activities_in_processes import own_pid
from tests.sdk.server_fixtures import connected, new_namespace
from tests.support.patience import PATIENCE, PATIENCE_S
from tests.support.sdk import Gates, Watched

SHORT = PATIENCE
QUEUE = "q"
_ids = itertools.count(1)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with asyncio.timeout(PATIENCE_S), await connected(await new_namespace(cluster)) as made:
        yield made


class Counting(Watched):
    """Counts the tasks that a worker received."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self.got = 0
        self._more = asyncio.Event()

    async def work(self, path: str, body: Any, **how: Any) -> Any:
        answer = await super().work(path, body, **how)
        if path.endswith("/activity-tasks/poll"):
            self.got += len(answer.get("tasks") or ())
            self._more.set()
        return answer

    async def until_it_got(self, count: int) -> None:
        while self.got < count:
            self._more.clear()
            await self._more.wait()


async def send(client: Client, count: int, queue: str = QUEUE, **options: Any) -> list[Any]:
    return [
        await client.start_activity(
            "pass_gate",
            f"{queue}-{next(_ids)}",
            id=f"c-{next(_ids)}",
            task_queue=queue,
            start_to_close_timeout=SHORT,
            **options,
        )
        for _ in range(count)
    ]


def served(client: Client, gates: Gates, *queues: str, places: int, **options: Any) -> Worker:
    return Worker(
        client,
        task_queues=queues or [QUEUE],
        activities=[gates.pass_gate],
        max_concurrent_activity_tasks=places,
        **options,
    )


def soft(prefetch: int, lease_ms: int = 5000, **more: int) -> Claiming:
    return Claiming(prefetch=prefetch, lease_ms=lease_ms, **more)


async def cap(client: Client, queue: str, most: int) -> None:
    await client.transport.control(
        "PATCH",
        f"/task-queues/{queue}/limits",
        {"max_active_leases_per_queue": most, "task_queue_type": "activity"},
        idempotent=True,
    )


async def test_a_small_batch_fills_all_places_without_any_news(client: Client) -> None:
    """Scenario 17, with 19 and 20: no request asks for more than allowed."""
    watched, gates = Watched(client.transport), Gates()
    own = Client(watched, namespace=client.namespace)
    await send(client, 12)
    async with served(own, gates, places=8, claiming=Claiming(batch_max=2)):
        await gates.until(lambda: len(gates.running) == 8)
        gates.open()
        await gates.until(lambda: len(gates.ran) == 12)
    assert max(body["max_tasks"] for body in watched.of("/activity-tasks/poll")) == 2
    assert gates.peak == 8


async def test_a_worker_that_may_claim_one_at_a_time_gets_all_its_places_busy_all_the_same(
    client: Client,
) -> None:
    """Scenario 20."""
    watched, gates = Watched(client.transport), Gates()
    own = Client(watched, namespace=client.namespace)
    await send(client, 6)
    async with served(own, gates, places=6, claiming=Claiming(most=1)):
        await gates.until(lambda: len(gates.running) == 6)
        gates.open()
    assert {body["max_tasks"] for body in watched.of("/activity-tasks/poll")} == {1}


async def test_two_workers_with_small_batches_both_get_work(client: Client) -> None:
    """Scenario 18."""
    one, other = Gates(), Gates()
    async with (
        served(client, one, places=4, claiming=Claiming(batch_max=2)),
        served(client, other, places=4, claiming=Claiming(batch_max=2)),
    ):
        await send(client, 8)
        await one.until(lambda: len(one.running) == 4)
        await other.until(lambda: len(other.running) == 4)
        one.open()
        other.open()


async def test_a_round_brings_no_more_of_each_queue_than_a_batch(client: Client) -> None:
    """Scenario 19."""
    watched, gates = Watched(client.transport), Gates()
    own = Client(watched, namespace=client.namespace)
    for queue in ("high", "low"):
        await send(client, 4, queue)
    async with served(own, gates, "high", "low", places=8, claiming=Claiming(batch_max=2)):
        await gates.until(lambda: len(gates.running) == 8)
        gates.open()
    order = [name.split("-")[0] for name in gates.ran]
    assert order == ["high", "high", "low", "low"] * 2
    assert max(body["max_tasks"] for body in watched.of("/activity-tasks/poll")) == 2


async def test_the_places_of_the_only_worker_bind_under_a_cap_that_is_higher(client: Client) -> None:
    """Scenario 8."""
    gates = Gates()
    await cap(client, QUEUE, 10)
    handles = await send(client, 5)
    async with served(client, gates, places=2):
        await gates.until(lambda: len(gates.running) == 2)
        gates.open()
        for each in handles:
            await each.result()
    assert gates.peak == 2


async def test_a_worker_with_long_tasks_keeps_nothing_from_one_that_is_free(client: Client) -> None:
    """Scenario 23: without prefetch a worker holds only what it runs."""
    slow, fast = Gates(), Gates(opened=True)
    counted = Counting(client.transport)
    await send(client, 2)
    async with served(Client(counted, namespace=client.namespace), slow, places=2):
        await slow.until(lambda: len(slow.running) == 2)
        handles = await send(client, 12)
        async with served(client, fast, places=1):
            for each in handles:
                await each.result()
        slow.open()
    assert (counted.got, len(fast.ran), fast.peak) == (2, 12, 1)


async def test_several_queues_share_the_places_and_the_first_goes_first(client: Client) -> None:
    """Scenario 26, with one slot; the queues are filled in reverse order."""
    gates = Gates(opened=True)
    for queue in ("low", "middle", "high"):
        await send(client, 3, queue)
    async with served(client, gates, "high", "middle", "low", places=1):
        await gates.until(lambda: len(gates.ran) == 9)
    assert [name.split("-")[0] for name in gates.ran] == ["high"] * 3 + ["middle"] * 3 + ["low"] * 3
    assert gates.peak == 1


async def test_a_worker_of_several_empty_queues_takes_from_whichever_gets_something(client: Client) -> None:
    gates = Gates(opened=True)
    async with served(client, gates, "a", "b", "c", places=2, max_concurrent_local_activities=0):
        for turn, queue in enumerate(["c", "a", "b", "c"], 1):
            for each in await send(client, 3, queue):
                await each.result()
            await gates.until(lambda so_far=turn: len(gates.ran) == 3 * so_far)  # type: ignore[misc]
    assert gates.peak <= 2
    assert len(set(gates.ran)) == len(gates.ran)


async def test_what_is_claimed_ahead_is_in_the_workers_hands_and_starts_as_places_get_free(
    client: Client, cluster: Cluster
) -> None:
    """Scenario 22: it holds as many as slots and buffer, and runs no more than it has slots."""
    watched, gates = Watched(client.transport), Gates()
    own = Client(watched, namespace=client.namespace)
    handles = await send(client, 12)
    async with served(own, gates, places=4, claiming=soft(2)):
        await gates.until(lambda: len(gates.running) == 4)
        await watched.until("/heartbeat", 1)
        held = [(await each.describe()).raw for each in handles]
        gates.open()
        await gates.until(lambda: len(gates.ran) == 12)
        for each in handles:
            await each.result()
    assert gates.peak == 4
    assert sum(each["activity_status"] == "running" for each in held) <= 6
    assert all(body["claim_lease_ms"] == 5000 for body in watched.of("/activity-tasks/poll"))
    assert len(watched.of("/start")) == 12


async def test_a_true_ceiling_bounds_what_is_claimed_and_does_not_run(client: Client) -> None:
    watched, gates = Watched(client.transport), Gates()
    own = Client(watched, namespace=client.namespace)
    await send(client, 8)
    async with served(own, gates, places=2, claiming=soft(4, most=1)):
        await gates.until(lambda: len(gates.running) == 2)
        gates.open()
        await gates.until(lambda: len(gates.ran) == 8)
    assert {body["max_tasks"] for body in watched.of("/activity-tasks/poll")} == {1}


async def test_what_did_not_start_is_handed_back_at_once_when_the_worker_stops(client: Client) -> None:
    """Scenario 45."""
    watched, gates, others = Counting(client.transport), Gates(), Gates(opened=True)
    own = Client(watched, namespace=client.namespace)
    handles = await send(client, 5)
    worker = served(own, gates, places=1, claiming=soft(4, 600_000), graceful_shutdown_timeout=SHORT)
    running = asyncio.ensure_future(worker.run())
    await gates.until(lambda: len(gates.running) == 1)
    await watched.until_it_got(5)
    worker.begin_shutdown()
    async with served(client, others, places=1):
        await others.until(lambda: len(others.ran) == 4)
        gates.open()
        await running
    assert len(gates.ran) == 1
    assert len(watched.of("/start")) == 1
    assert [await each.result() for each in handles if await each.result() in gates.ran] == gates.ran


async def test_what_a_worker_that_stands_still_has_claimed_goes_to_one_that_is_free(client: Client) -> None:
    """Scenarios 24 and 36: after the lease, once each."""
    slow, fast = Gates(), Gates(opened=True)
    handles = await send(client, 4)
    async with served(client, slow, places=1, claiming=soft(3, 300)):
        await slow.until(lambda: len(slow.running) == 1)
        async with served(client, fast, places=1):
            await fast.until(lambda: len(fast.ran) == 3)
        slow.open()
        results = [await each.result() for each in handles]
    assert sorted(slow.ran + fast.ran) == sorted(results)
    assert len(slow.ran) == 1


async def test_a_busy_worker_that_moves_keeps_what_it_claimed_by_renewing_it(client: Client) -> None:
    """Scenario 58: the lease is shorter than the wait, and each task runs once."""
    done: list[int] = []

    @activity.defn(name="pass_gate")
    async def slowly(name: str) -> str:
        done.append(activity.info().attempt)
        if len(done) == 1:
            await asyncio.sleep(1.5 * lease_ms / 1000)  # the others wait longer than their leases
        return name

    lease_ms = 2000
    handles = await send(client, 6)
    claiming = soft(5, lease_ms)
    async with Worker(
        client, task_queue=QUEUE, activities=[slowly], max_concurrent_activities=1, claiming=claiming
    ):
        for each in handles:
            await each.result()
    assert done == [1] * 6


async def test_no_more_run_than_the_cap_says_also_with_what_was_claimed_ahead(client: Client) -> None:
    """Scenario 5: two workers with eight slots, and a cap of three."""
    await cap(client, QUEUE, 3)
    gates = Gates()
    handles = await send(client, 10)
    async with (
        served(client, gates, places=4, claiming=soft(4)),
        served(client, gates, places=4, claiming=soft(4)),
    ):
        await gates.until(lambda: len(gates.running) == 3)
        gates.open()
        for each in handles:
            await each.result()
    assert gates.peak == 3


@pytest.mark.parametrize("claiming", [soft(4, 600_000), soft(1, 600_000), soft(4, 600_000, most=1)])
async def test_queues_at_their_caps_leave_room_for_those_that_are_not(
    client: Client, claiming: Claiming
) -> None:
    gates = Gates()
    for queue in ("first", "second"):
        await cap(client, queue, 1)
        await send(client, 6, queue)
    async with served(client, gates, "first", "second", "last", places=4, claiming=claiming):
        await gates.until(lambda: len(gates.running) == 2)
        await send(client, 4, "last")
        await gates.until(lambda: sum(name.startswith("last") for name in gates.running) == 2)
        gates.open()
        await gates.until(lambda: len(gates.ran) == 16)
    assert gates.peak == 4
    assert len(set(gates.ran)) == 16


async def test_a_queue_whose_cap_is_raised_fills_all_places_again(client: Client) -> None:
    gates = Gates()
    await cap(client, "first", 1)
    await send(client, 8, "first")
    async with served(client, gates, "first", "last", places=6, claiming=soft(2, 600_000)):
        await gates.until(lambda: len(gates.running) == 1)
        await send(client, 1, "last")
        await gates.until(lambda: len(gates.running) == 2)
        await cap(client, "first", 100)
        await gates.until(lambda: len(gates.running) == 6)
        gates.open()
        await gates.until(lambda: len(gates.ran) == 9)


def test_of_a_queue_that_is_refused_one_claim_waits_until_its_tasks_start_at_once_again() -> None:
    held = BackpressureWindow(total=8, spare=1)
    assert held.capacity("a", rests=False) == 8
    held.refused("a")
    held.entered("a")
    assert (held.keeps("a"), held.capacity("a", rests=True)) == (1, 0)
    held.refused("b")
    assert (held.keeps("b"), held.capacity("b", rests=True), held.capacity("b", rests=False)) == (0, 0, 1)
    held.left("a")
    assert held.capacity_freed.is_set()
    rooms = []
    for _ in range(4):
        rooms.append(held.capacity("a", rests=False))
        held.capacity_freed.clear()
        held.grow("a")
        assert held.capacity_freed.is_set() or rooms[-1] == 8
    assert rooms == [1, 2, 4, 8]


def test_one_queue_for_itself_may_have_everything_whatever_is_refused() -> None:
    held = BackpressureWindow(total=8, spare=None)
    held.refused("a")
    held.entered("a")
    assert (held.keeps("a"), held.capacity("a", rests=True)) == (8, 8)


class Asked:
    """Two queues of a round: an empty one, and one that may have no capacity."""

    def __init__(self) -> None:
        self.free, self.started = 0, asyncio.Event()
        self.asked: list[str] = []
        self.waits = asyncio.Event()
        poll_context = PollContext(self._nothing, ErrorPolicy("A test"), NullMetrics())
        self.polled_queues = [
            PolledQueue(
                "left out",
                self.ask_for("left out"),
                self.start,
                self._nothing,
                poll_context,
                lambda: self.free,
            ),
            PolledQueue("empty", self.ask_for("empty"), self.start, self._nothing, poll_context),
        ]

    async def _nothing(self, *_: Any) -> None:
        pass

    def start(self, task: Any) -> None:
        self.free = 0
        self.started.set()

    def ask_for(self, queue: str) -> Any:
        async def ask(tasks_max: int, poll_id: str, *, waits: bool) -> list[Any]:
            self.asked.append(f"{queue}{' and waits' * waits}")
            if waits:
                self.waits.set()
                await asyncio.Event().wait()
            return [{}] * (queue == "left out")

        return ask


async def test_a_queue_without_room_is_asked_as_soon_as_there_is_some_and_not_before() -> None:
    asked, capacity_freed = Asked(), asyncio.Event()
    running = asyncio.ensure_future(
        RoundRobinPoller(asked.polled_queues, Slots(2), capacity_freed=capacity_freed).run()
    )
    async with asyncio.timeout(PATIENCE_S):
        await asked.waits.wait()
        assert asked.asked == ["empty", "empty and waits"]
        asked.free = 1
        capacity_freed.set()
        await asked.started.wait()
    running.cancel()
    assert asked.asked[2] == "left out"
    assert "left out and waits" not in asked.asked


async def test_what_expired_while_it_was_claimed_is_not_run(client: Client) -> None:
    """Scenario 50."""
    gates = Gates()
    (first,) = await send(client, 1)
    async with served(client, gates, places=1, claiming=soft(2, 600_000)):
        await gates.until(lambda: len(gates.running) == 1)
        soon = datetime.now(UTC) + timedelta(milliseconds=400)
        (late,) = await send(client, 1, good_until=soon)
        with pytest.raises(ActivityFailureError) as caught:
            await late.result()
        gates.open()
        await first.result()
    assert "schedule to start" in str(caught.value.cause)
    assert len(gates.ran) == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_what_began_while_it_was_good_goes_on_and_is_not_begun_again_afterwards(
    client: Client, fails: bool
) -> None:
    """Scenarios 51 and 52."""
    begun, opened = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def outlive(fails: bool) -> str:
        begun.set()
        await opened.wait()
        if fails:
            raise ValueError("the original error")
        return "done"

    async with Worker(client, task_queue=QUEUE, activities=[outlive]):
        for good_for_s in (1, 10, 100):  # more time for a machine that is too busy to start in time
            good_until = datetime.now(UTC) + timedelta(seconds=good_for_s)
            handle = await client.start_activity(
                outlive,
                fails,
                id=f"good-for-{good_for_s}",
                task_queue=QUEUE,
                start_to_close_timeout=SHORT,
                good_until=good_until,
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1)),
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(begun.wait(), good_for_s)
                break
        while datetime.now(UTC) < good_until:
            await asyncio.sleep(0.05)  # until it has expired
        opened.set()
        if not fails:
            assert await handle.result() == "done"
            return
        with pytest.raises(ActivityFailureError) as caught:
            await handle.result()
    assert "the original error" in str(caught.value.cause)


def test_numbers_that_cannot_be_are_refused_where_the_worker_is_made() -> None:
    with pytest.raises(ValueError, match="belong together"):
        Claiming(prefetch=2)
    with pytest.raises(ValueError, match="belong together"):
        Claiming(lease_ms=5000)
    with pytest.raises(ValueError, match="batch_max of a Claiming is 0 to"):
        Claiming(batch_max=-1)
    with pytest.raises(TypeError, match="most of a Claiming is a whole number"):
        Claiming(most=True)


async def test_a_worker_is_given_its_queues_in_one_way(client: Client) -> None:
    gates = Gates()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "give task_queue=…, or task_queues"),
        ({"task_queue": "a", "task_queues": ["b"]}, "give task_queue=…, or task_queues"),
        ({"task_queues": "abc"}, "task_queues is a list"),
        ({"task_queues": ["a", "a"]}, "names a queue twice"),
    ]
    for options, told in wrong:
        with pytest.raises((TypeError, ValueError), match=told):
            Worker(client, activities=[gates.pass_gate], **options)


@pytest.mark.parametrize("heartbeat", [None, timedelta(seconds=30)])
async def test_a_worker_whose_tasks_run_in_processes_asks_for_short_leases(
    client: Client, heartbeat: timedelta | None
) -> None:
    """Scenario 33: if it dies, its slots are free again soon. Heartbeats may be less frequent than a short lease
    requires.
    """
    watched = Watched(client.transport)
    own = Client(watched, namespace=client.namespace)
    options: dict[str, Any] = {} if heartbeat is None else {"heartbeat_timeout": heartbeat}
    async with Worker(
        own,
        task_queue=QUEUE,
        activities=[own_pid],
        max_concurrent_activity_tasks=1,
        process_slots=1,
        all_in_processes=True,
    ):
        await client.execute_activity(
            "own_pid", id=f"c-{next(_ids)}", task_queue=QUEUE, start_to_close_timeout=SHORT, **options
        )
    assert {body["lease_ms"] for body in watched.of("/activity-tasks/poll")} == {SHORT_LEASE_MS}
    lengthened = [body.get("lease_ms") for body in watched.of("/heartbeat") if "activity_attempt_id" in body]
    assert lengthened[:1] == ([] if heartbeat is None else [None])


async def test_a_worker_whose_code_may_hold_the_interpreter_has_the_leases_of_the_server(
    client: Client,
) -> None:
    watched, gates = Watched(client.transport), Gates()
    await send(client, 1)
    async with served(Client(watched, namespace=client.namespace), gates, places=1):
        await gates.until(lambda: len(gates.running) == 1)
        gates.open()
    assert not any("lease_ms" in body for body in watched.of("/activity-tasks/poll"))
