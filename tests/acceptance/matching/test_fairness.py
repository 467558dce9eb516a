"""Fairness over HTTP: keys share by weight, and late or idle keys neither starve nor gain credit."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass

import pytest

from tests.acceptance.cluster import Cluster, Hand, Json, any_or_named_types, until
from tests.support.dispatch_log import counts, furthest_from_share, keys, names, of, positions, standing


async def test_weights_of_five_three_and_two_share_ten_and_six_hundred_exactly(scene: Cluster):
    weights = {"gold": 5, "silver": 3, "iron": 2}
    await scene.queue_up([s for key, w in weights.items() for s in standing(key, 300, fairness_weight=w)])
    order = keys(await (await scene.worker("w1")).drain(600))
    assert Counter(order[:10]) == weights
    assert Counter(order) == {"gold": 300, "silver": 180, "iron": 120}
    for key, weight in weights.items():
        assert furthest_from_share(order, key, weight / 10) <= 1


@any_or_named_types
async def test_twenty_equal_keys_are_served_round_by_round(scene: Cluster, types: Json):
    equal = [f"key-{number:02}" for number in range(20)]
    await scene.queue_up([s for key in equal for s in standing(key, 20)])
    order = keys(await (await scene.worker("w1", **types)).drain(400))
    rounds = [order[start : start + 20] for start in range(0, 400, 20)]
    assert [sorted(each) for each in rounds] == [equal] * 20


async def test_inside_a_key_the_first_to_come_is_the_first_to_go(scene: Cluster):
    mixed = [s for number in range(30) for s in standing(f"key-{number % 3}", fairness_weight=1 + number % 3)]
    await scene.queue_up(mixed, at_once=1)
    tasks = await (await scene.worker("w1")).drain(30, at_once=4)
    for key in ("key-0", "key-1", "key-2"):
        assert names(of(key, tasks)) == sorted(names(of(key, tasks)))


@any_or_named_types
async def test_three_hundred_keys_are_each_served_once_before_any_is_served_twice(
    scene: Cluster, types: Json
):
    many = [f"key-{number:03}" for number in range(300)]
    await scene.queue_up([{"fairness_key": key} for key in many * 2])
    order = keys(await (await scene.worker("w1", **types)).drain(600))
    assert sorted(order[:300]) == sorted(order[300:]) == many


async def test_a_small_backlog_that_comes_after_a_large_one_goes_every_other_time(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("big", 500))
    await hand.drain(50)
    await scene.queue_up(standing("late", 5))
    first = positions("late", await hand.drain(20))
    assert all(place <= latest for place, latest in zip(first, (1, 3, 5, 7, 9), strict=True))


async def test_a_lone_newcomer_goes_first_and_many_at_once_go_within_one_round(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up([{"fairness_key": f"old-{number:03}"} for number in range(300)] * 3)
    await hand.drain(400)
    await scene.queue_up(standing("new"))
    assert positions("new", await hand.drain(10)) == [0]
    await scene.queue_up([{"fairness_key": f"fresh-{number:02}"} for number in range(30)])
    round_ = counts(await hand.drain(330))
    assert [round_[f"fresh-{number:02}"] for number in range(30)] == [1] * 30


async def test_idle_time_earns_a_key_nothing(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("idle") + standing("busy"))
    await hand.drain(2)
    await scene.queue_up(standing("busy", 300))
    await hand.drain(250)
    await scene.queue_up(standing("idle", 50))
    assert abs(counts(await hand.drain(20))["idle"] - 10) <= 1


async def test_a_key_that_comes_back_each_time_it_is_empty_gets_no_more_than_its_share(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("steady", 60) + standing("flapper"))
    order: list[str] = []
    while len(order) < 100:
        [next_] = keys(await hand.some(1))
        order.append(next_)
        if next_ == "flapper":
            await scene.queue_up(standing("flapper"))
    assert order.count("flapper") <= 51


@pytest.mark.parametrize(("per_dispatch", "share", "longest_gap"), [(0.5, 0.5, 2), (0.75, 0.25, 4)])
async def test_a_drip_of_fresh_keys_does_not_starve_an_established_one(
    scene: Cluster, per_dispatch: float, share: float, longest_gap: int
):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("established", 80))
    await hand.drain(10)
    order: list[str] = []
    for turn in range(80):
        if int((turn + 1) * per_dispatch) > int(turn * per_dispatch):
            await scene.queue_up(standing(f"fresh-{turn}"))
        order += keys(await hand.some(1))
    served = [-1, *(place for place, key in enumerate(order) if key == "established")]
    assert len(served) - 1 >= share * 80 - 2
    assert max(after - before for before, after in itertools.pairwise(served)) <= longest_gap


async def test_keys_are_billed_only_for_what_the_worker_can_do(scene: Cluster):
    mixed = [s for key in "ab" for s in standing(key, 40) + standing(key, 40, activity_type="paint")]
    await scene.queue_up(mixed + standing("painter", 40, activity_type="paint"))
    greeter = await scene.worker("w1", supported_activity_types=["greet"])
    painter = await scene.worker("w2", supported_activity_types=["paint"])
    assert counts(await greeter.drain(40)) == {"a": 20, "b": 20}
    assert_near(counts(await painter.drain(30)), {"a": 10, "b": 10, "painter": 10})
    assert_near(counts(await greeter.drain(20)), {"a": 10, "b": 10})


async def test_sixty_featherweights_that_join_at_once_take_their_share_and_no_more(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("normal", 250))
    await hand.drain(150)
    await scene.queue_up([s for n in range(60) for s in standing(f"tiny-{n:02}", fairness_weight=0.01)])
    tiny = 100 - counts(await hand.drain(100))["normal"]
    assert 36 <= tiny <= 39


async def test_the_last_weight_that_a_key_was_started_with_is_the_one_in_force(scene: Cluster):
    hand = await scene.worker("w1")
    flutter = [s for n in range(98) for s in standing("flutter", fairness_weight=(1, 9)[n % 2])]
    await scene.queue_up(standing("steady", 100, fairness_weight=1) + flutter)
    await scene.queue_up(standing("flutter", fairness_weight=1))
    await scene.queue_up(standing("flutter", fairness_weight=9))
    assert await weight_of(scene, "flutter") == 9
    assert abs(counts(await hand.drain(50))["flutter"] - 45) <= 1
    await scene.queue_up(standing("flutter", fairness_weight=1))
    assert await weight_of(scene, "flutter") == 1
    assert abs(counts(await hand.drain(20))["flutter"] - 10) <= 1


async def weight_of(scene: Cluster, key: str) -> float:
    [found] = [each for each in (await scene.line())["top_keys"] if each["fairness_key"] == key]
    return float(found["weight"])


@any_or_named_types
async def test_an_override_acts_on_the_backlog_from_the_next_dispatch_and_so_does_its_return(
    scene: Cluster, types: Json
):
    hand = await scene.worker("w1", **types)
    await scene.queue_up([s for key in "abc" for s in standing(key, 200)])
    assert counts(await hand.drain(90)) == {"a": 30, "b": 30, "c": 30}
    (await scene.config(set_fairness_weight_overrides={"a": 10})).expect(200)
    assert_near(counts(await hand.drain(120)), {"a": 100, "b": 10, "c": 10})
    (await scene.config(unset_fairness_weight_overrides=["a"])).expect(200)
    assert_near(counts(await hand.drain(30)), {"a": 10, "b": 10, "c": 10})


async def test_a_key_turned_down_to_a_thousandth_hardly_goes_any_more(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("a", 600) + standing("b", 600))
    assert_near(counts(await hand.drain(20)), {"a": 10, "b": 10})
    (await scene.config(set_fairness_weight_overrides={"a": 0.001})).expect(200)
    assert counts(await hand.drain(500))["a"] <= 1


def assert_near(found: Counter[str], expected: dict[str, int], within: int = 1) -> None:
    assert found.keys() == expected.keys()
    assert all(abs(found[key] - expected[key]) <= within for key in expected), found


@dataclass(frozen=True)
class Claim:
    """One poll from when it was sent to when it was answered, by one clock."""

    sent: float
    answered: float
    levels: list[int]


async def test_eight_claimers_at_once_see_no_level_before_a_lower_one_is_empty(scene: Cluster):
    mixed = [{"priority_key": level} for level in (1, 2, 3, 4, 5) for _ in range(80)]
    random.Random(13).shuffle(mixed)
    await scene.queue_up(mixed)
    hands = [await scene.worker(f"w{number}") for number in range(8)]
    claims = [each for some in await asyncio.gather(*map(claim_all, hands)) for each in some]
    assert Counter(level for each in claims for level in each.levels) == dict.fromkeys((1, 2, 3, 4, 5), 80)
    assert all(each.levels == sorted(each.levels) for each in claims)
    for one, other in itertools.product(claims, claims):
        if one.answered < other.sent:
            assert one.levels[-1] <= other.levels[0]


async def claim_all(hand: Hand) -> list[Claim]:
    """Batches of seven until nothing is left."""
    claims: list[Claim] = []
    while True:
        sent = time.monotonic()
        reply = (await hand.poll("activity", max_tasks=7)).expect(200)
        if not reply["tasks"]:
            return claims
        claims.append(Claim(sent, time.monotonic(), [task["priority_key"] for task in reply["tasks"]]))


async def test_batches_of_any_size_give_the_same_order(scene: Cluster):
    mixed: list[Json] = [
        {"fairness_key": f"key-{n % 7}", "fairness_weight": 1 + n % 7, "priority_key": 2 + n % 3 // 2}
        for n in range(100)
    ]
    orders = []
    for at_once in (1, 2, 7, 50, 100):
        queue = f"by-{at_once}"
        await scene.queue_up(mixed, queue)
        hand = await scene.worker(f"w-{at_once}", queue)
        tasks = await hand.drain(100, at_once)
        orders.append([(task["priority_key"], task["fairness_key"]) for task in tasks])
    assert all(order == orders[0] for order in orders)


async def test_tasks_that_come_back_after_a_delay_have_no_credit_for_it(scene: Cluster):
    hand = await scene.worker("w1")
    retried: Json = {"retry_policy": {"max_attempts": 2, "backoff_seconds": [1]}}
    await scene.queue_up(standing("patient", 60, **retried))
    failed = await hand.drain(60)
    await scene.queue_up(standing("busy", 200))
    await hand.report_all(failed, "fail", failure={"message": "again"})
    meanwhile = await hand.drain(60)

    async def all_are_due() -> bool:
        return (await scene.line())["delayed_count"] == 0

    await until(all_are_due)
    then = await hand.drain(20)
    assert_near(counts(then), {"patient": 10, "busy": 10})
    again = of("patient", then)
    assert {task["attempt_number"] for task in again} == {2}
    first = [name for name in names(failed) if name not in names(meanwhile)]
    assert names(again) == first[: len(again)]


async def test_a_drained_queue_says_so_at_once_and_its_keys_add_up_to_its_levels(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up([{"fairness_key": f"key-{n % 4}", "priority_key": 1 + n % 2} for n in range(60)])
    await hand.drain(25)
    line = await scene.line()
    by_level = {each["priority_key"]: each["backlog_count"] for each in line["backlog_by_priority"]}
    by_key: Counter[int] = Counter()
    for each in line["top_keys"]:
        by_key[each["priority_key"]] += each["backlog_count"]
    assert by_level == by_key == {1: 5, 2: 30}
    assert sum(by_level.values()) == line["ready_count"] == 35
    await hand.drain(35)
    drained = await scene.line()
    assert (drained["ready_count"], drained["backlog_by_priority"], drained["top_keys"]) == (0, [], [])
