"""Lease caps over HTTP: of a queue, of a key, of zero; and shares of active leases."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from tests.acceptance.cluster import Cluster, Hand, Json, any_or_named_types
from tests.support.dispatch_log import counts, keys, of, positions, standing


async def found(hand: Hand, most: int = 100) -> list[Json]:
    """What may go now, perhaps nothing."""
    tasks = (await hand.poll("activity", max_tasks=most)).expect(200)["tasks"]
    assert isinstance(tasks, list)
    return tasks


@any_or_named_types
async def test_limits_of_keys_and_queue_are_never_exceeded_and_always_used(scene: Cluster, types: Json):
    (await scene.config(max_running=5, fairness_key_max_running_default=2)).expect(200)
    await scene.queue_up([{"fairness_key": f"key-{number % 10}"} for number in range(80)])
    hand, dice = await scene.worker("w1", **types), random.Random(22)
    waiting = Counter({f"key-{number}": 8 for number in range(10)})
    running: list[Json] = []
    while waiting.total() or running:
        new = await found(hand)
        waiting -= counts(new)
        running += new
        could_run = sum(min(2, waiting[key] + counts(running)[key]) for key in waiting | counts(running))
        assert len(running) == min(5, could_run)
        assert max(counts(running).values()) <= 2
        dice.shuffle(running)
        done, running = running[:2], running[2:]
        await hand.finish_all(done)


async def test_a_capped_key_holds_its_cap_while_others_use_the_rest_and_gets_no_credit_for_it(scene: Cluster):
    others = [f"key-{number}" for number in range(9)]
    (await scene.config(max_running=20, keys={"capped": {"max_running": 1}})).expect(200)
    await scene.queue_up(standing("capped", 60) + [s for key in others for s in standing(key, 20)])
    hand = await scene.worker("w1")
    running = await found(hand)
    for _ in range(4):
        assert len(running) == 20
        assert counts(running)["capped"] == 1
        await hand.finish_all(running)
        running = await found(hand)
    (await scene.config(keys={"capped": {"max_running": 100}})).expect(200)
    await hand.finish_all(running)
    assert 1 <= counts(await found(hand))["capped"] <= 3


async def test_a_key_at_its_limit_says_so_and_goes_on_when_one_of_its_tasks_ends(scene: Cluster):
    (await scene.config(keys={"a": {"max_running": 2}})).expect(200)
    await scene.queue_up(standing("a", 4), at_once=1)
    hand = await scene.worker("w1")
    first, second = await hand.some(4)
    [shown] = (await scene.line())["top_keys"]
    assert (shown["state"], shown["running"], shown["backlog_count"]) == ("at_running_limit", 2, 2)
    assert (await hand.poll("activity")).expect(200)["poll_status"] == "throttled"
    waiting = asyncio.create_task(hand.some(4))
    (await hand.finish(second)).expect(200)
    assert len(await waiting) == 1
    waiting = asyncio.create_task(hand.some(4))
    (await hand.report(first, "fail", failure={"message": "no", "non_retryable": True})).expect(200)
    assert len(await waiting) == 1


async def test_a_key_has_one_limit_over_all_its_levels(scene: Cluster):
    (await scene.config(keys={"a": {"max_running": 1}})).expect(200)
    await scene.queue_up([{"fairness_key": "a", "priority_key": level} for level in (4, 2, 2, 4)])
    hand = await scene.worker("w1")
    order: list[int] = []
    while len(order) < 4:
        [task] = await hand.some(10)
        order.append(task["priority_key"])
        (await hand.finish(task)).expect(200)
    assert order == [2, 2, 4, 4]


async def test_what_runs_already_counts_when_a_limit_is_set(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("a", 10) + standing("b", 10))
    running = await hand.drain(6)
    (await scene.config(fairness_key_max_running_default=3)).expect(200)
    assert await found(hand) == []
    await hand.finish_all(of("a", running)[:2])
    assert counts(await found(hand)) == {"a": 2}
    (await scene.config(fairness_key_max_running_default="default")).expect(200)
    assert counts(await found(hand)) == {"a": 5, "b": 7}


@pytest.mark.parametrize("limit", [{"max_running": 0}, {"keys": {"a": {"max_running": 0}}}], ids=str)
async def test_a_running_limit_of_zero_closes(scene: Cluster, limit: Json):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("a", 3))
    (await scene.config(**limit)).expect(200)
    assert (await hand.poll("activity")).expect(200)["poll_status"] == "throttled"
    (await scene.config(max_running=None, keys={"a": {"max_running": None}})).expect(200)
    assert len(await hand.some(3)) == 3


async def test_a_limit_counts_workflow_tasks_too(scene: Cluster):
    (await scene.config(kind="workflow", fairness_key_max_running_default=1)).expect(200)
    for number in range(4):
        (await scene.start(f"order-{number}", fairness_key=f"key-{number % 2}")).expect(201)
    hand = await scene.worker("w1")
    tasks = (await hand.poll("workflow", max_tasks=10)).expect(200)["tasks"]
    assert counts(tasks) == {"key-0": 1, "key-1": 1}
    (await hand.finish(tasks[0])).expect(200)
    again = (await hand.poll("workflow", 30, max_tasks=10)).expect(200)["tasks"]
    assert counts(again) == {tasks[0]["fairness_key"]: 1}


@any_or_named_types
async def test_a_paused_key_gives_nothing_while_others_go_and_resumes_at_its_share(
    scene: Cluster, types: Json
):
    hand = await scene.worker("w1", **types)
    await scene.queue_up([s for key in ("paused", "b", "c") for s in standing(key, 100)])
    (await scene.config(keys={"paused": {"paused": True}})).expect(200)
    assert counts(await hand.drain(60)) == {"b": 30, "c": 30}
    [shown] = [each for each in (await scene.line())["top_keys"] if each["fairness_key"] == "paused"]
    assert (shown["state"], shown["backlog_count"]) == ("paused", 100)
    (await scene.config(keys={"paused": {"paused": False}})).expect(200)
    tasks = await hand.drain(30)
    assert positions("paused", tasks)[0] <= 3
    assert abs(counts(tasks)["paused"] - 10) <= 1


@any_or_named_types
async def test_where_shares_count_what_runs_slots_divide_by_weight_however_long_tasks_take(
    scene: Cluster, types: Json
):
    (await scene.config(fairness_counts="running", max_running=10)).expect(200)
    await scene.queue_up(standing("long", 20) + standing("short", 120))
    hand = await scene.worker("w1", **types)
    running = await found(hand)
    for _ in range(10):
        assert counts(running) == {"long": 5, "short": 5}
        await hand.finish_all(of("short", running))
        running = of("long", running) + await found(hand)
    (await scene.config(set_fairness_weight_overrides={"long": 4})).expect(200)
    await hand.finish_all(running)
    running = await found(hand)
    for _ in range(3):
        assert counts(running) == {"long": 8, "short": 2}
        await hand.finish_all(of("short", running))
        running = of("long", running) + await found(hand)


async def test_where_shares_count_what_runs_a_key_with_long_tasks_does_not_win_twice(scene: Cluster):
    (await scene.config(fairness_counts="running")).expect(200)
    hand = await scene.worker("w1")
    await scene.queue_up(standing("long", 20))
    assert counts(await hand.drain(6)) == {"long": 6}
    await scene.queue_up(standing("short", 20))
    assert keys(await hand.drain(6)) == ["short"] * 6
    assert abs(counts(await hand.drain(10))["long"] - 5) <= 1
    (await scene.config(fairness_counts="dispatches")).expect(200)
    assert abs(counts(await hand.drain(8))["long"] - 4) <= 1


async def test_a_limit_set_while_leases_are_renewed_and_end_counts_each_of_them_once(scene: Cluster):
    await scene.queue_up(standing("a", 40))
    hand = await scene.worker("w1")
    running = await hand.drain(20)
    await asyncio.gather(
        *(hand.report(task, "heartbeat") for task in running[:10]),
        scene.config(fairness_key_max_running_default=10),
        *(hand.finish(task) for task in running[10:]),
    )
    await hand.finish_all(running[:10])
    assert len(await found(hand)) == 10, "nothing runs, so the key may run as much as its limit says"
