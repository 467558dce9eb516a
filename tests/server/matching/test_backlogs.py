"""The backlog of a queue: by priority, by fairness key, with shares and limits."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.server.client import Client

NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    return f"backlog-{next(NUMBERS)}"


async def start(client: Client, name: str, count: int = 1, **standing: Any) -> None:
    items = [{"activity_type": "charge", "task_queue": name} | standing for _ in range(count)]
    (await client.post("/api/activities/batch", {"items": items})).expect(200)


async def described(client: Client, name: str) -> dict[str, Any]:
    body: dict[str, Any] = (await client.get(f"/api/task-queues/{name}")).expect(200).json
    return body


async def activities(client: Client, name: str) -> dict[str, Any]:
    tasks: dict[str, Any] = (await described(client, name))["stats"]["activity_tasks"]
    return tasks


async def configure(client: Client, name: str, **fields: Any) -> None:
    body = {"task_queue_type": "activity"} | fields
    (await client.patch(f"/api/task-queues/{name}/config", body)).expect(200)


async def take(client: Client, name: str, count: int = 1) -> int:
    """How many tasks a worker gets when it asks for some."""
    worker = {"worker_id": f"{name}-w", "task_queue": name}
    (await client.post("/api/worker/register", worker | {"runtime": "python"}, role="worker")).expect(201)
    poll = worker | {"timeout_seconds": 0, "max_tasks": count}
    return len(
        (await client.post("/api/worker/activity-tasks/poll", poll, role="worker")).expect(200).json["tasks"]
    )


def keys(tasks: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["fairness_key"]: each for each in tasks["top_keys"]}


async def test_a_queue_that_nobody_used_is_shown_empty(everywhere: Client, name: str) -> None:
    stats = (await described(everywhere, name))["stats"]
    for kind in ("workflow_tasks", "activity_tasks"):
        shown = {
            field: stats[kind][field] for field in ("backlog_by_priority", "top_keys", "fairness", "rate")
        }
        rate = shown.pop("rate")
        assert shown == {"backlog_by_priority": [], "top_keys": [], "fairness": True}
        assert (rate["limit"], rate["source"], rate["next_dispatch_at"]) == (None, "none", None)


async def test_what_waits_is_counted_by_priority(everywhere: Client, name: str) -> None:
    await start(everywhere, name, 2, priority=1, fairness_key="a")
    await start(everywhere, name, 3, priority=1, fairness_key="b")
    await start(everywhere, name, 1, priority={"priority_key": 5})
    levels = (await activities(everywhere, name))["backlog_by_priority"]
    shown = ("priority", "priority_key", "backlog_count", "key_count")
    assert [tuple(each[name] for name in shown) for each in levels] == [(1, 1, 5, 2), (9, 5, 1, 1)]
    assert all(each["oldest_wait_seconds"] >= 0 for each in levels)


async def test_keys_show_weight_and_the_share_that_they_ask_for(everywhere: Client, name: str) -> None:
    await start(everywhere, name, 4, fairness_key="big", fairness_weight=3)
    await start(everywhere, name, 2, fairness_key="small")
    await start(everywhere, name, 1)
    shown = keys(await activities(everywhere, name))
    assert list(shown) == ["big", "small", ""]
    asked = {key: (each["weight"], each["weight_source"], each["share_asked"]) for key, each in shown.items()}
    assert asked == {"big": (3.0, "task", 0.6), "small": (1.0, "default", 0.2), "": (1.0, "default", 0.2)}
    assert {each["share_got"] for each in shown.values()} == {None}
    assert {each["running"] for each in shown.values()} == {None}


async def test_a_weight_of_the_operator_is_shown_before_anybody_polls(everywhere: Client, name: str) -> None:
    await start(everywhere, name, 2, fairness_key="big")
    await start(everywhere, name, 1, fairness_key="small")
    await configure(everywhere, name, set_fairness_weight_overrides={"big": 4})
    big, small = keys(await activities(everywhere, name)).values()
    assert (big["weight"], big["weight_source"], big["share_asked"]) == (4.0, "override", 0.8)
    assert (small["weight_source"], small["share_asked"]) == ("default", 0.2)
    await configure(everywhere, name, clear_fairness_weight_overrides=True)
    assert keys(await activities(everywhere, name))["big"]["share_asked"] == 0.5


async def test_keys_show_what_they_got(everywhere: Client, name: str) -> None:
    for key in ("a", "b"):
        await start(everywhere, name, 10, fairness_key=key)
    assert await take(everywhere, name, 4) == 4
    tasks = await activities(everywhere, name)
    for each in keys(tasks).values():
        assert (each["share_got"], each["dispatches_last_minute"], each["backlog_count"]) == (0.5, 2, 8)


async def test_of_many_keys_those_with_the_most_tasks_are_shown(everywhere: Client, name: str) -> None:
    for number in range(25):
        await start(everywhere, name, 2 if number >= 20 else 1, fairness_key=f"k{number:02}")
    tasks = await activities(everywhere, name)
    assert tasks["backlog_by_priority"][0]["key_count"] == 25
    assert [each["backlog_count"] for each in tasks["top_keys"]] == [2] * 5 + [1] * 15


async def test_a_key_says_what_is_in_its_way(everywhere: Client, name: str) -> None:
    for key in ("closed", "held", "paused", "slow", "free"):
        await start(everywhere, name, 3, fairness_key=key)
    await configure(
        everywhere,
        name,
        fairness_key_rps_burst_seconds=0,
        keys={
            "closed": {"rps_limit": 0},
            "held": {"max_running": 1},
            "paused": {"paused": True},
            "slow": {"rps_limit": 0.001},
        },
    )
    before = {key: each["state"] for key, each in keys(await activities(everywhere, name)).items()}
    assert before == {
        "closed": "rate_limited",
        "held": "ready",
        "paused": "paused",
        "slow": "ready",
        "free": "ready",
    }
    assert await take(everywhere, name, 4) == 4
    shown = keys(await activities(everywhere, name))
    assert {key: each["state"] for key, each in shown.items()} == {
        "closed": "rate_limited",
        "held": "at_running_limit",
        "paused": "paused",
        "slow": "rate_limited",
        "free": "ready",
    }
    assert shown["slow"]["open_at"] is not None
    assert [shown[key]["open_at"] for key in ("closed", "held", "paused", "free")] == [None] * 4
    assert shown["held"]["running"] == 1


async def test_a_rate_that_is_spent_says_when_the_next_task_goes(everywhere: Client, name: str) -> None:
    await start(everywhere, name, 3)
    await configure(
        everywhere,
        name,
        queue_rps_limit=0.001,
        queue_rps_limit_reason="overall limit",
        queue_rps_burst_seconds=0,
    )
    assert (await activities(everywhere, name))["rate"] == {
        "limit": 0.001,
        "source": "operator",
        "next_dispatch_at": None,
        "burst_seconds": 0.0,
        "operator": 0.001,
        "worker": None,
        "system": None,
        "conflict": None,
        "worker_caps": {"limit": None, "capped_workers": 0, "uncapped_workers": 0, "tighter": "queue"},
    }
    assert await take(everywhere, name, 2) == 1
    body = await described(everywhere, name)
    tasks = body["stats"]["activity_tasks"]
    assert tasks["rate"]["next_dispatch_at"] is not None
    assert tasks["settings"]["queue_rps_limit"]["reason"] == "overall limit"
    assert body["admission"]["activity_tasks"]["status"] == "throttled"


async def test_the_cap_of_the_queue_is_shown_beside_what_its_workers_take_by_themselves(
    everywhere: Client, name: str
) -> None:
    async def register(worker: str, **fields: Any) -> None:
        body = {"worker_id": f"{name}-{worker}", "task_queue": name, "runtime": "python"} | fields
        (await everywhere.post("/api/worker/register", body, role="worker")).expect(201)

    async def caps() -> list[Any]:
        shown = (await activities(everywhere, name))["rate"]["worker_caps"]
        return [shown[field] for field in ("limit", "capped_workers", "uncapped_workers", "tighter")]

    await register("a", max_activities_per_second=7.5, max_task_queue_activities_per_second=20)
    assert await caps() == [7.5, 1, 0, "workers"]
    await register("b", max_activities_per_second=12.5)
    assert await caps() == [20, 2, 0, "queue"]
    await configure(everywhere, name, queue_rps_limit=30)
    assert await caps() == [20, 2, 0, "workers"]
    await register("c")
    assert await caps() == [None, 2, 1, "queue"]
    pollers = (await described(everywhere, name))["pollers"]
    shown = {
        each["worker_id"].removeprefix(f"{name}-"): each["max_activities_per_second"] for each in pollers
    }
    assert shown == {"a": 7.5, "b": 12.5, "c": None}


async def test_whose_rate_holds_is_shown_with_when_it_lapses_and_with_a_conflict(
    everywhere: Client, name: str
) -> None:
    said = {"max_task_queue_activities_per_second": 5, "queue_rate_burst_seconds": 0.2}
    for worker, fields in (("a", said), ("b", said | {"max_task_queue_activities_per_second": 50})):
        body = {"worker_id": f"{name}-{worker}", "task_queue": name, "runtime": "python"} | fields
        (await everywhere.post("/api/worker/register", body, role="worker")).expect(201)
    rate = (await activities(everywhere, name))["rate"]
    assert (rate["limit"], rate["source"], rate["burst_seconds"]) == (50, "worker", 0.2)
    assert (rate["worker"]["value"], rate["worker"]["worker_id"]) == (50, f"{name}-b")
    assert rate["worker"]["lapses_at"] > rate["worker"]["updated_at"]
    assert rate["conflict"]["workers"] == [
        {"worker_id": f"{name}-a", "value": 5},
        {"worker_id": f"{name}-b", "value": 50},
    ]
    await configure(everywhere, name, queue_rps_limit=8)
    rate = (await activities(everywhere, name))["rate"]
    assert (rate["limit"], rate["source"], rate["operator"], rate["worker"]["value"]) == (
        8,
        "operator",
        8,
        50,
    )


async def test_admission_shows_the_limit_on_running_tasks(everywhere: Client, name: str) -> None:
    await start(everywhere, name, 3)
    await configure(everywhere, name, max_running=2)
    assert await take(everywhere, name, 3) == 2
    section = (await described(everywhere, name))["admission"]["activity_tasks"]
    shown = ("status", "server_max_active_leases_per_queue", "server_remaining_active_lease_capacity")
    assert [section[field] for field in shown] == ["throttled", 2, 0]
    listed = (await everywhere.get("/api/task-queues")).expect(200).json["task_queues"]
    [mine] = [each for each in listed if each["name"] == name]
    assert mine["admission"]["activity_tasks"]["status"] == "throttled"


async def test_the_order_of_arrival_is_told(everywhere: Client, name: str) -> None:
    await configure(everywhere, name, fairness="off")
    stats = (await described(everywhere, name))["stats"]
    assert (stats["activity_tasks"]["fairness"], stats["workflow_tasks"]["fairness"]) == (False, True)


async def test_metrics_count_dispatches_by_level_and_never_name_a_key(penstock: Client, name: str) -> None:
    await start(penstock, name, 2, priority=7, fairness_key="a-key-to-look-for")
    before = await _metrics(penstock)
    assert await take(penstock, name, 1) == 1
    after = await _metrics(penstock)
    dispatched = 'penstock_dispatches_total{kind="activity",priority="7"}'
    answered = 'penstock_polls_total{kind="activity",outcome="leased"}'
    assert after[dispatched] - before.get(dispatched, 0) == 1
    assert after[answered] - before.get(answered, 0) == 1
    assert not any("a-key-to-look-for" in line or name in line for line in after)


async def test_a_queue_where_tasks_wait_for_a_worker_that_is_not_there_is_a_number(
    penstock: Client, name: str
) -> None:
    alone = f'penstock_queue_without_worker{{kind="activity",namespace="default",task_queue="{name}"}}'
    queues = {"path": "/api/metrics/task-queues", "role": "operator"}
    await start(penstock, name, 2)
    assert (await _metrics(penstock, **queues))[alone] == 1
    assert await take(penstock, name, 1) == 1
    assert (await _metrics(penstock, **queues))[alone] == 0


async def test_a_stock_prometheus_scrapes_the_queues_of_a_namespace_with_a_token_alone(
    penstock: Client, name: str
) -> None:
    """It sends what Prometheus sends: no version header, and the namespace as a parameter."""
    await start(penstock, name, 2)
    version = "X-Durable-Workflow-Control-Plane-Version"
    scrape = {
        version: None,
        "X-Namespace": None,
        "User-Agent": "Prometheus/3.5.0",
        "Accept": "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "X-Prometheus-Scrape-Timeout-Seconds": "10",
    }
    target = "/api/metrics/task-queues?namespace=default"
    reply = await penstock.get(target, headers=scrape)
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert f'task_queue="{name}"'.encode() in reply.raw
    (await penstock.get(target, headers=scrape | {"Authorization": None})).refused(401, "unauthorized")
    wrong = {version: "1"}
    (await penstock.get(target, headers=wrong)).refused(400, "unsupported_control_plane_version")


async def test_a_task_of_a_type_that_no_worker_takes_shows_everywhere(everywhere: Client, name: str) -> None:
    """A worker for `only.this` and a waiting `other.type` were `accepting`, and only `why` knew."""
    registration = {
        "worker_id": f"w-{name}",
        "task_queue": name,
        "runtime": "python",
        "supported_activity_types": ["only.this"],
    }
    (await everywhere.post("/api/worker/register", registration, role="worker")).expect(201)
    body = {"activity_type": "other.type", "task_queue": name, "activity_id": f"a-{name}"}
    (await everywhere.post("/api/activities", body)).expect(201)
    why = (await everywhere.get(f"/api/activities/a-{name}/why")).expect(200).json["binding"]
    assert why["kind"] == "no_worker_for_type"
    queue = await described(everywhere, name)
    section = queue["admission"]["activity_tasks"]
    assert (section["status"], queue["repair"]["needs_attention"]) == ("no_worker_for_type", True)
    assert section["unserved_ready_count"] == 1
    [route] = section["unserved"]
    assert (route["type"], route["reason"], route["message"]) == ("other.type", why["kind"], why["message"])
    listed = (await everywhere.get("/api/task-queues")).expect(200).json["task_queues"]
    [mine] = [each for each in listed if each["name"] == name]
    assert (mine["admission"], mine["repair"]) == (queue["admission"], queue["repair"])
    numbers = await _metrics(everywhere, path="/api/metrics/task-queues", role="operator")
    labels = f'kind="activity",namespace="default",task_queue="{name}"'
    assert numbers[f"penstock_queue_without_worker{{{labels}}}"] == 1
    told = f'kind="activity",namespace="default",status="no_worker_for_type",task_queue="{name}"'
    assert numbers[f"penstock_queue_admission{{{told}}}"] == 1
    assert [value for series, value in numbers.items() if "unserved" in series and f'"{name}"' in series] == [
        1
    ]
    more = registration | {"worker_id": f"w2-{name}", "supported_activity_types": ["other.type"]}
    (await everywhere.post("/api/worker/register", more, role="worker")).expect(201)
    queue = await described(everywhere, name)
    section = queue["admission"]["activity_tasks"]
    assert (section["status"], section["unserved"]) == ("accepting", [])
    assert queue["repair"]["needs_attention"] is False


async def _metrics(client: Client, path: str = "/metrics", role: str | None = None) -> dict[str, float]:
    text = (await client.get(path, role=role)).raw.decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}
