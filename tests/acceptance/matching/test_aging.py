"""Aging over HTTP: levels that wait too long are served now and then, but only if it is configured."""

from __future__ import annotations

from collections import Counter

from tests.acceptance.cluster import Cluster, Hand, Json, any_or_named_types, until
from tests.support.dispatch_log import standing

EVERY = 20
A_DAY = 86_400


async def levels(hand: Hand, count: int, at_once: int = 100) -> list[int]:
    return [task["priority_key"] for task in await hand.drain(count, at_once)]


async def waited(scene: Cluster, level: int, seconds: float) -> None:
    """Wait until the oldest task of a level has waited that long by the server's clock."""

    async def so_long() -> bool:
        shown = (await scene.line())["backlog_by_priority"]
        return any(each["priority_key"] == level and each["oldest_wait_seconds"] >= seconds for each in shown)

    await until(so_long)


@any_or_named_types
async def test_while_a_level_starves_every_twentieth_task_is_one_of_its_own(scene: Cluster, types: Json):
    (await scene.config(aging_wait_seconds=A_DAY, aging_every=EVERY)).expect(200)
    await scene.queue_up(standing("a", 500, priority_key=1) + standing("b", 60, priority_key=5))
    hand = await scene.worker("w1", **types)
    assert set(await levels(hand, 60)) == {1}
    await waited(scene, 5, 0.3)
    (await scene.config(aging_wait_seconds=0.05)).expect(200)
    order = await levels(hand, 400, at_once=70)
    assert [place for place, level in enumerate(order) if level == 5] == list(range(19, 400, EVERY))
    (await scene.config(aging_wait_seconds="default", aging_every="default")).expect(200)
    assert set(await levels(hand, 40)) == {1}


async def test_of_several_starving_levels_the_one_that_waits_longest_has_the_turn(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("a", 2, priority_key=4), at_once=1)
    await waited(scene, 4, 0.01)
    await scene.queue_up(standing("a", 4, priority_key=3), at_once=1)
    await scene.queue_up(standing("a", 40, priority_key=1))
    (await scene.config(aging_wait_seconds=0, aging_every=5)).expect(200)
    order = await levels(hand, 20, at_once=7)
    assert Counter(order) == {1: 16, 4: 2, 3: 2}
    assert [order[place] for place in (4, 9, 14, 19)] == [4, 4, 3, 3]


async def test_keys_share_the_turns_of_a_starving_level_by_weight(scene: Cluster):
    await scene.queue_up(standing("light", 20, priority_key=5))
    await scene.queue_up(standing("heavy", 20, priority_key=5, fairness_weight=3))
    await scene.queue_up(standing("urgent", 80, priority_key=1))
    (await scene.config(aging_wait_seconds=0, aging_every=2)).expect(200)
    tasks: list[Json] = await (await scene.worker("w1")).drain(32)
    starved = Counter(task["fairness_key"] for task in tasks if task["priority_key"] == 5)
    assert starved == {"light": 4, "heavy": 12}


async def test_aging_needs_both_how_long_and_how_often(scene: Cluster):
    refused = (await scene.config(aging_wait_seconds=1)).expect(422, "validation_failed")
    assert list(refused["errors"]) == ["aging_every"]
    refused = (await scene.config(aging_every=5)).expect(422, "validation_failed")
    assert list(refused["errors"]) == ["aging_wait_seconds"]
