"""Limits over HTTP: read, changed permanently or until they expire, paused, logged and rejected."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.server.client import Client, Reply

NUMBERS = itertools.count()
NOT_SET = {"value": None, "source": None, "declared": None, "live": None}
NOT_PAUSED = NOT_SET | {"value": False}
WINDOW = {
    "value": "minute",
    "source": "server.admission.dispatch_window",
    "declared": "minute",
    "live": None,
}
UNCOUNTED = {
    "active_leases": None,
    "remaining_active_leases": None,
    "dispatches_this_minute": None,
    "remaining_dispatches": None,
    "cost_this_minute": None,
    "remaining_cost": None,
}
CLUSTER = "/api/cluster/limits"


@pytest.fixture
def name() -> str:
    """A queue, group or namespace of the test's own: the servers are shared."""
    return f"limited-{next(NUMBERS)}"


def queue(name: str) -> str:
    return f"/api/task-queues/{name}/limits"


def group(name: str) -> str:
    return f"/api/budget-groups/{name}"


async def changed(client: Client, path: str, *, role: str = "operator", **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = (await client.patch(path, fields, role=role)).expect(200).json
    return body


async def read(client: Client, path: str) -> dict[str, Any]:
    body: dict[str, Any] = (await client.get(path)).expect(200).json
    return body


async def made(client: Client, name: str) -> str:
    """The limits of a new namespace."""
    (await client.post("/api/namespaces", {"name": name}, role="admin")).expect(201)
    return f"/api/namespaces/{name}/limits"


class TestQueues:
    async def test_a_queue_that_nobody_used_has_no_limits(self, everywhere: Client, name: str) -> None:
        async with everywhere.unchanged():
            body = await read(everywhere, queue(name))
        assert body == {
            "task_queue": name,
            "task_queue_type": "activity",
            "namespace": "default",
            "version": 0,
            "limits": {
                "max_active_leases_per_queue": NOT_SET,
                "max_dispatches_per_minute": NOT_SET,
                "dispatch_window": WINDOW,
                "dispatch_budget_group": NOT_SET,
                "paused": NOT_PAUSED,
            },
            "counts": {
                "active_leases": 0,
                "remaining_active_leases": None,
                "dispatches_this_minute": None,
                "remaining_dispatches": None,
            },
            "holders": [],
            "scopes": [],
        }

    async def test_a_change_is_answered_with_what_holds_now(self, everywhere: Client, name: str) -> None:
        body = await changed(
            everywhere,
            queue(name),
            max_active_leases_per_queue=3,
            max_dispatches_per_minute=100,
            dispatch_window="sliding",
            reason="spring sale",
        )
        assert body == await read(everywhere, queue(name))
        leases = body["limits"]["max_active_leases_per_queue"]
        assert leases == {
            "value": 3,
            "source": "task_queue.limits",
            "declared": None,
            "live": {
                "value": 3,
                "reason": "spring sale",
                "updated_by": "operator",
                "updated_at": leases["live"]["updated_at"],
                "ends_at": None,
            },
        }
        assert body["limits"]["dispatch_window"]["value"] == "sliding"
        assert body["counts"] == {
            "active_leases": 0,
            "remaining_active_leases": 3,
            "dispatches_this_minute": 0,
            "remaining_dispatches": 100,
        }
        assert body["version"] == 1

    async def test_limits_are_settings_and_stand_in_the_same_log(self, everywhere: Client, name: str) -> None:
        await changed(everywhere, queue(name), max_active_leases_per_queue=3, paused=True)
        config = await read(everywhere, f"/api/task-queues/{name}/config")
        assert (config["max_running"]["value"], config["paused"]["value"]) == (3, True)
        await changed(everywhere, queue(name), paused=False)
        log = (await read(everywhere, f"/api/task-queues/{name}/config/history"))["changes"]
        assert [(each["setting"], each["before"], each["after"]) for each in log] == [
            ("paused", True, False),
            ("max_running", None, 3),
            ("paused", False, True),
        ]

    async def test_either_kind_is_named_in_the_body_or_in_the_query(
        self, everywhere: Client, name: str
    ) -> None:
        await changed(everywhere, f"{queue(name)}?task_queue_type=workflow", max_active_leases_per_queue=1)
        await changed(everywhere, queue(name), task_queue_type="workflow", max_dispatches_per_minute=2)
        body = await read(everywhere, f"{queue(name)}?task_queue_type=workflow")
        assert (body["version"], body["task_queue_type"]) == (2, "workflow")
        assert (await read(everywhere, queue(name)))["version"] == 0
        both = await everywhere.patch(
            f"{queue(name)}?task_queue_type=workflow", {"task_queue_type": "activity"}
        )
        both.refused_fields("task_queue_type")

    @pytest.mark.parametrize("nothing", ["default", None])
    async def test_a_limit_is_unset_by_the_word_default_or_null(
        self, everywhere: Client, name: str, nothing: str | None
    ) -> None:
        fields: dict[str, Any] = {
            "max_active_leases_per_queue": 0,
            "max_dispatches_per_minute": 0,
            "dispatch_window": "sliding",
            "dispatch_budget_group": "stripe",
            "paused": True,
        }
        await changed(everywhere, queue(name), **fields)
        unset: dict[str, Any] = dict.fromkeys(fields, nothing)
        body = await changed(everywhere, queue(name), **unset)
        assert [each["live"] for each in body["limits"].values()] == [None] * 5
        assert body["limits"]["paused"]["value"] is False

    async def test_a_queue_tells_of_the_scopes_that_it_belongs_to(
        self, everywhere: Client, name: str
    ) -> None:
        await changed(everywhere, group(name), max_dispatches_per_minute=10, max_cost_per_minute=1000)
        body = await changed(everywhere, queue(name), dispatch_budget_group=name)
        [scope] = [each for each in body["scopes"] if each["scope"] == f"group:default/{name}"]
        assert scope == {
            "scope": f"group:default/{name}",
            "version": 1,
            "max_active_leases": None,
            "max_dispatches_per_minute": 10,
            "max_cost_per_minute": 1000,
            "dispatch_window": "minute",
            "paused": False,
            "counts": {
                "active_leases": 0,
                "remaining_active_leases": None,
                "dispatches_this_minute": 0,
                "remaining_dispatches": 10,
                "cost_this_minute": 0,
                "remaining_cost": 1000,
            },
            "cooling": None,
        }


class TestEnds:
    async def test_a_limit_may_end_by_itself(self, everywhere: Client, name: str) -> None:
        body = await changed(
            everywhere, queue(name), max_active_leases_per_queue=1, expires_in_seconds=3600, paused=True
        )
        ends = {
            each: body["limits"][each]["live"]["ends_at"]
            for each in ("paused", "max_active_leases_per_queue")
        }
        assert len(set(ends.values())) == 1
        at = "2999-01-01T00:00:00.000Z"
        body = await changed(everywhere, queue(name), paused=True, ends_at=at)
        assert body["limits"]["paused"]["live"]["ends_at"] == at
        body = await changed(everywhere, queue(name), paused=True)
        assert body["limits"]["paused"]["live"]["ends_at"] is None

    async def test_so_may_one_of_a_scope(self, everywhere: Client, name: str) -> None:
        at = "2999-01-01T00:00:00.000Z"
        body = await changed(
            everywhere,
            group(name),
            max_active_leases=1,
            max_dispatches_per_minute=2,
            max_cost_per_minute=3,
            paused=True,
            ends_at="2999-01-01T02:00:00+02:00",
        )
        limits = body["all"]["limits"]
        ends = [each["live"]["ends_at"] for each in limits.values() if each["live"] is not None]
        assert ends == [at] * 4

    @pytest.mark.parametrize(
        ("fields", "refused"),
        [
            ({"paused": True, "expires_in_seconds": 0}, "expires_in_seconds"),
            ({"paused": True, "expires_in_seconds": -5}, "expires_in_seconds"),
            ({"paused": True, "expires_in_seconds": 1.5}, "expires_in_seconds"),
            ({"paused": True, "expires_in_seconds": 10**9}, "expires_in_seconds"),
            ({"paused": True, "expires_in_seconds": 5, "ends_at": "2999-01-01T00:00:00Z"}, "ends_at"),
            ({"paused": True, "ends_at": "2999-01-01T00:00:00"}, "ends_at"),
            ({"paused": True, "ends_at": "tomorrow"}, "ends_at"),
            ({"paused": True, "ends_at": "1999-01-01T00:00:00Z"}, "ends_at"),
            ({"expires_in_seconds": 5}, "expires_in_seconds"),
            ({"paused": False, "expires_in_seconds": 5}, "expires_in_seconds"),
            ({"paused": None, "ends_at": "2999-01-01T00:00:00Z"}, "ends_at"),
            ({"dispatch_window": "sliding", "paused": True, "expires_in_seconds": 5}, "dispatch_window"),
        ],
        ids=str,
    )
    async def test_an_end_that_cannot_be_meant_is_refused(
        self, penstock: Client, name: str, fields: dict[str, Any], refused: str
    ) -> None:
        for path in (queue(name), group(name)):
            (await penstock.patch(path, fields)).refused_fields(refused)
            body = await read(penstock, path)
            assert body.get("version", body.get("all", {}).get("version")) == 0

    async def test_what_cannot_end_is_told_what_can(self, penstock: Client, name: str) -> None:
        reply = await penstock.patch(queue(name), {"dispatch_budget_group": "a", "expires_in_seconds": 5})
        [problem] = reply.refused_fields("dispatch_budget_group").json["errors"]["dispatch_budget_group"]
        assert "max_active_leases_per_queue, max_dispatches_per_minute, paused" in problem


NUMERIC = ("max_dispatches_per_minute", "max_active_leases", "max_cost_per_minute")
WRONG: tuple[Any, ...] = (-1, True, 1.5, "many", [], {}, 10**12, "0", "")


class TestBadInput:
    @pytest.mark.parametrize("value", WRONG, ids=repr)
    async def test_a_limit_that_is_none_is_refused_by_its_name(
        self, penstock: Client, name: str, value: Any
    ) -> None:
        for field in NUMERIC:
            for path in (group(name), "/api/namespaces/default/limits"):
                (await penstock.patch(path, {field: value})).refused_fields(field)
        for field in ("max_active_leases_per_queue", "max_dispatches_per_minute"):
            (await penstock.patch(queue(name), {field: value})).refused_fields(field)

    @pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"1e400"])
    async def test_a_number_that_is_none_is_not_even_json(
        self, penstock: Client, name: str, literal: bytes
    ) -> None:
        raw = b'{"max_active_leases": ' + literal + b"}"
        (await penstock.request("PATCH", group(name), raw)).refused(400, "malformed_json")

    @pytest.mark.parametrize(
        "fields",
        [
            {"dispatch_window": "hour"},
            {"paused": "yes"},
            {"paused": 1},
            {"reason": "x" * 1001},
            {"if_version": -1},
        ],
        ids=str,
    )
    async def test_every_other_field_is_checked_too(
        self, penstock: Client, name: str, fields: dict[str, Any]
    ) -> None:
        for path in (queue(name), group(name), "/api/namespaces/default/limits"):
            (await penstock.patch(path, fields)).refused_fields(*fields)

    async def test_a_field_that_there_is_none_of_is_told_the_nearest(
        self, penstock: Client, name: str
    ) -> None:
        for path, field, meant in (
            (queue(name), "max_active_leases", "max_active_leases_per_queue"),
            (queue(name), "max_dispatch_per_minute", "max_dispatches_per_minute"),
            (group(name), "max_active_lease", "max_active_leases"),
            ("/api/namespaces/default/limits", "max_costs_per_minute", "max_cost_per_minute"),
        ):
            reply = (await penstock.patch(path, {field: 1})).refused_fields(field)
            assert f"did you mean {meant}" in reply.json["errors"][field][0]

    async def test_everything_that_is_wrong_is_told_at_once(self, penstock: Client, name: str) -> None:
        fields = {"max_active_leases": -1, "max_dispatches_per_minute": "x", "pause": True}
        (await penstock.patch(group(name), fields)).refused_fields(*fields)

    @pytest.mark.parametrize("name", ["a/b", "a:b", "x" * 129, "a\x00b", "\x7f"], ids=repr)
    async def test_a_name_that_no_group_can_have_is_refused(self, penstock: Client, name: str) -> None:
        from urllib.parse import quote

        (await penstock.get(group(quote(name, safe="")))).refused_fields("group")
        reply = await penstock.patch(queue("q"), {"dispatch_budget_group": name})
        reply.refused_fields("dispatch_budget_group")

    async def test_a_group_that_namespaces_share_counts_both_kinds_together(
        self, penstock: Client, name: str
    ) -> None:
        fields = {"scope": "global", "kind": "activity_tasks", "paused": True}
        (await penstock.patch(group(name), fields, role="admin")).refused_fields("kind")


class TestNamespaces:
    async def test_a_namespace_is_limited_as_a_whole_and_by_kind(self, everywhere: Client, name: str) -> None:
        path = await made(everywhere, name)
        body = await read(everywhere, path)
        assert list(body) == ["namespace", "all", "workflow_tasks", "activity_tasks"]
        assert body["activity_tasks"] == {
            "scope": f"namespace:{name}/activity",
            "version": 0,
            "limits": {
                "max_active_leases": NOT_SET,
                "max_dispatches_per_minute": NOT_SET,
                "max_cost_per_minute": NOT_SET,
                "dispatch_window": WINDOW,
                "paused": NOT_PAUSED,
            },
            "counts": UNCOUNTED,
            "cooling": None,
            "holders": [],
        }
        body = await changed(
            everywhere, path, kind="activity_tasks", max_active_leases=5, reason="small database"
        )
        assert body == await read(everywhere, path)
        limit = body["activity_tasks"]["limits"]["max_active_leases"]
        assert (limit["value"], limit["source"]) == (5, "namespace.limits")
        assert limit["live"]["reason"] == "small database"
        assert body["activity_tasks"]["counts"]["remaining_active_leases"] == 5
        assert (body["all"]["version"], body["activity_tasks"]["version"]) == (0, 1)

    async def test_a_namespace_that_is_not_there_has_no_limits(self, everywhere: Client, name: str) -> None:
        path = f"/api/namespaces/{name}"
        (await everywhere.get(f"{path}/limits")).refused(404, "namespace_not_found")
        (await everywhere.patch(f"{path}/limits", {"paused": True})).refused(404, "namespace_not_found")
        (await everywhere.post(f"{path}/pause", {})).refused(404, "namespace_not_found")

    async def test_who_changed_what_is_told_newest_first(self, everywhere: Client, name: str) -> None:
        path = await made(everywhere, name)
        await changed(everywhere, path, max_active_leases=5, reason="first")
        await changed(everywhere, path, max_active_leases=None, paused=True, role="admin")
        await changed(everywhere, path, kind="workflow_tasks", paused=True)
        log = (await read(everywhere, f"{path}/history"))["changes"]
        assert [(e["version"], e["by"], e["setting"], e["before"], e["after"], e["reason"]) for e in log] == [
            (2, "admin", "max_active_leases", 5, None, None),
            (2, "admin", "paused", False, True, None),
            (1, "operator", "max_active_leases", None, 5, "first"),
        ]
        assert len((await read(everywhere, f"{path}/history?limit=1"))["changes"]) == 1
        other = (await read(everywhere, f"{path}/history?kind=workflow_tasks"))["changes"]
        assert [each["setting"] for each in other] == ["paused"]

    async def test_a_change_on_an_outdated_version_is_refused(self, everywhere: Client, name: str) -> None:
        path = await made(everywhere, name)
        await changed(everywhere, path, max_active_leases=5, if_version=0)
        reply = await everywhere.patch(path, {"max_active_leases": 6, "if_version": 0})
        assert reply.refused(409, "config_version_conflict").json["current_version"] == 1
        assert (await read(everywhere, path))["all"]["limits"]["max_active_leases"]["value"] == 5


class TestGroups:
    async def test_a_group_is_limited_as_a_whole_and_by_kind(self, everywhere: Client, name: str) -> None:
        await changed(everywhere, queue(name), dispatch_budget_group=name)
        body = await changed(everywhere, group(name), max_dispatches_per_minute=60, max_cost_per_minute=9000)
        assert body == await read(everywhere, group(name))
        assert (body["budget_group"], body["scope"], body["namespace"]) == (name, "namespace", "default")
        assert body["task_queues"] == [
            {"namespace": "default", "task_queue": name, "task_queue_type": "activity"}
        ]
        assert body["all"]["limits"]["max_cost_per_minute"]["source"] == "group.limits"
        body = await changed(everywhere, group(name), kind="workflow_tasks", max_active_leases=1)
        assert body["workflow_tasks"]["scope"] == f"group:default/{name}/workflow"
        assert body["workflow_tasks"]["limits"]["max_active_leases"]["value"] == 1

    async def test_groups_are_listed_with_those_that_namespaces_share(
        self, everywhere: Client, name: str
    ) -> None:
        await changed(everywhere, queue(name), dispatch_budget_group=f"{name}-named")
        await changed(everywhere, group(f"{name}-limited"), max_dispatches_per_minute=60)
        await changed(everywhere, group(f"{name}-shared"), scope="global", paused=True, role="admin")
        reply = await everywhere.patch(group(f"{name}-not-ours"), {"paused": True}, namespace="elsewhere")
        reply.expect(200)
        listed = (await read(everywhere, "/api/budget-groups"))["budget_groups"]
        mine = {each["budget_group"]: each for each in listed if each["budget_group"].startswith(f"{name}-")}
        assert list(mine) == [f"{name}-limited", f"{name}-named", f"{name}-shared"]
        assert mine[f"{name}-shared"]["scope"] == "global"
        assert mine[f"{name}-shared"]["all"]["limits"]["paused"]["value"] is True
        assert [each["task_queue"] for each in mine[f"{name}-named"]["task_queues"]] == [name]
        await changed(everywhere, group(f"{name}-shared"), scope="global", paused=False, role="admin")

    async def test_only_admins_change_what_all_namespaces_share(self, penstock: Client, name: str) -> None:
        for method, path, fields in (
            ("PATCH", group(name), {"scope": "global", "max_active_leases": 1}),
            ("POST", f"{group(name)}/pause", {"scope": "global"}),
            ("POST", f"{group(name)}/resume", {"scope": "global"}),
            ("PATCH", CLUSTER, {"max_active_leases": 1}),
        ):
            reply = await penstock.request(method, path, json.dumps(fields).encode())
            assert reply.refused(403, "forbidden").json["allowed_roles"] == ["admin"]
        await read(penstock, f"{group(name)}?scope=global")
        await read(penstock, CLUSTER)

    async def test_the_log_of_a_group_is_kept_by_scope_and_kind(self, everywhere: Client, name: str) -> None:
        await changed(everywhere, group(name), max_cost_per_minute=5)
        await changed(everywhere, group(name), scope="global", max_cost_per_minute=6, role="admin")
        own = await read(everywhere, f"{group(name)}/history")
        shared = await read(everywhere, f"{group(name)}/history?scope=global")
        assert [each["after"] for each in own["changes"]] == [5]
        assert [each["after"] for each in shared["changes"]] == [6]
        await changed(everywhere, group(name), scope="global", max_cost_per_minute=None, role="admin")


class TestTheCluster:
    async def test_the_cluster_is_limited_by_admins(self, everywhere: Client) -> None:
        body = await changed(everywhere, CLUSTER, max_active_leases=1_000_000, role="admin")
        try:
            again = await read(everywhere, CLUSTER)
            assert [body[part]["limits"] for part in body] == [again[part]["limits"] for part in again]
            assert body["all"]["limits"]["max_active_leases"]["source"] == "cluster.limits"
            assert body["all"]["limits"]["max_active_leases"]["live"]["updated_by"] == "admin"
            assert list(body) == ["all", "workflow_tasks", "activity_tasks"]
        finally:
            await changed(everywhere, CLUSTER, max_active_leases=None, role="admin")
        log = (await read(everywhere, f"{CLUSTER}/history"))["changes"]
        assert [each["after"] for each in log[:2]] == [None, 1_000_000]

    async def test_the_history_of_declared_limits_is_for_admins(self, everywhere: Client) -> None:
        """It names queues of every namespace."""
        path = "/api/cluster/declared-limits/history"
        body = (await everywhere.get(path, role="admin")).expect(200).json
        assert list(body) == ["changes"]
        (await everywhere.get(path, role="operator")).expect(403, "forbidden")


class TestPauses:
    async def test_a_queue_is_paused_and_resumed_for_both_kinds(self, everywhere: Client, name: str) -> None:
        path = f"/api/task-queues/{name}"
        body = (await everywhere.post(f"{path}/pause", {"reason": "stuck", "expires_in_seconds": 60})).expect(
            200
        )
        for kind in ("workflow_tasks", "activity_tasks"):
            assert body.json[kind]["paused"] is True
            assert body.json[kind]["live"]["reason"] == "stuck"
            assert body.json[kind]["live"]["ends_at"] is not None
        one = (await everywhere.post(f"{path}/resume", {"task_queue_type": "workflow"})).expect(200).json
        assert (one["workflow_tasks"]["paused"], one["activity_tasks"]["paused"]) == (False, True)
        both = (await everywhere.request("POST", f"{path}/resume")).expect(200).json
        assert (both["workflow_tasks"]["paused"], both["activity_tasks"]["paused"]) == (False, False)
        assert both["activity_tasks"]["live"] is None

    async def test_pausing_twice_changes_nothing(self, everywhere: Client, name: str) -> None:
        path = f"/api/task-queues/{name}/pause"
        first = (await everywhere.post(path, {"reason": "stuck"})).expect(200).json
        assert (await everywhere.post(path, {"reason": "stuck"})).expect(200).json == first

    @pytest.mark.parametrize("key", ["tenant-a", "a/b", "käse"])
    async def test_a_key_is_paused_and_resumed(self, everywhere: Client, name: str, key: str) -> None:
        from urllib.parse import quote

        path = f"/api/task-queues/{name}/keys/{quote(key, safe='')}"
        body = (await everywhere.post(f"{path}/pause", {"reason": "abuse"})).expect(200).json
        assert (body["fairness_key"], body["activity_tasks"]) == (key, {"paused": True})
        config = await read(everywhere, f"/api/task-queues/{name}/config?task_queue_type=workflow")
        assert [(each["fairness_key"], each["paused"], each["reason"]) for each in config["keys"]] == [
            (key, True, "abuse")
        ]
        (await everywhere.post(f"{path}/resume", {})).expect(200)
        assert (await read(everywhere, f"/api/task-queues/{name}/config"))["keys"] == []

    async def test_the_pause_of_a_key_has_no_end_and_a_key_is_counted_in_bytes(
        self, penstock: Client, name: str
    ) -> None:
        path = f"/api/task-queues/{name}/keys"
        (await penstock.post(f"{path}/a/pause", {"expires_in_seconds": 5})).refused_fields(
            "expires_in_seconds"
        )
        (await penstock.post(f"{path}/{'%C3%A4' * 33}/pause", {})).refused_fields("key")

    async def test_a_namespace_and_a_group_are_paused_and_resumed(
        self, everywhere: Client, name: str
    ) -> None:
        await made(everywhere, name)
        for path in (f"/api/namespaces/{name}", group(name)):
            body = (
                await everywhere.post(f"{path}/pause", {"expires_in_seconds": 60, "reason": "no"})
            ).expect(200)
            pause = body.json["all"]["limits"]["paused"]
            assert (pause["value"], pause["live"]["reason"]) == (True, "no")
            assert pause["live"]["ends_at"] is not None
            body = (await everywhere.post(f"{path}/resume", {"reason": "yes"})).expect(200)
            assert body.json["all"]["limits"]["paused"] == NOT_PAUSED

    async def test_workers_neither_read_limits_nor_change_them(self, penstock: Client, name: str) -> None:
        plane = {"X-Durable-Workflow-Control-Plane-Version": "2"}
        for method, path in (
            ("GET", queue(name)),
            ("PATCH", queue(name)),
            ("GET", "/api/namespaces/default/limits"),
            ("PATCH", "/api/namespaces/default/limits"),
            ("GET", "/api/budget-groups"),
            ("PATCH", group(name)),
            ("POST", f"/api/task-queues/{name}/pause"),
            ("POST", f"/api/task-queues/{name}/keys/a/pause"),
            ("POST", "/api/namespaces/default/pause"),
            ("POST", f"{group(name)}/pause"),
            ("GET", CLUSTER),
            ("GET", "/api/system/journal"),
        ):
            reply: Reply = await penstock.request(method, path, role="worker", headers=plane)
            reply.refused(403, "forbidden")


class TestTheJournal:
    async def test_a_server_without_a_journal_says_how_to_have_one(self, everywhere: Client) -> None:
        reply = await everywhere.get("/api/system/journal", role="admin")
        assert "DW_JOURNAL=true" in reply.refused(409, "journal_off").json["message"]

    async def test_only_admins_read_it(self, penstock: Client) -> None:
        (await penstock.get("/api/system/journal")).refused(403, "forbidden")
