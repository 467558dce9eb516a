"""Inheritance of level, key and weight over HTTP: override, own, of the workflow, default."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.cluster import Cluster, Hand, Json

OWN: Json = {"priority_key": 1, "fairness_key": "own", "fairness_weight": 2.5}
OF_THE_WORKFLOW: Json = {"priority_key": 2, "fairness_key": "workflow", "fairness_weight": 7}
DEFAULT: Json = {"priority_key": 3, "fairness_key": "", "fairness_weight": 1}
FIELDS = list(DEFAULT)
COMMAND: Json = {"type": "schedule_activity", "activity_type": "charge", "arguments": []}


async def standing(scene: Cluster, kind: str, queue: str = "q") -> Json:
    """The standing of the only task that waits."""
    [shown] = (await scene.line(queue, kind))["top_keys"]
    return {
        "priority_key": shown["priority_key"],
        "fairness_key": shown["fairness_key"],
        "fairness_weight": shown["weight"],
    }


async def start(scene: Cluster, kind: str, said: Json) -> None:
    """A workflow, or a standalone activity."""
    (await (scene.start if kind == "workflow" else scene.start_activity)("only", **said)).expect(201)


async def schedule(hand: Hand, of_workflow: Json, said: Json) -> None:
    """An activity of a workflow."""
    (await hand.cluster.start("order-1", **of_workflow)).expect(201)
    (await hand.decide(await hand.take(), COMMAND | said)).expect(200)


@pytest.mark.parametrize("kind", ["workflow", "activity"])
@pytest.mark.parametrize("field", FIELDS)
async def test_a_start_takes_what_it_names_and_the_default_of_the_rest(scene: Cluster, kind: str, field: str):
    named = {field: OWN[field]}
    await start(scene, kind, named)
    assert await standing(scene, kind) == DEFAULT | named


@pytest.mark.parametrize("kind", ["workflow", "activity"])
async def test_a_start_that_names_nothing_takes_every_default(scene: Cluster, kind: str):
    await start(scene, kind, {})
    assert await standing(scene, kind) == DEFAULT


@pytest.mark.parametrize("field", FIELDS)
async def test_an_activity_takes_what_its_command_names_and_its_workflows_of_the_rest(
    scene: Cluster, field: str
):
    named = {field: OWN[field]}
    await schedule(await scene.worker("w1"), OF_THE_WORKFLOW, named)
    assert await standing(scene, "activity") == OF_THE_WORKFLOW | named


@pytest.mark.parametrize("field", FIELDS)
async def test_an_activity_whose_command_names_nothing_takes_what_its_workflow_named(
    scene: Cluster, field: str
):
    inherited = {field: OF_THE_WORKFLOW[field]}
    await schedule(await scene.worker("w1"), inherited, {})
    assert await standing(scene, "activity") == DEFAULT | inherited


@pytest.mark.parametrize("field", FIELDS)
async def test_an_activity_may_go_back_to_the_default_by_naming_it(scene: Cluster, field: str):
    await schedule(await scene.worker("w1"), OF_THE_WORKFLOW, {field: DEFAULT[field]})
    assert await standing(scene, "activity") == OF_THE_WORKFLOW | {field: DEFAULT[field]}


@pytest.mark.parametrize("said", [{}, {"fairness_weight": 2.5}], ids=["unsaid", "said"])
@pytest.mark.parametrize("target", ["workflow", "activity", "activity of a workflow"])
async def test_an_override_beats_every_weight_and_touches_nothing_else(
    scene: Cluster, target: str, said: Json
):
    kind = target.partition(" ")[0]
    (await scene.config(kind=kind, set_fairness_weight_overrides={"workflow": 40})).expect(200)
    tenant = {"fairness_key": "workflow", "priority_key": 4}
    if target == kind:
        await start(scene, kind, tenant | said)
    else:
        await schedule(await scene.worker("w1"), OF_THE_WORKFLOW | tenant, said)
    assert await standing(scene, kind) == tenant | {"fairness_weight": 40}


async def test_an_override_of_activities_leaves_workflow_tasks_alone(scene: Cluster):
    (await scene.config(kind="activity", set_fairness_weight_overrides={"own": 40})).expect(200)
    await start(scene, "workflow", OWN)
    assert await standing(scene, "workflow") == OWN


async def test_later_tasks_of_a_workflow_and_further_attempts_keep_their_standing(scene: Cluster):
    hand = await scene.worker("w1")
    retried = {"retry_policy": {"max_attempts": 2, "backoff_seconds": [0]}}
    await schedule(hand, OF_THE_WORKFLOW, OWN | retried)
    first = await hand.take("activity")
    (await hand.report(first, "fail", failure={"message": "again"})).expect(200)
    again = await hand.take("activity")
    for task in (first, again):
        assert (task["priority"], task["fairness_key"]) == (1, "own")
    (await hand.finish(again)).expect(200)
    assert await standing(scene, "workflow") == OF_THE_WORKFLOW


@pytest.mark.parametrize("kind", ["workflow", "activity"])
async def test_standing_may_be_said_under_one_name(scene: Cluster, kind: str):
    await start(scene, kind, {"priority": OWN})
    assert await standing(scene, kind) == OWN


async def test_a_command_may_say_its_standing_under_one_name(scene: Cluster):
    await schedule(await scene.worker("w1"), OF_THE_WORKFLOW, {"priority": {"fairness_key": "own"}})
    assert await standing(scene, "activity") == OF_THE_WORKFLOW | {"fairness_key": "own"}


async def test_what_is_said_twice_must_agree(scene: Cluster):
    (await scene.start_activity("a", priority=7, priority_key=4)).expect(201)
    refused = await scene.start_activity("b", priority={"fairness_key": "x"}, fairness_key="y")
    assert list(refused.expect(422, "validation_failed")["errors"]) == ["fairness_key"]


TAKEN: list[Json] = [
    {"fairness_key": "x" * 64},
    {"fairness_key": "ä" * 32},
    {"fairness_weight": 0.001},
    {"fairness_weight": 1000},
    {"priority_key": 1},
    {"priority_key": 5},
    {"priority": 0},
    {"priority": 9},
    {"priority": 4},
]
REFUSED: list[tuple[str, Any]] = [
    ("priority_key", -1),
    ("priority_key", 0),
    ("priority_key", 6),
    ("priority_key", 100),
    ("priority", 10),
    ("fairness_key", "x" * 65),
    ("fairness_key", "ä" * 33),
    ("fairness_weight", -1),
    ("fairness_weight", 0),
    ("fairness_weight", 1e-7),
    ("fairness_weight", 0.0009),
    ("fairness_weight", 1000.1),
    ("fairness_weight", 5000),
]


async def test_what_is_out_of_bounds_is_refused_by_name_wherever_it_is_said(scene: Cluster):
    hand = await scene.worker("w1")
    (await scene.start("order-1")).expect(201)
    task = await hand.take()
    for field, value in REFUSED:
        said = {field: value}
        for start_ in (scene.start, scene.start_activity):
            refused = (await start_("a", **said)).expect(422, "validation_failed")
            assert list(refused["errors"]) == [field], said
        refused = (await hand.decide(task, COMMAND | said)).expect(422, "validation_failed")
        assert list(refused["errors"]) == [f"commands.0.{field}"], said


async def test_a_weight_that_is_no_number_is_refused(scene: Cluster):
    body = json.dumps({"activity_type": "t", "task_queue": "q", "fairness_weight": "W"})
    for number in ("NaN", "Infinity", "-Infinity", "1e999"):
        raw = body.replace('"W"', number).encode()
        (await scene.post("/api/activities", raw=raw)).expect(400, "malformed_json")


async def test_what_is_just_within_bounds_is_taken(scene: Cluster):
    for number, said in enumerate(TAKEN):
        queue = f"q-{number}"
        (await scene.start_activity(f"a-{number}", task_queue=queue, **said)).expect(201)
        level = {"priority_key": {0: None, 4: None, 9: 5}[said["priority"]]} if "priority" in said else said
        assert await standing(scene, "activity", queue) == DEFAULT | level
