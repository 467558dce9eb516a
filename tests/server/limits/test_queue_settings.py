"""Settings of task queues over HTTP: read, changed, logged and rejected, on every store."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.server.client import Client, Reply

NUMBERS = itertools.count()
UNSET_SETTINGS = dict.fromkeys(
    (
        *("queue_rps_limit", "queue_rps_burst_seconds", "fairness_key_rps_limit_default"),
        *("fairness_key_rps_burst_seconds", "fairness", "fairness_counts", "max_running"),
        *("fairness_key_max_running_default", "aging_wait_seconds", "aging_every", "worker_rps_limit"),
        *("max_dispatches_per_minute", "dispatch_window", "dispatch_budget_group", "paused"),
        "retry_rps_limit",
    )
)


@pytest.fixture
def name() -> str:
    """A queue of the test's own: the servers are shared."""
    return f"line-{next(NUMBERS)}"


def path(name: str) -> str:
    return f"/api/task-queues/{name}/config"


async def change(client: Client, name: str, kind: str = "activity", **fields: Any) -> Reply:
    return await client.patch(path(name), {"task_queue_type": kind} | fields)


async def changed(client: Client, name: str, kind: str = "activity", **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = (await change(client, name, kind, **fields)).expect(200).json
    return body


async def log(client: Client, name: str, query: str = "") -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = (
        (await client.get(f"{path(name)}/history{query}")).expect(200).json["changes"]
    )
    return changes


class TestReading:
    async def test_a_queue_that_nobody_used_has_no_settings(self, everywhere: Client, name: str) -> None:
        async with everywhere.unchanged():
            body = (await everywhere.get(path(name))).expect(200).json
        assert body == UNSET_SETTINGS | {
            "task_queue": name,
            "task_queue_type": "activity",
            "namespace": "default",
            "version": 0,
            "effective": {
                "queue_rps_limit": None,
                "queue_rps_limit_source": "none",
                "fairness": True,
                "fairness_source": "namespace",
            },
            "keys": [],
            "key_count": 0,
        }
        assert await log(everywhere, name) == []

    async def test_each_kind_of_task_is_read_by_its_name(self, everywhere: Client, name: str) -> None:
        await changed(everywhere, name, "workflow", max_running=5)
        workflow = (await everywhere.get(f"{path(name)}?task_queue_type=workflow")).expect(200).json
        assert (workflow["task_queue_type"], workflow["max_running"]["value"]) == ("workflow", 5)
        assert (await everywhere.get(path(name))).expect(200).json["max_running"] is None
        refused = await everywhere.get(f"{path(name)}?task_queue_type=nexus")
        refused.refused_fields("task_queue_type")

    async def test_settings_of_one_namespace_are_not_those_of_another(
        self, everywhere: Client, name: str
    ) -> None:
        await changed(everywhere, name, max_running=5)
        body = (await everywhere.get(path(name), namespace="elsewhere")).expect(200).json
        assert (body["namespace"], body["max_running"]) == ("elsewhere", None)

    @pytest.mark.parametrize("limit", ["0", "1001", "many"])
    async def test_a_page_of_the_log_has_bounds(self, penstock: Client, name: str, limit: str) -> None:
        (await penstock.get(f"{path(name)}/history?limit={limit}")).refused_fields("limit")

    @pytest.mark.parametrize("role", ["operator", "admin"])
    async def test_the_author_is_the_credential_that_asked(
        self, everywhere: Client, name: str, role: str
    ) -> None:
        reply = await everywhere.patch(
            path(name), {"task_queue_type": "activity", "max_running": 5}, role=role
        )
        assert reply.expect(200).json["max_running"]["updated_by"] == role
        assert [each["by"] for each in await log(everywhere, name)] == [role]

    async def test_workers_neither_read_nor_change_settings(self, penstock: Client, name: str) -> None:
        plane = {"X-Durable-Workflow-Control-Plane-Version": "2"}
        for method, raw in (("GET", b""), ("PATCH", b'{"task_queue_type": "activity"}')):
            reply = await penstock.request(method, path(name), raw, role="worker", headers=plane)
            reply.refused(403, "forbidden")


class TestChanging:
    async def test_the_change_of_the_seed_is_answered_with_all_that_holds(
        self, everywhere: Client, name: str
    ) -> None:
        body = await changed(
            everywhere,
            name,
            queue_rps_limit=500,
            queue_rps_limit_reason="overall limit",
            fairness_key_rps_limit_default=33.3,
            fairness_key_rps_limit_reason="per-key limit",
            set_fairness_weight_overrides={"tenant-big": 5.0},
        )
        at = body["queue_rps_limit"]["updated_at"]
        assert body["queue_rps_limit"] == {
            "value": 500.0,
            "reason": "overall limit",
            "updated_by": "operator",
            "updated_at": at,
            "ends_at": None,
        }
        assert body["fairness_key_rps_limit_default"]["value"] == 33.3
        assert body["effective"]["queue_rps_limit"] == 500.0
        assert body["effective"]["queue_rps_limit_source"] == "operator"
        assert body["keys"] == [
            {
                "fairness_key": "tenant-big",
                "weight_override": 5.0,
                "rps_limit": None,
                "max_running": None,
                "paused": False,
                "reason": None,
                "updated_by": "operator",
                "updated_at": at,
            }
        ]
        assert (body["version"], body["key_count"]) == (1, 1)
        assert (await everywhere.get(path(name))).expect(200).json == body

    async def test_every_setting_is_kept_to_the_digit(self, everywhere: Client, name: str) -> None:
        sent: dict[str, Any] = {
            "queue_rps_limit": 999_999.999999,
            "queue_rps_burst_seconds": 0.001,
            "fairness_key_rps_limit_default": 0.000001,
            "fairness_key_rps_burst_seconds": 3600,
            "fairness": "off",
            "fairness_counts": "running",
            "max_running": 1_000_000,
            "fairness_key_max_running_default": 0,
            "aging_wait_seconds": 0.29,
            "aging_every": 1000,
        }
        body = await changed(everywhere, name, **sent)
        assert {field: body[field]["value"] for field in sent} == sent

    @pytest.mark.parametrize("nothing", [None, "default"])
    async def test_null_and_default_both_unset(self, everywhere: Client, name: str, nothing: object) -> None:
        await changed(
            everywhere,
            name,
            queue_rps_limit=5,
            fairness="off",
            max_running=5,
            aging_wait_seconds=1,
            aging_every=2,
            keys={"big": {"rps_limit": 0, "max_running": 1, "paused": True}},
        )
        unset = ("queue_rps_limit", "fairness", "max_running", "aging_wait_seconds", "aging_every")
        key = {"rps_limit": nothing, "max_running": nothing, "paused": False}
        fields: dict[str, Any] = dict.fromkeys(unset, nothing) | {"keys": {"big": key}}
        body = await changed(everywhere, name, **fields)
        assert UNSET_SETTINGS.items() <= body.items()
        assert (body["keys"], body["key_count"], body["version"]) == ([], 0, 2)

    async def test_what_is_left_out_stays(self, everywhere: Client, name: str) -> None:
        await changed(everywhere, name, queue_rps_limit=5, keys={"big": {"paused": True}})
        body = await changed(everywhere, name, max_running=5, keys={"big": {"max_running": 1}})
        assert (body["queue_rps_limit"]["value"], body["max_running"]["value"]) == (5.0, 5)
        assert (body["keys"][0]["paused"], body["keys"][0]["max_running"]) == (True, 1)

    async def test_a_reason_alone_changes_the_reason(self, everywhere: Client, name: str) -> None:
        await changed(everywhere, name, queue_rps_limit=5, queue_rps_limit_reason="guess")
        body = await changed(everywhere, name, queue_rps_limit_reason="measured")
        assert (body["queue_rps_limit"]["value"], body["queue_rps_limit"]["reason"]) == (5.0, "measured")

    async def test_weights_are_set_unset_and_cleared(self, everywhere: Client, name: str) -> None:
        weights = {"a": 0.001, "ключ": 1000, "c": 2.5}
        await changed(everywhere, name, set_fairness_weight_overrides=weights)
        body = await changed(
            everywhere,
            name,
            unset_fairness_weight_overrides=["a", "nobody"],
            set_fairness_weight_overrides={"c": 3},
        )
        found = {each["fairness_key"]: each["weight_override"] for each in body["keys"]}
        assert found == {"ключ": 1000.0, "c": 3.0}
        body = await changed(everywhere, name, clear_fairness_weight_overrides=True)
        assert (body["keys"], body["key_count"]) == ([], 0)

    async def test_a_change_for_a_version_that_has_passed_is_refused(
        self, everywhere: Client, name: str
    ) -> None:
        await changed(everywhere, name, max_running=5, if_version=0)
        reply = await change(everywhere, name, max_running=6, if_version=0)
        assert reply.refused(409, "config_version_conflict").json["current_version"] == 1
        assert (await everywhere.get(path(name))).json["max_running"]["value"] == 5

    async def test_the_log_tells_newest_first_who_changed_what_and_why(
        self, everywhere: Client, name: str
    ) -> None:
        await changed(everywhere, name, queue_rps_limit=33.3, reason="spring sale")
        await changed(everywhere, name, queue_rps_limit="default", set_fairness_weight_overrides={"big": 2.5})
        changes = await log(everywhere, name)
        told = [
            (
                each["version"],
                each["setting"],
                each["fairness_key"],
                each["before"],
                each["after"],
                each["reason"],
            )
            for each in changes
        ]
        assert told == [
            (2, "queue_rps_limit", None, 33.3, None, None),
            (2, "fairness_weight_override", "big", None, 2.5, None),
            (1, "queue_rps_limit", None, None, 33.3, "spring sale"),
        ]
        assert await log(everywhere, name, "?limit=1") == changes[:1]

    async def test_thousands_of_weights_are_set_at_once_and_the_first_are_shown(
        self, everywhere: Client, name: str
    ) -> None:
        weights = {f"tenant-{number:04}": 2 for number in range(5_000)}
        body = await changed(everywhere, name, set_fairness_weight_overrides=weights)
        assert body["key_count"] == 5_000
        assert [each["fairness_key"] for each in body["keys"]] == sorted(weights)[:1_000]
        body = await changed(everywhere, name, clear_fairness_weight_overrides=True)
        assert body["key_count"] == 0


class TestRefusing:
    @pytest.mark.parametrize(
        ("fields", "wrong"),
        [
            ({"queue_rps_limit": -1}, "queue_rps_limit"),
            ({"queue_rps_limit": True}, "queue_rps_limit"),
            ({"queue_rps_limit": "5"}, "queue_rps_limit"),
            ({"queue_rps_limit": [5]}, "queue_rps_limit"),
            ({"queue_rps_limit": 1_000_001}, "queue_rps_limit"),
            ({"queue_rps_limit": 0.0000001}, "queue_rps_limit"),
            ({"queue_rps_burst_seconds": 3601}, "queue_rps_burst_seconds"),
            ({"fairness_key_rps_limit_default": -0.5}, "fairness_key_rps_limit_default"),
            ({"fairness_key_rps_burst_seconds": -1}, "fairness_key_rps_burst_seconds"),
            ({"worker_rps_limit": 5}, "worker_rps_limit"),
            ({"fairness": True}, "fairness"),
            ({"fairness": "maybe"}, "fairness"),
            ({"fairness_counts": "tasks"}, "fairness_counts"),
            ({"max_running": -1}, "max_running"),
            ({"max_running": 1.5}, "max_running"),
            ({"max_running": 1_000_001}, "max_running"),
            ({"fairness_key_max_running_default": True}, "fairness_key_max_running_default"),
            ({"aging_wait_seconds": -1, "aging_every": 2}, "aging_wait_seconds"),
            ({"aging_wait_seconds": 604_801, "aging_every": 2}, "aging_wait_seconds"),
            ({"aging_wait_seconds": 1, "aging_every": 1}, "aging_every"),
            ({"aging_wait_seconds": 1}, "aging_every"),
            ({"aging_every": 20}, "aging_wait_seconds"),
            ({"set_fairness_weight_overrides": {"": 5}}, "set_fairness_weight_overrides"),
            ({"set_fairness_weight_overrides": {"a\nb": 5}}, "set_fairness_weight_overrides"),
            ({"set_fairness_weight_overrides": {"a": 0}}, "set_fairness_weight_overrides.a"),
            ({"set_fairness_weight_overrides": {"a": 1000.1}}, "set_fairness_weight_overrides.a"),
            ({"set_fairness_weight_overrides": {"a": True}}, "set_fairness_weight_overrides.a"),
            ({"set_fairness_weight_overrides": {"a": "default"}}, "set_fairness_weight_overrides.a"),
            ({"set_fairness_weight_overrides": {"é" * 33: 5}}, f"keys.{'é' * 33}"),
            ({"unset_fairness_weight_overrides": [""]}, "unset_fairness_weight_overrides.0"),
            ({"unset_fairness_weight_overrides": "a"}, "unset_fairness_weight_overrides"),
            ({"clear_fairness_weight_overrides": 1}, "clear_fairness_weight_overrides"),
            ({"keys": {"": {"paused": True}}}, "keys"),
            ({"keys": {"a": {"paused": 1}}}, "keys.a.paused"),
            ({"keys": {"a": {"rps_limit": 0.0000001}}}, "keys.a.rps_limit"),
            ({"keys": {"a": {"max_running": -1}}}, "keys.a.max_running"),
            ({"keys": {"a": {"weight": 5}}}, "keys.a.weight"),
            ({"reason": "x" * 1001}, "reason"),
            ({"queue_rps_limit_reason": "x" * 1001}, "queue_rps_limit_reason"),
            ({"reason": "a\x00b"}, "reason"),
            ({"if_version": -1}, "if_version"),
            ({"if_version": True}, "if_version"),
            ({"queue_rps_limt": 5}, "queue_rps_limt"),
            ({"task_queue_type": "nexus"}, "task_queue_type"),
        ],
        ids=lambda value: ascii(value)[:60],
    )
    async def test_what_cannot_be_a_setting_is_named_and_changes_nothing(
        self, penstock: Client, name: str, fields: dict[str, Any], wrong: str
    ) -> None:
        async with penstock.unchanged():
            (await change(penstock, name, **fields)).refused_fields(wrong)
        assert (await penstock.get(path(name))).json["version"] == 0

    async def test_the_kind_of_task_must_be_named(self, penstock: Client, name: str) -> None:
        (await penstock.patch(path(name), {"max_running": 5})).refused_fields("task_queue_type")

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
    async def test_a_number_that_is_none_is_no_json(self, penstock: Client, name: str, number: str) -> None:
        raw = f'{{"task_queue_type": "activity", "queue_rps_limit": {number}}}'.encode()
        (await penstock.request("PATCH", path(name), raw)).refused(400, "malformed_json")

    async def test_a_misspelt_setting_is_answered_with_the_right_word(
        self, penstock: Client, name: str
    ) -> None:
        reply = await change(penstock, name, fairness_key_rps_limit=5)
        assert "fairness_key_rps_limit_default" in json.dumps(reply.json["errors"])

    async def test_one_weight_is_not_set_and_unset_at_once(self, penstock: Client, name: str) -> None:
        reply = await change(
            penstock,
            name,
            set_fairness_weight_overrides={"a": 5, "b": 5},
            unset_fairness_weight_overrides=["b"],
        )
        reply.refused(422, "override_conflict")
        assert (await penstock.get(path(name))).json["key_count"] == 0

    @pytest.mark.parametrize(
        "fields",
        [
            {"queue_rps_limit": 5},
            {"queue_rps_limit": "default"},
            {"queue_rps_limit_reason": "why"},
            {"queue_rps_burst_seconds": 1},
            {"fairness_key_rps_limit_default": 5},
            {"fairness_key_rps_burst_seconds": 1},
            {"worker_rps_limit": "default"},
            {"keys": {"a": {"rps_limit": 5}}},
        ],
    )
    async def test_workflow_tasks_have_no_rate(
        self, penstock: Client, name: str, fields: dict[str, Any]
    ) -> None:
        async with penstock.unchanged():
            reply = await change(penstock, name, "workflow", **fields)
        reply.refused(422, "rate_limit_not_for_workflow_tasks")

    async def test_one_change_speaks_of_at_most_five_thousand_keys(self, penstock: Client, name: str) -> None:
        many = {f"k{number}": 2 for number in range(5_001)}
        (await change(penstock, name, set_fairness_weight_overrides=many)).refused_fields(
            "set_fairness_weight_overrides"
        )
        some = {f"k{number}": 2 for number in range(2_501)}
        paused = {f"p{number}": {"paused": True} for number in range(2_500)}
        reply = await change(penstock, name, set_fairness_weight_overrides=some, keys=paused)
        reply.refused_fields("keys")


class TestNamespaces:
    async def test_a_namespace_says_whether_its_queues_share(self, everywhere: Client) -> None:
        names = [f"ns-{next(NUMBERS)}" for _ in range(2)]
        made = (await everywhere.post("/api/namespaces", {"name": names[0]}, role="admin")).expect(201).json
        off = {"name": names[1], "fairness": "off"}
        unfair = (await everywhere.post("/api/namespaces", off, role="admin")).expect(201).json
        assert (made["fairness"], unfair["fairness"]) == ("on", "off")
        put = {"fairness": "off"}
        raw = json.dumps(put).encode()
        reply = await everywhere.request("PUT", f"/api/namespaces/{names[0]}", raw, role="admin")
        assert reply.expect(200).json["fairness"] == "off"
        raw = json.dumps({"description": "kept"}).encode()
        reply = await everywhere.request("PUT", f"/api/namespaces/{names[0]}", raw, role="admin")
        assert (reply.json["fairness"], reply.json["description"]) == ("off", "kept")
        body = (await everywhere.get(path("any"), namespace=names[0])).expect(200).json
        assert (body["effective"]["fairness"], body["effective"]["fairness_source"]) == (False, "namespace")

    @pytest.mark.parametrize("fairness", [True, "yes", "default", 1])
    async def test_fairness_of_a_namespace_is_on_or_off(self, penstock: Client, fairness: object) -> None:
        body = {"name": f"ns-{next(NUMBERS)}", "fairness": fairness}
        (await penstock.post("/api/namespaces", body, role="admin")).refused_fields("fairness")


class TestWorkers:
    async def test_what_workers_convey_is_shown_and_the_last_word_counts(
        self, everywhere: Client, name: str
    ) -> None:
        field = "max_task_queue_activities_per_second"
        for worker, rate in (("w-a", 50), ("w-b", 0.5), ("w-c", None)):
            body = {"worker_id": f"{name}-{worker}", "task_queue": name, "runtime": "python", field: rate}
            (await everywhere.post("/api/worker/register", body, role="worker")).expect(201)
        config = (await everywhere.get(path(name))).expect(200).json
        assert (config["worker_rps_limit"]["value"], config["worker_rps_limit"]["worker_id"]) == (
            0.5,
            f"{name}-w-b",
        )
        assert config["effective"]["queue_rps_limit_source"] == "worker"
        beat = {"worker_id": f"{name}-w-a", field: 50}
        (await everywhere.post("/api/worker/heartbeat", beat, role="worker")).expect(200)
        assert (await everywhere.get(path(name))).json["worker_rps_limit"]["value"] == 50.0
        poll = {"worker_id": f"{name}-w-a", "task_queue": name, "timeout_seconds": 0}
        (await everywhere.post("/api/worker/activity-tasks/poll", poll, role="worker")).expect(200)
        assert (await everywhere.get(path(name))).json["worker_rps_limit"]["value"] == 50.0
        forgotten = await changed(everywhere, name, worker_rps_limit="default")
        assert forgotten["worker_rps_limit"] is None

    @pytest.mark.parametrize("rate", [0, -1, True, "fast", 1_000_001, 0.0000001])
    @pytest.mark.parametrize(
        ("target", "body"),
        [
            ("register", {"task_queue": "q", "runtime": "python"}),
            ("heartbeat", {"worker_id": "w"}),
            ("activity-tasks/poll", {"worker_id": "w", "task_queue": "q"}),
        ],
    )
    async def test_a_rate_that_is_none_is_refused(
        self, penstock: Client, target: str, body: dict[str, Any], rate: object
    ) -> None:
        field = "max_task_queue_activities_per_second"
        reply = await penstock.post(f"/api/worker/{target}", body | {field: rate}, role="worker")
        reply.refused_fields(field)
