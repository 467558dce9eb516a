"""Priority level, fairness key and weight over HTTP: given, inherited, ordered, rejected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.cluster import Cluster


async def order_of(scene: Cluster, count: int) -> list[str]:
    hand = await scene.worker("w1")
    return [(await hand.take("activity"))["workflow_id"] for _ in range(count)]


async def test_lower_levels_go_first_whatever_came_first(scene: Cluster):
    for level in (6, 5, 1):
        (await scene.start_activity(f"level-{level}", priority=level)).expect(201)
    (await scene.start_activity("unnamed")).expect(201)
    assert await order_of(scene, 4) == ["level-1", "level-5", "unnamed", "level-6"]


async def test_a_task_with_priority_4_goes_before_one_that_names_none(scene: Cluster):
    (await scene.start_activity("unnamed")).expect(201)
    (await scene.start_activity("a-bit-urgent", priority=4)).expect(201)
    assert await order_of(scene, 2) == ["a-bit-urgent", "unnamed"]


async def test_priority_keys_and_levels_share_one_scale(scene: Cluster):
    for key in (5, 4, 3, 2, 1):
        (await scene.start_activity(f"key-{key}", priority_key=key)).expect(201)
    for level in range(9, -1, -1):
        (await scene.start_activity(f"level-{level}", priority=level)).expect(201)
    assert await order_of(scene, 15) == [
        *("level-0", "key-1", "level-1", "level-2", "key-2", "level-3", "level-4", "key-3", "level-5"),
        *("level-6", "key-4", "level-7", "level-8", "key-5", "level-9"),
    ]
    shown = (await scene.get("/api/activities/key-2")).expect(200)
    assert (shown["priority"], shown["priority_key"]) == (3, 2)
    shown = (await scene.get("/api/activities/level-4")).expect(200)
    assert (shown["priority"], shown["priority_key"]) == (4, None)


async def test_keys_take_turns_however_long_the_backlog_of_one_is(scene: Cluster):
    for number in range(6):
        (await scene.start_activity(f"big-{number}", fairness_key="big")).expect(201)
    for number in range(2):
        (await scene.start_activity(f"small-{number}", fairness_key="small")).expect(201)
    first = await order_of(scene, 4)
    assert sorted(each.partition("-")[0] for each in first) == ["big", "big", "small", "small"]


async def test_a_key_gets_its_share_by_weight_and_first_come_first_served_inside(scene: Cluster):
    for number in range(12):
        (await scene.start_activity(f"gold-{number:02}", fairness_key="gold", fairness_weight=3)).expect(201)
        (await scene.start_activity(f"iron-{number:02}", fairness_key="iron", fairness_weight=1)).expect(201)
    order = await order_of(scene, 16)
    gold = [each for each in order if each.startswith("gold")]
    assert len(gold) == 12
    assert gold == sorted(gold)


async def test_an_activity_inherits_from_its_workflow_what_its_command_leaves_out(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.start("order-1", priority=1, fairness_key="tenant-a")).expect(201)
    plain = {"type": "schedule_activity", "activity_type": "charge", "arguments": []}
    (await hand.decide(await hand.take(), plain, plain | {"priority": 5, "fairness_key": ""})).expect(200)
    inherited, named = await hand.take("activity"), await hand.take("activity")
    assert (inherited["priority"], inherited["fairness_key"]) == (1, "tenant-a")
    assert (named["priority"], named["fairness_key"]) == (5, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 10},
        {"priority": -1},
        {"priority": "high"},
        {"fairness_key": "ä" * 33},
        {"fairness_weight": 0},
        {"fairness_weight": 1000.5},
        {"fairness_weight": "5"},
    ],
    ids=str,
)
async def test_a_standing_out_of_bounds_is_refused_on_starts_and_in_commands(
    scene: Cluster, fields: dict[str, Any]
):
    refused = (await scene.start_activity("a", **fields)).expect(422, "validation_failed")
    assert list(refused["errors"]) == list(fields)
    hand = await scene.worker("w1")
    (await scene.start("order-1")).expect(201)
    task = await hand.take()
    command = {"type": "schedule_activity", "activity_type": "charge", "arguments": []} | fields
    refused = (await hand.decide(task, command)).expect(422, "validation_failed")
    assert list(refused["errors"]) == [f"commands.0.{name}" for name in fields]
