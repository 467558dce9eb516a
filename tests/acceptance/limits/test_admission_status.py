"""Every admission status on real servers; polls and the command line agree with it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.acceptance.cluster import Cluster, Hand, Json, until
from tests.acceptance.conftest import TOPOLOGIES, serving
from tests.acceptance.messaging.test_queries import a_waiting_run, ask
from tests.support.dispatch_log import standing
from tests.support.patience import PATIENCE_S
from tests.support.servers import Server

SETTINGS = {"DW_JOURNAL": "true", "DW_QUERY_TASK_MAX_PENDING_PER_QUEUE": "2", "DW_QUERY_TASK_TIMEOUT": "60"}


async def section(scene: Cluster, kind: str = "activity", task_queue: str = "q") -> Json:
    found = (await scene.get(f"/api/task-queues/{task_queue}")).expect(200)["admission"][f"{kind}_tasks"]
    assert isinstance(found, dict)
    return found


async def status(scene: Cluster, kind: str = "activity") -> str:
    """As the queue describes itself; the list of queues says the same."""
    described = await section(scene, kind)
    listed = (await scene.get("/api/task-queues")).expect(200)["task_queues"]
    [mine] = [queue for queue in listed if queue["name"] == "q"]
    assert mine["admission"][f"{kind}_tasks"]["status"] == described["status"]
    return str(described["status"])


async def polled(hand: Hand) -> str:
    return str((await hand.poll("activity")).expect(200)["poll_status"])


async def limits(scene: Cluster, path: str = "/api/task-queues/q/limits", **fields: Any) -> None:
    (await scene.ask("PATCH", path, fields)).expect(200)


async def test_a_queue_without_workers_has_no_active_workers(scene: Cluster):
    await scene.queue_up(standing("", 1))
    assert await status(scene) == "no_active_workers"


async def test_free_slots_and_no_full_limit_are_accepting(scene: Cluster):
    hand = await scene.worker("w1")
    assert (await status(scene), await polled(hand)) == ("accepting", "empty")


async def test_slots_that_are_all_leased_are_saturated_and_their_worker_gets_nothing_more(scene: Cluster):
    hand = await scene.worker("w1", max_concurrent_activity_tasks=2)
    await scene.queue_up(standing("", 5))
    await hand.drain(2)
    assert await status(scene) == "saturated"
    assert (await section(scene))["available_slot_count"] == 0
    assert await polled(hand) == "empty", "no limit of the server holds back"


async def test_workers_that_offer_no_more_slots_of_a_kind_leave_none(scene: Cluster):
    """Who registers offers at least one; a worker that is to take nothing of a kind says so when it is heard."""
    await scene.worker("w1")
    beat = {"worker_id": "w1", "max_concurrent_activity_tasks": 0}
    (await scene.post("/api/worker/heartbeat", beat, role="worker")).expect(200)
    assert (await status(scene), await status(scene, "workflow")) == ("no_slots", "accepting")


@pytest.mark.parametrize("limit", ["max_active_leases_per_queue", "max_dispatches_per_minute"])
async def test_a_full_limit_of_the_queue_is_throttled(scene: Cluster, limit: str):
    hand = await scene.worker("w1")
    change: Json = {limit: 2, "dispatch_window": "sliding"}
    await limits(scene, **change)
    await scene.queue_up(standing("", 5))
    assert await status(scene) == "accepting"
    await hand.drain(2)
    assert (await status(scene), await polled(hand)) == ("throttled", "throttled")


@pytest.mark.parametrize("limit", ["max_active_leases", "max_dispatches_per_minute"])
@pytest.mark.parametrize("scope", ["namespace", "group"])
async def test_a_full_limit_of_what_the_queue_belongs_to_is_throttled(scene: Cluster, scope: str, limit: str):
    hand = await scene.worker("w1")
    path = f"/api/namespaces/{scene.namespace}/limits" if scope == "namespace" else "/api/budget-groups/g"
    await limits(scene, dispatch_budget_group="g")
    await limits(scene, path, **{limit: 2, "dispatch_window": "sliding"})
    await scene.queue_up(standing("", 5))
    await hand.drain(2)
    assert (await status(scene), await polled(hand)) == ("throttled", "throttled")
    shown = await section(scene)
    names = {
        ("namespace", "max_active_leases"): "server_remaining_namespace_active_lease_capacity",
        ("namespace", "max_dispatches_per_minute"): "server_remaining_namespace_dispatch_capacity",
        ("group", "max_dispatches_per_minute"): "server_remaining_budget_group_dispatch_capacity",
    }
    if (scope, limit) in names:
        assert shown[names[scope, limit]] == 0
    [full] = [cap for cap in shown["caps"] if cap["remaining"] == 0]
    assert (full["max"], full["used"]) == (2, 2)


async def test_a_pause_is_throttled(scene: Cluster):
    hand = await scene.worker("w1")
    await scene.queue_up(standing("", 1))
    (await scene.post("/api/task-queues/q/pause", {})).expect(200)
    assert (await status(scene), await polled(hand)) == ("throttled", "throttled")
    (await scene.post("/api/task-queues/q/resume", {})).expect(200)
    assert (await status(scene), await polled(hand)) == ("accepting", "leased")


async def test_a_rate_that_is_full_says_when_it_opens(scene: Cluster):
    hand = await scene.worker("w1")
    await limits(scene, max_dispatches_per_minute=2, dispatch_window="sliding")
    await scene.queue_up(standing("", 5))
    before = datetime.now(UTC)
    await hand.drain(2)
    [cap] = (await section(scene))["caps"]
    opens = datetime.fromisoformat(cap["opens_at"])
    assert timedelta(seconds=59) <= opens - before <= timedelta(seconds=62) + (datetime.now(UTC) - before)


async def test_queries_are_accepted_until_as_many_wait_as_may(scene: Cluster):
    await a_waiting_run(scene)
    shown = await section(scene, "query")
    assert (shown["status"], shown["remaining_pending_capacity"]) == ("accepting", 2)
    asked = [ask(scene), ask(scene)]

    async def full() -> bool:
        return (await section(scene, "query"))["status"] == "full"

    await until(full)
    shown = await section(scene, "query")
    assert (shown["approximate_pending_count"], shown["remaining_pending_capacity"]) == (2, 0)
    refused = (await scene.post("/api/workflows/order-1/query/state", {})).expect(
        429, "query_task_queue_full"
    )
    assert int(refused.headers["Retry-After"]) >= 1
    for each in asked:
        each.cancel()


def dw(scene: Cluster, *words: str) -> Json:
    """What the command line prints as JSON."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DW_")}
    environment |= {
        "DURABLE_WORKFLOW_SERVER_URL": scene.first.url,
        "DURABLE_WORKFLOW_NAMESPACE": str(scene.namespace),
        "DURABLE_WORKFLOW_AUTH_TOKEN": "operator-secret",
    }
    command = (sys.executable, "-c", "from penstock.cli import dw; dw()", *words, "--json")
    done = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=PATIENCE_S)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


async def test_the_command_line_shows_the_same_admission(scene: Cluster):
    hand = await scene.worker("payments-1", "payments", max_concurrent_activity_tasks=12)
    await limits(scene, "/api/task-queues/payments/limits", max_active_leases_per_queue=2)
    await scene.queue_up(standing("", 5), "payments")
    await hand.drain(2)
    shown = (await asyncio.to_thread(dw, scene, "task-queue:describe", "payments"))["admission"]
    assert shown["activity_tasks"]["status"] == "throttled"
    told = await section(scene, task_queue="payments")
    assert {name: value for name, value in shown["activity_tasks"].items() if name != "caps"} == {
        name: value for name, value in told.items() if name != "caps"
    }
    listed = (await asyncio.to_thread(dw, scene, "task-queue:list"))["task_queues"]
    [mine] = [queue for queue in listed if queue["name"] == "payments"]
    assert mine["admission"]["activity_tasks"]["status"] == "throttled"


CONFIGURED = {
    "DW_ACTIVITY_TASK_MAX_ACTIVE_LEASES_PER_QUEUE": "3",
    "DW_TASK_QUEUE_ADMISSION_OVERRIDES": json.dumps(
        {
            "default:closed": {"activity_tasks": {"max_active_leases": 0}},
            "default:*": {"activity_tasks": {"max_active_leases_per_namespace": 4}},
            "q": {
                "activity_tasks": {"budget_group": "g", "max_dispatches_per_minute_per_budget_group": 1000}
            },
        }
    ),
}


@pytest.fixture(params=list(TOPOLOGIES))
async def configured(
    request: pytest.FixtureRequest, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A cluster whose limits come from its configuration."""
    folder = tmp_path_factory.mktemp("configured")
    async with serving(request.param, folder, postgres, SETTINGS | CONFIGURED) as made:
        yield made.at("default")


async def test_limits_of_the_configuration_hold_and_zero_closes(configured: Cluster):
    taken: dict[str, int] = {}
    for queue in ("q", "r", "closed"):
        await configured.queue_up(standing("", 9), queue)
        hand = await configured.worker(f"w-{queue}", queue)
        taken[queue] = len((await hand.poll("activity", max_tasks=9)).expect(200)["tasks"])
    assert taken == {"q": 3, "r": 1, "closed": 0}
    shown = await section(configured)
    assert shown["server_dispatch_budget_group"] == "g"
    assert shown["server_budget_group_dispatch_count_this_minute"] == 3
    sources = "server.admission.activity_tasks.max_active_leases_per_queue;server.admission.queue_overrides"
    assert shown["server_budget_source"] == sources
    closed = await section(configured, task_queue="closed")
    assert (closed["status"], closed["server_max_active_leases_per_queue"]) == ("throttled", 0)
