"""Rates of a queue and of its keys over HTTP, measured by the clock of the servers.

A rate is kept when no interval holds more than its burst and what the rate gives in that time. Nothing here
measures how fast the machine is: long polls wait, and what one claim finds is compared with what it may find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.acceptance.cluster import Cluster, Hand, Json, any_or_named_types
from tests.support.dispatch_log import counts, found_by_rate, most_over_rate, standing

CLOSED = {"rps_limit": 0}


async def claims(hand: Hand, total: int) -> list[list[Json]]:
    """What each claim found, until there are at least so many."""
    found: list[list[Json]] = []
    while sum(map(len, found)) < total:
        found.append(await hand.some(100))
    return found


def assert_rate(found: list[list[Json]], key: str | None, rate: int, burst: int) -> None:
    """No interval held more than it may, and no claim found less than it might."""
    tasks = [task for claim in found for task in claim if key in (None, task["fairness_key"])]
    assert most_over_rate(tasks, rate, burst) <= 0
    taken = [len(claim) if key is None else counts(claim)[key] for claim in found]
    assert taken == found_by_rate(found, key, rate, burst)


@any_or_named_types
async def test_a_key_may_go_at_the_rate_of_its_weight_after_a_burst_of_its_own(scene: Cluster, types: Json):
    limits: Json = {"fairness_key_rps_limit_default": 20, "fairness_key_rps_burst_seconds": 0.5}
    (await scene.config(**limits)).expect(200)
    await scene.queue_up(standing("a", 80) + standing("b", 80))
    await scene.queue_up(standing("c", 150, fairness_weight=2.5))
    found = await claims(await scene.worker("w1", **types), 100)
    assert counts(found[0]) == {"a": 10, "b": 10, "c": 25}
    for key, rate, burst in (("a", 20, 10), ("b", 20, 10), ("c", 50, 25)):
        assert_rate(found, key, rate, burst)


async def test_without_a_burst_the_tasks_of_a_key_are_a_whole_interval_apart(scene: Cluster):
    limits: Json = {"fairness_key_rps_limit_default": 20, "fairness_key_rps_burst_seconds": 0}
    (await scene.config(**limits)).expect(200)
    await scene.queue_up(standing("a", 40) + standing("b", 40))
    found = await claims(await scene.worker("w1"), 20)
    for key in "ab":
        assert_rate(found, key, 20, burst=1)


async def test_a_queue_spends_its_rate_on_its_keys_by_weight(scene: Cluster):
    limits: Json = {
        "queue_rps_limit": 50,
        "queue_rps_burst_seconds": 0.2,
        "fairness_key_rps_limit_default": 30,
    }
    (await scene.config(**limits)).expect(200)
    await scene.queue_up(standing("a", 30) + standing("b", 30))
    await scene.queue_up(standing("c", 60, fairness_weight=2.5))
    found = await claims(await scene.worker("w1"), 45)
    assert_rate(found, None, 50, burst=10)
    given = counts([task for claim in found for task in claim][:45])
    assert all(abs(given[key] - share) <= 1 for key, share in (("a", 10), ("b", 10), ("c", 25))), given


async def test_a_rate_is_not_divided_among_servers_nor_multiplied_by_them(scene: Cluster):
    (await scene.config(queue_rps_limit=40, queue_rps_burst_seconds=0.25)).expect(200)
    await scene.queue_up(standing("a", 60))
    hand = await scene.worker("w1")
    found = [await hand.some(1, server=scene.servers[n % len(scene.servers)]) for n in range(40)]
    assert most_over_rate([task for claim in found for task in claim], 40, burst=10) <= 0


async def test_a_key_that_is_closed_gives_nothing_while_others_go_and_resumes_at_the_next_claim(
    scene: Cluster,
):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("closed", 50) + standing("open", 50))
    (await scene.config(keys={"closed": CLOSED})).expect(200)
    assert counts(await hand.drain(40)) == {"open": 40}
    (await scene.config(keys={"closed": {"rps_limit": "default"}})).expect(200)
    assert abs(counts(await hand.drain(20))["closed"] - 10) <= 1


@any_or_named_types
async def test_a_closed_default_closes_every_key_but_those_with_a_rate_of_their_own(
    scene: Cluster, types: Json
):
    hand = await scene.worker("w1", **types)
    await scene.queue_up([{"fairness_key": f"closed-{number:03}"} for number in range(150)])
    await scene.queue_up(standing("open", 20))
    (await scene.config(fairness_key_rps_limit_default=0, keys={"open": {"rps_limit": 1000}})).expect(200)
    assert counts(await hand.drain(20)) == {"open": 20}
    assert (await hand.poll("activity", max_tasks=1)).expect(200)["poll_status"] == "throttled"
    (await scene.config(fairness_key_rps_limit_default="default")).expect(200)
    assert len(counts(await hand.drain(150))) == 150


async def test_a_closed_queue_holds_its_polls_until_it_is_opened(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("a", 5))
    (await scene.config(queue_rps_limit=0)).expect(200)
    assert (await hand.poll("activity")).expect(200)["poll_status"] == "throttled"
    rate = (await scene.line())["rate"]
    assert (rate["limit"], rate["source"], rate["next_dispatch_at"]) == (0, "operator", None)
    (await scene.config(queue_rps_limit=None)).expect(200)
    assert len(await hand.some(5)) == 5


async def test_a_long_backlog_of_a_slow_key_does_not_hold_up_a_fast_one_behind_it(scene: Cluster):
    (await scene.config(keys={"slow": {"rps_limit": 5}, "fast": {"rps_limit": 50}})).expect(200)
    await scene.queue_up(standing("slow", 400))
    await scene.queue_up(standing("fast", 200))
    found = await claims(await scene.worker("w1"), 90)
    assert counts(found[0]) == {"slow": 5, "fast": 50}
    assert_rate(found, "slow", 5, burst=5)
    assert_rate(found, "fast", 50, burst=50)


def of_queue(rate: float) -> Json:
    return {"queue_rps_limit": rate}


def of_key(rate: float) -> Json:
    return {"keys": {"a": {"rps_limit": rate}}}


@pytest.mark.parametrize("limit", [of_queue, of_key])
async def test_a_limit_that_is_raised_opens_at_once_whatever_was_owed_at_the_old_one(
    scene: Cluster, limit: Callable[[float], Json]
):
    hand = await scene.worker("w1")
    (await scene.config(**limit(0.001))).expect(200)
    await scene.queue_up(standing("a", 30))
    assert len(await hand.some(10)) == 1
    assert (await hand.poll("activity", max_tasks=10)).expect(200)["poll_status"] == "throttled"
    (await scene.config(**limit(1000))).expect(200)
    assert counts(await hand.drain(29)) == {"a": 29}


async def test_a_key_says_that_it_waits_for_its_rate_and_until_when(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.config(keys={"a": {"rps_limit": 0.01}})).expect(200)
    await scene.queue_up(standing("a", 3) + standing("b", 3))
    await hand.drain(4)
    [shown] = (await scene.line())["top_keys"]
    assert (shown["fairness_key"], shown["state"], shown["backlog_count"]) == ("a", "rate_limited", 2)
    assert shown["open_at"] is not None


@pytest.mark.parametrize("way", ["registration", "heartbeat", "poll"])
async def test_a_worker_conveys_a_rate_which_stays_until_another_says_otherwise(scene: Cluster, way: str):
    rate: Json = {"max_task_queue_activities_per_second": 0.01}
    hand = await scene.worker("w1", **(rate if way == "registration" else {}))
    if way == "heartbeat":
        beat = await scene.post("/api/worker/heartbeat", {"worker_id": "w1"} | rate, role="worker")
        beat.expect(200)
    await scene.queue_up(standing("a", 5))
    assert len(await hand.some(5, **(rate if way == "poll" else {}))) == 1
    assert (await hand.poll("activity", max_tasks=5)).expect(200)["poll_status"] == "throttled"
    config = await scene.read_config()
    assert config["effective"]["queue_rps_limit"] == 0.01
    assert config["effective"]["queue_rps_limit_source"] == "worker"
    assert (config["worker_rps_limit"]["value"], config["worker_rps_limit"]["worker_id"]) == (0.01, "w1")
    other = await scene.worker("w2", max_task_queue_activities_per_second=1000)
    assert len(await other.drain(4)) == 4


async def test_the_operators_rate_beats_the_workers_and_the_workers_can_be_forgotten(scene: Cluster):
    hand = await scene.worker("w1", max_task_queue_activities_per_second=1000)
    await scene.queue_up(standing("a", 30))
    (await scene.config(queue_rps_limit=0)).expect(200)
    again: Json = {"max_task_queue_activities_per_second": 500}
    assert (await hand.poll("activity", **again)).expect(200)["poll_status"] == "throttled"
    told = (await scene.read_config())["effective"]
    assert (told["queue_rps_limit"], told["queue_rps_limit_source"]) == (0, "operator")
    (await scene.config(queue_rps_limit="default")).expect(200)
    told = (await scene.read_config())["effective"]
    assert told["queue_rps_limit_source"] == "worker"
    (await scene.config(worker_rps_limit="default")).expect(200)
    told = (await scene.read_config())["effective"]
    assert (told["queue_rps_limit"], told["queue_rps_limit_source"]) == (None, "none")
    assert len(await hand.some(30)) == 30


@pytest.mark.parametrize("by", ["workers", "operator"])
async def test_workers_on_all_servers_share_one_rate_whoever_says_it_and_one_without_a_cap_does_not_lift_it(
    scene: Cluster, by: str
):
    """Three workers ask every server at once; the third has no opinion. The log of leases is what counts."""
    said: Json = {"max_task_queue_activities_per_second": 40, "queue_rate_burst_seconds": 0.25}
    words: list[Json] = [said, said, {}]
    if by == "operator":
        words = [said | {"max_task_queue_activities_per_second": each} for each in (5, 5, 1000)]
        (await scene.config(queue_rps_limit=40, queue_rps_burst_seconds=0.25)).expect(200)
    await scene.queue_up(standing("a", 60))
    hands = [await scene.worker(f"w{number}", **each) for number, each in enumerate(words)]

    async def work(number: int, hand: Hand) -> list[Json]:
        taken: list[Json] = []
        for turn in range(16):
            server = scene.servers[(number + turn) % len(scene.servers)]
            taken += await hand.some(1, server=server, **words[number])
        return taken

    found = await asyncio.gather(*(work(number, hand) for number, hand in enumerate(hands)))
    tasks = [task for each in found for task in each]
    assert len({task["task_id"] for task in tasks}) == 48
    assert most_over_rate(tasks, 40, burst=10) <= 0
    rate = (await scene.line())["rate"]
    assert (rate["limit"], rate["source"]) == (40, "worker" if by == "workers" else "operator")
    assert (rate["conflict"] is None) == (by == "workers")
