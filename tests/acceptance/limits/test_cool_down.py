"""Upstream throttling and cost budgets over HTTP: a report on one queue applies to all queues of the group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.core.verify.journal import LeaseEnded, LeaseGranted
from tests.acceptance.cluster import Cluster, Json, Reply
from tests.acceptance.witness import LimitWitness, ObservedWorker
from tests.support.dispatch_log import standing

SETTINGS = {"DW_JOURNAL": "true"}
LONG_S, SHORT_S = 600, 1


@pytest.fixture
def witness(scene: Cluster) -> LimitWitness:
    return LimitWitness(scene)


async def group_of(witness: LimitWitness, *queues: str, tasks: int = 30) -> list[ObservedWorker]:
    """Queues of one group, with tasks and a worker each."""
    hands: list[ObservedWorker] = []
    for queue in queues:
        await witness.limit(queue, dispatch_budget_group="openai")
        await witness.cluster.queue_up(standing("", tasks), queue)
        scope = f"group:{witness.namespace}/openai"
        hands.append(await witness.worker(f"w-{queue}", queue, (scope,)))
    return hands


async def refuse(hand: ObservedWorker, task: Json, retry_after_s: float) -> Reply:
    failure = {"message": "429", "throttled": True, "retry_after_seconds": retry_after_s}
    return (await hand.report(task, "fail", failure=failure)).expect(200)


async def held(hand: ObservedWorker, **how: Any) -> Reply:
    reply = (await hand.poll("activity", max_tasks=100, **how)).expect(200)
    assert reply["tasks"] == []
    return reply


async def test_a_refusal_upstream_closes_the_group_for_all_its_queues_on_every_server(witness: LimitWitness):
    first, second = await group_of(witness, "a", "b")
    free = await witness.worker("w-free", "free")
    await witness.cluster.queue_up(standing("", 1), "free")
    task = await first.take("activity")
    assert (await refuse(first, task, LONG_S))["outcome"] == "throttled"
    for server in witness.cluster.servers:
        for hand in (first, second):
            assert (await held(hand, server=server))["poll_status"] == "throttled"
    (await free.finish(await free.take("activity"))).expect(200)
    shown = (await witness.cluster.get("/api/budget-groups/openai")).expect(200)["all"]
    assert shown["cooling"]["is_closed"]
    [cap] = [
        cap
        for cap in (await witness.cluster.get("/api/task-queues/b")).expect(200)["admission"][
            "activity_tasks"
        ]["caps"]
        if cap["limit"] == "cooling"
    ]
    assert cap["opens_at"] == shown["cooling"]["until"]
    ends = [line for line in await witness.verified() if isinstance(line, LeaseEnded)]
    assert [line.how for line in ends if line.task_id == task["task_id"]] == ["throttled"]


async def test_a_refusal_upstream_burns_no_attempt(witness: LimitWitness):
    (await witness.cluster.start_activity("only", retry_policy={"max_attempts": 1})).expect(201)
    hand = await witness.worker("w1")
    for _ in range(3):
        task = await hand.take("activity")
        assert task["attempt_number"] == 1
        await refuse(hand, task, 0.05)
    (await hand.finish(await hand.take("activity"))).expect(200)
    described = (await witness.cluster.get("/api/activities/only")).expect(200)
    assert described["status"] == "completed"
    await witness.verified()


async def test_a_group_opens_again_step_by_step(witness: LimitWitness):
    """One in the first second, three in two seconds, seven in three: by the journal's own clock."""
    first, second = await group_of(witness, "a", "b")
    task = await first.take("activity")
    await refuse(first, task, SHORT_S)
    taken: list[Json] = []

    async def take(hand: ObservedWorker) -> None:
        while len(taken) < 12:
            taken.extend((await hand.poll("activity", 2, max_tasks=100)).expect(200)["tasks"])

    await asyncio.gather(take(first), take(second))
    lines = await witness.verified()
    mine = {each["task_id"] for each in taken}
    [ended] = [
        line
        for line in lines
        if isinstance(line, LeaseEnded) and line.how == "throttled" and line.task_id == task["task_id"]
    ]
    opens_at_ms = ended.at_ms + SHORT_S * 1000
    grants = sorted(
        line.at_ms
        for line in lines
        if isinstance(line, LeaseGranted) and line.task_id in mine and line.seq > ended.seq
    )
    assert grants[0] >= opens_at_ms
    for number, at_ms in enumerate(grants, start=1):
        seconds = (at_ms - opens_at_ms) // 1000
        assert number <= 2 ** (seconds + 1) - 1, f"{number} went in {seconds} whole seconds"


async def test_one_that_waits_when_the_group_closes_is_let_in_when_it_opens(witness: LimitWitness):
    first, second = await group_of(witness, "a", "b")
    await refuse(first, await first.take("activity"), SHORT_S)
    waiting = asyncio.create_task(second.some(100))
    assert len(await waiting) == 1
    await witness.verified()


async def test_the_later_of_two_refusals_holds(witness: LimitWitness):
    (hand,) = await group_of(witness, "a")
    early, late = await hand.some(2)
    await refuse(hand, late, LONG_S)
    await refuse(hand, early, 0)
    assert (await held(hand))["poll_status"] == "throttled"


async def test_without_a_group_only_the_task_waits(witness: LimitWitness):
    await witness.cluster.queue_up(standing("", 3))
    hand = await witness.worker("w1")
    task = await hand.take("activity")
    await refuse(hand, task, LONG_S)
    rest = await hand.some(3)
    assert task["task_id"] not in {each["task_id"] for each in rest}
    assert len(rest) == 2


async def dear(witness: LimitWitness, costs: list[int], queue: str = "q", **fields: Any) -> None:
    for number, cost in enumerate(costs):
        activity = f"{queue}-{number:03}"
        (
            await witness.cluster.start_activity(activity, task_queue=queue, cost_estimate=cost, **fields)
        ).expect(201)


async def cost_used(witness: LimitWitness) -> int:
    shown = (await witness.cluster.get("/api/budget-groups/openai")).expect(200)["all"]["counts"]
    return int(shown["cost_this_minute"])


async def budget(witness: LimitWitness, most: int) -> ObservedWorker:
    await witness.limit(dispatch_budget_group="openai")
    await witness.limit_group("openai", max_cost_per_minute=most, dispatch_window="sliding")
    return await witness.worker("w1", groups=(f"group:{witness.namespace}/openai",))


async def test_a_lease_reserves_what_its_task_is_estimated_to_cost(witness: LimitWitness):
    hand = await budget(witness, 100)
    await dear(witness, [40, 40, 40])
    tasks = await hand.some(3)
    assert [task["cost_estimate"] for task in tasks] == [40, 40]
    assert await cost_used(witness) == 80
    assert (await held(hand))["poll_status"] == "throttled"
    await witness.verified()


async def test_a_completion_settles_to_what_it_did_cost(witness: LimitWitness):
    hand = await budget(witness, 100)
    await dear(witness, [60, 30, 40])
    first, second = await hand.some(3)
    (await hand.report(first, "complete", result=None, cost=10)).expect(200)
    [third] = await hand.some(3)
    assert third["cost_estimate"] == 40
    (await hand.report(second, "complete", result=None, cost=50)).expect(200)
    (await hand.finish(third)).expect(200)
    (await witness.cluster.start_activity("one-more", cost_estimate=1)).expect(201)
    for _ in range(3):
        assert (await held(hand))["poll_status"] == "throttled"
    assert await cost_used(witness) == 10 + 50 + 40
    await witness.verified()


async def test_a_failure_settles_too_and_silence_keeps_the_estimate(witness: LimitWitness):
    hand = await budget(witness, 100)
    await dear(witness, [50, 50, 45])
    first, second = await hand.some(3)
    (await hand.finish(second)).expect(200)
    assert (await held(hand))["poll_status"] == "throttled"
    failure = {"message": "no", "non_retryable": True}
    (await hand.report(first, "fail", failure=failure, cost=5)).expect(200)
    assert len(await hand.some(3)) == 1
    assert await cost_used(witness) == 5 + 50 + 45
    await witness.verified()


async def test_a_task_dearer_than_the_whole_budget_goes_when_it_is_untouched(witness: LimitWitness):
    hand = await budget(witness, 10)
    await dear(witness, [500, 1])
    [task] = await hand.some(2)
    assert task["cost_estimate"] == 500
    assert (await held(hand))["poll_status"] == "throttled"


async def test_a_budget_of_zero_closes(witness: LimitWitness):
    hand = await budget(witness, 0)
    await dear(witness, [0, 1])
    assert (await held(hand))["poll_status"] == "throttled"
