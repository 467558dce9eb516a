"""Switching fairness with a backlog over HTTP: in force from the next claim, and nothing is lost."""

from __future__ import annotations

from tests.acceptance.cluster import Cluster, Json, any_or_named_types
from tests.support.dispatch_log import counts, keys, names, standing


async def fairness(scene: Cluster, mode: str) -> None:
    """Switch it for the whole namespace."""
    asked = {"fairness": mode}
    told = await scene.at(None).ask("PUT", f"/api/namespaces/{scene.namespace}", asked, role="admin")
    assert told.expect(200)["fairness"] == mode


@any_or_named_types
async def test_switched_on_over_a_backlog_it_holds_from_the_next_claim_on(scene: Cluster, types: Json):
    (await scene.config(fairness="off")).expect(200)
    await scene.queue_up(standing("flood", 400))
    await scene.queue_up(standing("other", 10))
    hand = await scene.worker("w1", **types)
    assert counts(await hand.drain(50)) == {"flood": 50}
    (await scene.config(fairness="on")).expect(200)
    fair = await hand.drain(20)
    assert counts(fair)["other"] >= 9
    (await scene.config(fairness="off")).expect(200)
    rest = await hand.drain(340)
    assert len(set(names(fair + rest))) == 360
    assert (await scene.line())["ready_count"] == 0


@any_or_named_types
async def test_switched_off_tasks_go_in_the_order_in_which_they_came(scene: Cluster, types: Json):
    await scene.queue_up(standing("a", 6) + standing("b", 2) + standing("a", 6) + standing("c", 4), at_once=1)
    hand = await scene.worker("w1", **types)
    fair = await hand.drain(5)
    assert len(counts(fair)) == 3
    (await scene.config(fairness="off")).expect(200)
    rest = [int(name[-6:]) for name in names(await hand.drain(13, at_once=4))]
    assert rest == sorted(rest)
    await scene.queue_up(standing("d", 3) + standing("a", 3), at_once=1)
    assert keys(await hand.drain(6)) == ["d"] * 3 + ["a"] * 3


async def test_levels_hold_with_and_without_fairness(scene: Cluster):
    await scene.queue_up(standing("a", 3, priority_key=4) + standing("b", 3, priority_key=2), at_once=1)
    (await scene.config(fairness="off")).expect(200)
    hand = await scene.worker("w1")
    assert keys(await hand.drain(6)) == ["b"] * 3 + ["a"] * 3


@any_or_named_types
async def test_limits_of_keys_hold_without_fairness_and_blocked_tasks_are_stepped_over(
    scene: Cluster, types: Json
):
    (await scene.config(fairness="off", keys={"a": {"max_running": 2}, "b": {"paused": True}})).expect(200)
    await scene.queue_up(standing("a", 150) + standing("b", 150))
    await scene.queue_up(standing("c", 5))
    hand = await scene.worker("w1", **types)
    first = await hand.drain(7)
    assert counts(first) == {"a": 2, "c": 5}
    await hand.finish_all(first[:1])
    assert counts(await hand.drain(1)) == {"a": 1}


async def test_a_namespace_decides_for_its_queues_unless_a_queue_decides_for_itself(scene: Cluster):
    hands = {queue: await scene.worker(f"w-{queue}", queue) for queue in ("plain", "fair")}
    (await scene.config("fair", fairness="on")).expect(200)
    await fairness(scene, "off")
    for queue in hands:
        await scene.queue_up(standing("a", 6) + standing("b", 6), queue, at_once=1)
    assert keys(await hands["plain"].drain(6)) == ["a"] * 6
    assert counts(await hands["fair"].drain(6)) == {"a": 3, "b": 3}
    told = [(await scene.read_config(queue))["effective"] for queue in hands]
    assert [(each["fairness"], each["fairness_source"]) for each in told] == [
        (False, "namespace"),
        (True, "queue"),
    ]
    assert [(await scene.line(queue))["fairness"] for queue in hands] == [False, True]
    await fairness(scene, "on")
    (await scene.config("fair", fairness="default")).expect(200)
    await scene.queue_up(standing("c", 6), "plain")
    assert counts(await hands["plain"].drain(6)) == {"b": 3, "c": 3}
