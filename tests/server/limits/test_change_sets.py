"""Change sets over HTTP: proposed, applied as one or not at all, rolled back, listed and refused."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.server.client import Client

NUMBERS = itertools.count()
PATH = "/api/change-sets"


@pytest.fixture
def name() -> str:
    return f"changed-{next(NUMBERS)}"


async def proposed(client: Client, role: str = "operator", **body: Any) -> dict[str, Any]:
    reply = await client.post(PATH, {"reason": "slow database"} | body, role=role)
    found: dict[str, Any] = reply.expect(201).json
    return found


async def applied(client: Client, **body: Any) -> dict[str, Any]:
    found = await proposed(client, **body)
    done: dict[str, Any] = (await act(client, found, "apply")).expect(200).json
    return done


async def act(client: Client, found: dict[str, Any], verb: str, role: str = "operator", **body: Any) -> Any:
    return await client.post(f"{PATH}/{found['change_set_id']}/{verb}", body, role=role)


async def put(client: Client, target: str, body: dict[str, Any], role: str = "operator") -> Any:
    return await client.request("PUT", target, json.dumps(body).encode(), role=role)


async def config(client: Client, name: str) -> dict[str, Any]:
    target = f"/api/task-queues/{name}/config?task_queue_type=activity"
    found: dict[str, Any] = (await client.get(target)).expect(200).json
    return found


async def test_a_proposal_changes_nothing_and_shows_what_its_settings_have_now(
    everywhere: Client, name: str
) -> None:
    found = await proposed(
        everywhere,
        queues={name: {"max_active_leases": 5, "weights": {"acme": 3}, "keys": {"acme": {"paused": True}}}},
        groups={name: {"max_dispatches_per_minute": 600}},
    )
    assert (await config(everywhere, name))["version"] == 0
    assert found["state"] == "proposed"
    assert found["moved"] == []
    shown = {each["path"]: (each["before"], each["after"], each["now"]) for each in found["items"]}
    assert shown == {
        f"queue:{name}.max_active_leases": (None, 5, None),
        f"queue:{name}.weights.acme": (None, 3.0, None),
        f"queue:{name}.keys.acme.paused": (False, True, False),
        f"group:{name}.max_dispatches_per_minute": (None, 600, None),
    }


async def test_all_settings_of_a_change_set_are_applied_with_its_reason_in_their_logs(
    everywhere: Client, name: str
) -> None:
    found = await applied(
        everywhere,
        queues={name: {"max_active_leases": 5, "queue_rps_limit": 0.5, "weights": {"acme": 3}}},
        groups={name: {"max_dispatches_per_minute": 600}},
    )
    assert found["state"] == "applied"
    queue = await config(everywhere, name)
    assert queue["max_running"]["value"] == 5
    assert queue["queue_rps_limit"]["value"] == 0.5
    assert [(each["fairness_key"], each["weight_override"]) for each in queue["keys"]] == [("acme", 3.0)]
    assert found["change_set_id"] in queue["max_running"]["reason"]
    group = (await everywhere.get(f"/api/budget-groups/{name}")).expect(200).json
    assert group["all"]["limits"]["max_dispatches_per_minute"]["value"] == 600


async def test_a_stale_change_set_is_refused_names_who_moved_what_and_changes_nothing(
    everywhere: Client, name: str
) -> None:
    found = await proposed(
        everywhere,
        queues={name: {"max_active_leases": 5, "weights": {"acme": 3}}, f"{name}-b": {"paused": True}},
    )
    change = {"max_active_leases_per_queue": 9}
    (await everywhere.patch(f"/api/task-queues/{name}/limits", change, role="admin")).expect(200)
    async with everywhere.unchanged():
        refused = (await act(everywhere, found, "apply")).refused(409, "change_set_stale")
    [moved] = refused.json["moved"]
    assert (moved["path"], moved["before"], moved["now"], moved["by"]) == (
        f"queue:{name}.max_active_leases",
        None,
        9,
        "admin",
    )
    assert "by admin" in refused.json["message"]
    assert (await config(everywhere, f"{name}-b"))["paused"] is None


async def test_a_change_of_another_setting_of_the_same_queue_is_in_nobodys_way(
    everywhere: Client, name: str
) -> None:
    found = await proposed(everywhere, queues={name: {"max_active_leases": 5}})
    (await everywhere.patch(f"/api/task-queues/{name}/limits", {"paused": True})).expect(200)
    (await act(everywhere, found, "apply")).expect(200)


async def test_a_rollback_is_a_change_set_that_gives_the_old_values_back(
    everywhere: Client, name: str
) -> None:
    first = await applied(everywhere, queues={name: {"max_active_leases": 7}})
    second = await applied(everywhere, queues={name: {"max_active_leases": 5, "weights": {"acme": 2}}})
    undo = (await act(everywhere, second, "rollback", reason="made it worse")).expect(201).json
    assert undo["undoes"] == second["change_set_id"]
    (await act(everywhere, undo, "apply")).expect(200)
    queue = await config(everywhere, name)
    assert (queue["max_running"]["value"], queue["keys"]) == (7, [])
    undo = (await act(everywhere, first, "rollback", reason="and that")).expect(201).json
    (await act(everywhere, undo, "apply")).expect(200)
    assert (await config(everywhere, name))["max_running"] is None


async def test_a_rollback_does_not_overwrite_a_newer_change(everywhere: Client, name: str) -> None:
    found = await applied(everywhere, queues={name: {"max_active_leases": 5}})
    change = {"max_active_leases_per_queue": 6}
    (await everywhere.patch(f"/api/task-queues/{name}/limits", change)).expect(200)
    undo = (await act(everywhere, found, "rollback", reason="back")).expect(201).json
    assert [each["now"] for each in undo["moved"]] == [6]
    async with everywhere.unchanged():
        (await act(everywhere, undo, "apply")).refused(409, "change_set_stale")


async def test_a_change_set_is_applied_once_and_withdrawn_only_before(everywhere: Client, name: str) -> None:
    found = await applied(everywhere, queues={name: {"max_active_leases": 5}})
    for verb in ("apply", "withdraw"):
        refused = (await act(everywhere, found, verb)).refused(409, "change_set_state_conflict")
        assert refused.json["state"] == "applied"
    other = await proposed(everywhere, queues={name: {"max_active_leases": 6}})
    assert (await act(everywhere, other, "withdraw")).expect(200).json["state"] == "withdrawn"
    (await act(everywhere, other, "apply")).refused(409, "change_set_state_conflict")
    (await act(everywhere, other, "rollback", reason="?")).refused(409, "change_set_state_conflict")


async def test_lists_are_paged_newest_first_and_filtered_by_state(everywhere: Client, name: str) -> None:
    ids = [
        (await proposed(everywhere, queues={name: {"max_active_leases": number}}))["change_set_id"]
        for number in range(3)
    ]
    first = (await everywhere.get(f"{PATH}?page_size=2&state=proposed")).expect(200).json
    assert [each["change_set_id"] for each in first["change_sets"]] == ids[:0:-1]
    rest = f"{PATH}?page_size=1&state=proposed&next_page_token={first['next_page_token']}"
    [third] = (await everywhere.get(rest)).expect(200).json["change_sets"]
    assert third["change_set_id"] == ids[0]


async def test_limits_of_all_namespaces_need_the_admin_role_to_propose_and_to_apply(
    everywhere: Client, name: str
) -> None:
    body = {"reason": "r", "groups": {name: {"scope": "global", "max_dispatches_per_minute": 60}}}
    async with everywhere.unchanged():
        (await everywhere.post(PATH, body, role="operator")).refused(403, "forbidden")
        (
            await everywhere.post(PATH, {"reason": "r", "cluster": {"max_active_leases": 5}}, role="operator")
        ).refused(403, "forbidden")
    found = (await everywhere.post(PATH, body, role="admin")).expect(201).json
    async with everywhere.unchanged():
        (await act(everywhere, found, "apply")).refused(403, "forbidden")
    (await act(everywhere, found, "apply", role="admin")).expect(200)


async def test_another_namespace_neither_sees_nor_applies_a_change_set(everywhere: Client, name: str) -> None:
    (await everywhere.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
    found = await proposed(everywhere, queues={name: {"max_active_leases": 5}})
    target = f"{PATH}/{found['change_set_id']}"
    (await everywhere.get(target, namespace=name)).refused(404, "change_set_not_found")
    (await everywhere.post(f"{target}/apply", {}, namespace=name)).refused(404, "change_set_not_found")


async def test_an_operator_neither_withdraws_nor_rolls_back_limits_of_all_namespaces(
    everywhere: Client, name: str
) -> None:
    body = {"reason": "r", "groups": {name: {"scope": "global", "max_dispatches_per_minute": 60}}}
    found = (await everywhere.post(PATH, body, role="admin")).expect(201).json
    async with everywhere.unchanged():
        for verb in ("withdraw", "approve", "unapprove"):
            (await act(everywhere, found, verb)).refused(403, "forbidden")
        target = f"{PATH}/{found['change_set_id']}"
        edit = {"reason": "r", "queues": {name: {"paused": True}}}
        (await put(everywhere, target, edit, role="operator")).refused(403, "forbidden")
    (await act(everywhere, found, "apply", role="admin")).expect(200)
    async with everywhere.unchanged():
        (await act(everywhere, found, "rollback", reason="?")).refused(403, "forbidden")


async def test_a_namespace_that_wants_approvals_gets_them_before_a_change_or_the_glass_is_broken(
    everywhere: Client, name: str
) -> None:
    (await everywhere.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
    limits = f"/api/namespaces/{name}/limits"
    wanted = (await everywhere.patch(limits, {"change_approvals": 1})).expect(200).json
    assert wanted["all"]["limits"]["change_approvals"]["value"] == 1
    assert "change_approvals" not in wanted["activity_tasks"]["limits"]

    async def call(found: dict[str, Any], verb: str, role: str, **body: Any) -> Any:
        return await everywhere.post(
            f"{PATH}/{found['change_set_id']}/{verb}", body, role=role, namespace=name
        )

    body = {"reason": "r", "queues": {"q": {"max_active_leases": 5}}}
    found = (await everywhere.post(PATH, body, namespace=name)).expect(201).json
    assert found["approvals"] == {"wanted": 1, "missing": 1, "given": []}
    async with everywhere.unchanged():
        (await everywhere.patch(limits, {"change_approvals": 0})).refused(409, "change_needs_approval")
        refused = (await call(found, "apply", "operator")).refused(409, "change_needs_approval")
        assert (refused.json["wanted"], refused.json["missing"]) == (1, 1)
        (await call(found, "approve", "operator")).refused(403, "own_change_set")
        (await call(found, "approve", "admin", plan="0" * 16)).refused(409, "change_plan_moved")
        (await call(found, "apply", "operator", break_glass="fire")).refused(403, "forbidden")
    approved = (await call(found, "approve", "admin", plan=found["plan"])).expect(200).json
    assert [(each["by"], each["state"]) for each in approved["approvals"]["given"]] == [("admin", "counts")]
    (await call(found, "unapprove", "admin")).expect(200)
    broken = (await call(found, "apply", "admin", break_glass="fire")).expect(200).json["break_glass"]
    assert (broken["by"], broken["reason"], broken["missing_approvals"]) == ("admin", "fire", 1)


async def test_a_plan_is_told_in_words_and_with_what_to_know_before(everywhere: Client, name: str) -> None:
    settings = {"max_active_leases": 0, "queue_rps_limit": 2.5, "weights": {"acme": 3}}
    found = await proposed(everywhere, queues={name: settings}, expires_in_seconds=7_200)
    target = f"{PATH}/{found['change_set_id']}"
    plan = (await everywhere.get(f"{target}/plan")).expect(200).json
    assert plan["summary"] == [
        f"The cap on leases of the task queue {name} becomes 0; it was unset.",
        f"The dispatches a second of the task queue {name} becomes 2.5; it was unset.",
        f"The weight of the key acme in the task queue {name} becomes 3; it was unset.",
        "After 2 h every setting that still has its value gets the one before back.",
    ]
    assert [(each["check"], each["stops"]) for each in plan["checks"]] == [("closes", False)]
    assert (plan["plan"], plan["may_be_applied"]) == (found["plan"], True)
    change = {"max_active_leases_per_queue": 9}
    (await everywhere.patch(f"/api/task-queues/{name}/limits", change)).expect(200)
    plan = (await everywhere.get(f"{target}/plan")).expect(200).json
    assert [each["check"] for each in plan["checks"] if each["stops"]] == ["stale"]
    assert plan["may_be_applied"] is False


async def test_an_edit_replaces_what_a_change_set_does_and_frees_a_stale_one(
    everywhere: Client, name: str
) -> None:
    found = await proposed(everywhere, queues={name: {"max_active_leases": 5}})
    change = {"max_active_leases_per_queue": 9}
    (await everywhere.patch(f"/api/task-queues/{name}/limits", change)).expect(200)
    target = f"{PATH}/{found['change_set_id']}"
    edit = {"reason": "again", "queues": {name: {"max_active_leases": 6}}}
    edited = (await put(everywhere, target, edit, role="admin")).expect(200).json
    assert (edited["author"], edited["change_reason"], edited["moved"]) == ("admin", "again", [])
    assert edited["plan"] != found["plan"]
    (await act(everywhere, found, "apply")).expect(200)
    (await put(everywhere, target, edit)).refused(409, "change_set_state_conflict")
    undo = (await act(everywhere, found, "rollback", reason="back")).expect(201).json
    target = f"{PATH}/{undo['change_set_id']}"
    (await put(everywhere, target, edit)).refused(409, "change_set_state_conflict")


async def test_an_apply_is_put_off_to_a_time_and_not_to_the_past(everywhere: Client, name: str) -> None:
    found = await proposed(everywhere, queues={name: {"max_active_leases": 5}})
    async with everywhere.unchanged():
        for body in (
            {"apply_at": "2020-01-01T00:00:00Z"},
            {"apply_at": "2099-01-01T00:00:00Z", "break_glass": "fire"},
            {"plan": "no hash"},
            {"at": "2099-01-01T00:00:00Z"},
        ):
            (await act(everywhere, found, "apply", role="admin", **body)).refused(422, "validation_failed")
    later = (await act(everywhere, found, "apply", apply_at="2099-01-01T00:00:00Z")).expect(200).json
    assert (later["state"], later["scheduled_by"], later["apply_at"]) == (
        "scheduled",
        "operator",
        "2099-01-01T00:00:00.000Z",
    )
    (await act(everywhere, found, "withdraw")).expect(200)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"queues": {"q": {"max_active_leases": -1}}}, "queue:q.max_running"),
        ({"queues": {"q": {"queue_rps_limit": "fast"}}}, "queue:q.queue_rps_limit"),
        ({"queues": {"q": {"worker_rps_limit": "default"}}}, "queue:q.worker_rps_limit"),
        ({"queues": {"q": {"weights": {"acme": 0}}}}, "queue:q.set_fairness_weight_overrides.acme"),
        ({"queues": {"q": {"weights": 3}}}, "weights"),
        ({"groups": {"g": {"scope": "global", "kind": "activity_tasks", "max_active_leases": 1}}}, "kind"),
        ({"queues": {"q": {"max_active_leases": None}}}, "changes"),
        ({}, "changes"),
        ({"namespace_limits": {"change_approvals": 3}}, "namespace.change_approvals"),
        ({"namespace_limits": {"change_approvals": 1, "kind": "activity_tasks"}}, "change_approvals"),
        ({"queues": {"q": {"paused": True}}, "apply_at": "2020-01-01T00:00:00Z"}, "apply_at"),
        ({"queues": {"q": {"paused": True}}, "expires_in_seconds": 0}, "expires_in_seconds"),
        ({"queue": {"q": {"paused": True}}}, "queue"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(
    everywhere: Client, body: dict[str, Any], field: str
) -> None:
    async with everywhere.unchanged():
        refused = (await everywhere.post(PATH, {"reason": "r"} | body, role="admin")).refused(
            422, "validation_failed"
        )
    assert field in refused.json["errors"]


async def test_a_misspelt_setting_is_refused_with_the_nearest_one(everywhere: Client) -> None:
    body = {"reason": "r", "queues": {"q": {"max_active_lease": 5}}}
    refused = (await everywhere.post(PATH, body)).refused(422, "validation_failed")
    assert "did you mean max_active_leases?" in refused.json["message"]


async def test_rates_are_refused_for_workflow_tasks(everywhere: Client) -> None:
    body = {"reason": "r", "queues": {"q": {"task_queue_type": "workflow", "queue_rps_limit": 5}}}
    (await everywhere.post(PATH, body)).refused(422, "rate_limit_not_for_workflow_tasks")
