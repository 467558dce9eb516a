"""Slots on real servers: a worker never holds more tasks, with any number of open polls and servers."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from penstock.core.verify.journal import LeaseEnded, LeaseGranted, LeaseId
from tests.acceptance.cluster import Cluster, open_polls
from tests.acceptance.witness import LimitWitness
from tests.support.dispatch_log import standing

SETTINGS = {"DW_JOURNAL": "true"}
pytestmark = pytest.mark.fault("F66")


async def test_many_polls_at_once_on_all_servers_fill_the_slots_and_no_more(scene: Cluster):
    hand = await scene.worker("w1", max_concurrent_activity_tasks=5)
    other = await scene.worker("w2", max_concurrent_activity_tasks=2)
    await scene.queue_up(standing("", 40))
    polls = [each.poll("activity", max_tasks=3) for each in (hand, other) for _ in range(15)]
    replies = [(await reply).expect(200) for reply in asyncio.as_completed(polls)]
    held = Counter(task["lease_owner"] for reply in replies for task in reply["tasks"])
    assert held == {"w1": 5, "w2": 2}
    assert {reply["poll_status"] for reply in replies} == {"leased", "empty"}


async def test_a_full_worker_that_waits_is_answered_when_it_ends_a_task_through_another_server(
    scene: Cluster,
):
    hand = await scene.worker("w1", max_concurrent_activity_tasks=1)
    await scene.queue_up(standing("", 2))
    task = await hand.take("activity")
    waiting = asyncio.create_task(hand.take("activity", server=scene.first))
    await open_polls(scene, 1)
    (await hand.finish(task)).expect(200)
    assert (await waiting)["task_id"] != task["task_id"]


async def test_a_worker_that_was_restarted_under_its_id_is_not_held_up_by_its_old_leases(scene: Cluster):
    old = await scene.worker("w1", max_concurrent_activity_tasks=2)
    await scene.queue_up(standing("", 6))
    assert len(await old.drain(2)) == 2
    assert (await old.poll("activity")).expect(200)["poll_status"] == "empty"
    new = await scene.worker("w1", max_concurrent_activity_tasks=2)
    assert len(await new.drain(2)) == 2
    assert (await new.poll("activity")).expect(200)["poll_status"] == "empty"


async def test_why_says_that_all_slots_are_leased_and_by_whom(scene: Cluster):
    hand = await scene.worker("w1", max_concurrent_activity_tasks=1)
    for name in ("a", "b"):
        (await scene.start_activity(name)).expect(201)
    await hand.take("activity")
    binding = (await scene.get("/api/activities/b/why")).expect(200)["binding"]
    assert (binding["kind"], binding["max"], binding["used"]) == ("saturated", 1, 1)
    assert [each["worker"] for each in binding["holders"]] == ["w1"]


async def test_at_no_moment_of_a_busy_hour_does_a_worker_hold_more_than_its_slots(scene: Cluster):
    """By the journal: every lease from its grant to its end, in the order in which they were committed."""
    witness = LimitWitness(scene)
    slots = {"w1": 3, "w2": 1, "w3": 7}
    await scene.queue_up(standing("", 120))
    hands = [await witness.worker(name, max_concurrent_activity_tasks=most) for name, most in slots.items()]
    left = 120

    async def work(number: int) -> None:
        nonlocal left
        hand = hands[number % len(hands)]
        while left > 0:
            reply = (await hand.poll("activity", timeout=1, max_tasks=4)).expect(200)
            for task in reply["tasks"]:
                (await hand.finish(task)).expect(200)
                left -= 1

    await asyncio.gather(*(work(number) for number in range(12)))
    running: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    owner: dict[LeaseId, str] = {}
    for line in await witness.verified():
        if (
            isinstance(line, LeaseGranted)
            and line.worker_id is not None
            and line.namespace == scene.namespace
        ):
            owner[line.lease_id] = line.worker_id
            running[line.worker_id] += 1
            peak[line.worker_id] = max(peak[line.worker_id], running[line.worker_id])
        elif isinstance(line, LeaseEnded) and line.lease_id in owner:
            running[owner.pop(line.lease_id)] -= 1
    assert all(peak[name] <= most for name, most in slots.items()), peak
    assert peak["w2"] == 1
