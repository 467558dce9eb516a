"""Settings of a queue over HTTP: read, changed atomically, logged, and rejected by field."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.acceptance.cluster import Cluster, Json
from tests.support.dispatch_log import counts, standing

EVERYTHING: Json = {
    "queue_rps_limit": 500,
    "queue_rps_burst_seconds": 2,
    "fairness_key_rps_limit_default": 33.3,
    "fairness_key_rps_burst_seconds": 0.5,
    "fairness": "on",
    "fairness_counts": "running",
    "max_running": 50,
    "fairness_key_max_running_default": 5,
    "aging_wait_seconds": 30,
    "aging_every": 20,
}


async def test_a_queue_that_nobody_configured_has_no_settings(scene: Cluster):
    found = await scene.read_config("never-used")
    assert (found["task_queue"], found["task_queue_type"], found["version"]) == ("never-used", "activity", 0)
    assert found["namespace"] == scene.namespace
    assert all(found[name] is None for name in EVERYTHING)
    assert (found["keys"], found["key_count"], found["worker_rps_limit"]) == ([], 0, None)
    assert found["effective"] == {
        "queue_rps_limit": None,
        "queue_rps_limit_source": "none",
        "fairness": True,
        "fairness_source": "namespace",
    }


async def test_every_setting_is_told_with_its_story_and_can_be_unset(scene: Cluster):
    reasons = {"queue_rps_limit_reason": "overall limit", "reason": "the night shift"}
    changed = (await scene.config(**EVERYTHING, **reasons)).expect(200).body
    assert changed == await scene.read_config()
    assert {name: changed[name]["value"] for name in EVERYTHING} == EVERYTHING
    for name in EVERYTHING:
        expected = "overall limit" if name == "queue_rps_limit" else "the night shift"
        assert (changed[name]["reason"], changed[name]["updated_by"]) == (expected, "operator")
        assert changed[name]["updated_at"]
    assert (await scene.config(queue_rps_limit_reason="still")).expect(200)["queue_rps_limit"][
        "reason"
    ] == "still"
    unset = (await scene.config(**dict.fromkeys(EVERYTHING, "default"))).expect(200)
    assert all(unset[name] is None for name in EVERYTHING)


async def test_what_a_change_does_not_name_stays_as_it_is(scene: Cluster):
    (await scene.config(max_running=5, keys={"a": {"paused": True}})).expect(200)
    after = (await scene.config(set_fairness_weight_overrides={"a": 2})).expect(200)
    assert after["max_running"]["value"] == 5
    [key] = after["keys"]
    assert (key["fairness_key"], key["weight_override"], key["paused"]) == ("a", 2, True)
    after = (await scene.config(max_running=None, unset_fairness_weight_overrides=["a"])).expect(200)
    assert after["max_running"] is None
    [key] = after["keys"]
    assert (key["weight_override"], key["paused"]) == (None, True)
    assert (await scene.config(keys={"a": {"paused": False}})).expect(200)["keys"] == []


async def test_activity_and_workflow_tasks_of_a_queue_have_settings_of_their_own(scene: Cluster):
    (await scene.config(kind="activity", max_running=5)).expect(200)
    (await scene.config(kind="workflow", max_running=7)).expect(200)
    assert (await scene.read_config(kind="activity"))["max_running"]["value"] == 5
    assert (await scene.read_config(kind="workflow"))["max_running"]["value"] == 7
    other = await scene.read_config("another-queue")
    assert other["max_running"] is None


async def test_namespaces_do_not_see_each_others_settings(scene: Cluster):
    (await scene.config(max_running=5)).expect(200)
    assert (await scene.at(None).read_config())["max_running"] is None


async def test_five_thousand_overrides_are_set_in_one_call_and_hold_for_the_backlog(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up([s for key in ("key-0001", "key-4999", "plain") for s in standing(key, 100)])
    assert counts(await hand.drain(30)) == {"key-0001": 10, "key-4999": 10, "plain": 10}
    weights = {f"key-{number:04}": 4 for number in range(5000)}
    told = (await scene.config(set_fairness_weight_overrides=weights)).expect(200)
    assert (told["key_count"], len(told["keys"])) == (5000, 1000)
    after = counts(await hand.drain(90))
    assert abs(after["key-0001"] - 40) <= 1
    assert abs(after["plain"] - 10) <= 1
    await scene.queue_up(standing("key-2500", 50))
    assert abs(counts(await hand.drain(52))["key-2500"] - 16) <= 1
    refused = await scene.config(set_fairness_weight_overrides={f"more-{n}": 1 for n in range(5001)})
    refused.expect(422, "validation_failed")
    cleared = (await scene.config(clear_fairness_weight_overrides=True)).expect(200)
    assert cleared["key_count"] == 0


async def test_many_busy_keys_that_get_a_weight_in_one_call_all_go_by_it_at_once(scene: Cluster):
    hand = await scene.worker("w1")
    heavy = [f"heavy-{number:03}" for number in range(280)]
    light = [f"light-{number:03}" for number in range(20)]
    await scene.queue_up([{"fairness_key": key} for key in (heavy + light) * 3])
    await hand.drain(300)
    (await scene.config(set_fairness_weight_overrides=dict.fromkeys(heavy, 2))).expect(200)
    after = counts(await hand.drain(580))
    assert {after[key] for key in heavy} == {2}
    assert {after[key] for key in light} == {1}


async def test_a_change_is_logged_with_who_when_and_why(scene: Cluster):
    (await scene.config(queue_rps_limit=5, reason="first")).expect(200)
    (await scene.config(queue_rps_limit=None, keys={"a": {"rps_limit": 2}}, role="admin")).expect(200)
    path = "/api/task-queues/q/config/history?task_queue_type=activity"
    changes = (await scene.get(path)).expect(200)["changes"]
    assert [
        (each["version"], each["by"], each["setting"], each["fairness_key"], each["before"], each["after"])
        for each in changes
    ] == [
        (2, "admin", "queue_rps_limit", None, 5, None),
        (2, "admin", "rps_limit", "a", None, 2),
        (1, "operator", "queue_rps_limit", None, None, 5),
    ]
    assert [each["reason"] for each in changes] == [None, None, "first"]
    assert len((await scene.get(f"{path}&limit=1")).expect(200)["changes"]) == 1


async def test_a_change_on_an_outdated_version_is_refused_and_of_many_at_once_one_wins(scene: Cluster):
    (await scene.config(max_running=1, if_version=0)).expect(200)
    stale = (await scene.config(max_running=2, if_version=0)).expect(409, "config_version_conflict")
    assert stale["current_version"] == 1
    rivals = await asyncio.gather(*(scene.config(max_running=n, if_version=1) for n in range(10, 16)))
    assert sorted(each.status for each in rivals) == [200] + [409] * 5
    assert (await scene.read_config())["version"] == 2


async def test_only_operators_and_admins_may_change_settings(scene: Cluster):
    (await scene.config(max_running=1, role="admin")).expect(200)
    assert (await scene.config(max_running=2, role="worker")).status == 403
    assert (await scene.read_config())["max_running"]["value"] == 1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"queue_rps_limit": -1}, "queue_rps_limit"),
        ({"queue_rps_limit": 1e-7}, "queue_rps_limit"),
        ({"queue_rps_limit": 1_000_001}, "queue_rps_limit"),
        ({"queue_rps_limit": "fast"}, "queue_rps_limit"),
        ({"fairness_key_rps_limit_default": -1}, "fairness_key_rps_limit_default"),
        ({"queue_rps_burst_seconds": -1}, "queue_rps_burst_seconds"),
        ({"worker_rps_limit": 5}, "worker_rps_limit"),
        ({"max_running": -1}, "max_running"),
        ({"max_running": 1.5}, "max_running"),
        ({"aging_every": 1, "aging_wait_seconds": 1}, "aging_every"),
        ({"fairness": "maybe"}, "fairness"),
        ({"fairness_counts": "seconds"}, "fairness_counts"),
        ({"set_fairness_weight_overrides": {"a": 0}}, "set_fairness_weight_overrides.a"),
        ({"set_fairness_weight_overrides": {"a": 1e6}}, "set_fairness_weight_overrides.a"),
        ({"set_fairness_weight_overrides": {"": 1}}, "set_fairness_weight_overrides"),
        ({"set_fairness_weight_overrides": {"ä" * 33: 1}}, "keys." + "ä" * 33),
        ({"keys": {"a": {"rps_limit": -1}}}, "keys.a.rps_limit"),
        ({"keys": {"a": {"max_running": -1}}}, "keys.a.max_running"),
        ({"reason": "x" * 1001}, "reason"),
        ({"queue_rps_limt": 5}, "queue_rps_limt"),
    ],
    ids=str,
)
async def test_a_setting_out_of_bounds_is_refused_by_name_and_changes_nothing(
    scene: Cluster, fields: dict[str, Any], named: str
):
    refused = (await scene.config(**{"max_running": 3, **fields})).expect(422, "validation_failed")
    assert list(refused["errors"]) == [named]
    assert (await scene.read_config())["version"] == 0


async def test_what_is_just_within_bounds_is_taken(scene: Cluster):
    for fields in (
        {"queue_rps_limit": 0},
        {"queue_rps_limit": 0.000001},
        {"queue_rps_limit": 1_000_000},
        {"set_fairness_weight_overrides": {"ä" * 32: 0.001, "b": 1000}},
        {"max_running": 5, "reason": "x" * 1000},
    ):
        (await scene.config(**fields)).expect(200)


async def test_setting_and_unsetting_a_key_at_once_is_refused(scene: Cluster):
    both: Json = {"set_fairness_weight_overrides": {"a": 2}, "unset_fairness_weight_overrides": ["a"]}
    (await scene.config(**both)).expect(422, "override_conflict")


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_rps_limit": 5},
        {"fairness_key_rps_limit_default": 5},
        {"queue_rps_burst_seconds": 1},
        {"keys": {"a": {"rps_limit": 5}}},
        {"worker_rps_limit": "default"},
    ],
    ids=str,
)
async def test_workflow_tasks_have_no_rates(scene: Cluster, fields: Json):
    (await scene.config(kind="workflow", **fields)).expect(422, "rate_limit_not_for_workflow_tasks")


async def test_workflow_tasks_share_by_the_operators_weights(scene: Cluster):
    (await scene.config(kind="workflow", set_fairness_weight_overrides={"a": 3})).expect(200)
    items = [
        {"workflow_type": "t", "workflow_id": f"{key}-{n}", "task_queue": "q", "fairness_key": key}
        for key in "ab"
        for n in range(30)
    ]
    assert (await scene.post("/api/workflows/batch", {"items": items})).expect(200)["accepted"] == 60
    hand = await scene.worker("w1")
    tasks = (await hand.poll("workflow", max_tasks=40)).expect(200)["tasks"]
    assert counts(tasks) == {"a": 30, "b": 10}
