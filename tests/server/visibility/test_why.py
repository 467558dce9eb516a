"""Why something waits, over HTTP, on every store."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.server.client import Client

NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    """A queue of the test's own: the servers are shared."""
    return f"why-{next(NUMBERS)}"


async def start(client: Client, name: str, number: int = 1, **fields: Any) -> str:
    body = {"activity_id": f"{name}-{number}", "activity_type": "charge", "task_queue": name} | fields
    (await client.post("/api/activities", body)).expect(201)
    return f"{name}-{number}"


async def register(client: Client, name: str, **fields: Any) -> None:
    body = {"worker_id": f"worker-{name}", "task_queue": name, "runtime": "python"} | fields
    (await client.post("/api/worker/register", body, role="worker")).expect(201)


async def poll(client: Client, name: str) -> Any:
    body = {"worker_id": f"worker-{name}", "task_queue": name, "timeout_seconds": 0}
    return (await client.post("/api/worker/activity-tasks/poll", body, role="worker")).expect(200).json


async def why(client: Client, activity_id: str) -> dict[str, Any]:
    body: dict[str, Any] = (await client.get(f"/api/activities/{activity_id}/why")).expect(200).json
    return body


async def test_no_worker_for_the_type(everywhere: Client, name: str) -> None:
    await register(everywhere, name, supported_activity_types=["refund"])
    found = await why(everywhere, await start(everywhere, name))
    assert found["waits"] is True
    assert found["binding"]["kind"] == "no_worker_for_type"
    assert found["binding"]["frees"] == [
        {
            "action": "register_worker",
            "text": f"start a worker that runs the type charge on the task queue {name}",
            "manual": False,
            "scope": f"queue:default/{name}/activity",
            "type": "charge",
        }
    ]
    assert found["expected_start"]["unknown_because"]
    assert found["task"]["state"] == "ready"


async def test_a_full_queue_names_its_holders_and_everything_ahead(everywhere: Client, name: str) -> None:
    limits = {"max_active_leases_per_queue": 1}
    (await everywhere.patch(f"/api/task-queues/{name}/limits", limits)).expect(200)
    await register(everywhere, name)
    held = await start(everywhere, name)
    assert (await poll(everywhere, name))["poll_status"] == "leased"
    await start(everywhere, name, 2, priority=1)
    await start(everywhere, name, 3, fairness_key="acme")
    await start(everywhere, name, 4, fairness_key="acme")
    found = await why(everywhere, f"{name}-4")
    binding = found["binding"]
    assert (binding["kind"], binding["max"], binding["used"]) == ("active_leases", 1, 1)
    assert [each["workflow_id"] for each in binding["holders"]] == [held]
    assert [each["action"] for each in binding["frees"]] == ["end_leases", "raise"]
    assert [each["kind"] for each in found["next"]] == ["priority", "behind_own_key"]
    place = found["position"]
    assert (place["ahead"], place["ahead_by_priority"]) == (
        2,
        [{"priority": 1, "priority_key": 1, "tasks": 1}],
    )
    assert place["is_exact"] is True
    assert found["expected_start"]["from"] is not None
    assert (await why(everywhere, held))["binding"]["kind"] == "leased"


async def test_order_of_arrival_and_the_task_by_its_own_id(everywhere: Client, name: str) -> None:
    (
        await everywhere.patch(
            f"/api/task-queues/{name}/config", {"task_queue_type": "activity", "fairness": "off"}
        )
    ).expect(200)
    await register(everywhere, name)
    for number in range(1, 4):
        await start(everywhere, name, number, fairness_key=f"k{number}")
    found = await why(everywhere, f"{name}-3")
    assert (found["binding"]["kind"], found["position"]["ahead"]) == ("arrival_turn", 2)
    by_task = (await everywhere.get(f"/api/tasks/{found['task']['task_id']}/why")).expect(200).json
    assert by_task["summary"] == found["summary"]
    by_activity = (await everywhere.get(f"/api/activities/{found['activity_id']}/why")).expect(200).json
    assert by_activity["summary"] == found["summary"]


async def test_a_budget_group_with_a_cost_and_a_pause(everywhere: Client, name: str) -> None:
    limits = {"dispatch_budget_group": name}
    (await everywhere.patch(f"/api/task-queues/{name}/limits", limits)).expect(200)
    (await everywhere.patch(f"/api/budget-groups/{name}", {"max_cost_per_minute": 0})).expect(200)
    await register(everywhere, name)
    activity_id = await start(everywhere, name)
    found = await why(everywhere, activity_id)
    assert found["binding"]["kind"] == "cost_per_minute"
    assert found["binding"]["scope"] == f"group:default/{name}"
    (await everywhere.post(f"/api/budget-groups/{name}/pause", {"reason": "too hot"})).expect(200)
    found = await why(everywhere, activity_id)
    assert found["summary"].startswith(
        f"{activity_id} waits: the budget group {name} is paused (by operator: too hot"
    )


async def test_a_workflow_is_explained_by_its_task(everywhere: Client, name: str) -> None:
    body = {"workflow_id": name, "workflow_type": "order", "task_queue": name}
    (await everywhere.post("/api/workflows", body)).expect(201)
    found = (await everywhere.get(f"/api/workflows/{name}/why")).expect(200).json
    assert found["binding"]["kind"] == "no_worker_for_type"
    assert (found["activities"], found["timers"]) == ([], [])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/api/workflows/nobody/why", "instance_not_found"),
        ("/api/activities/nobody/why", "activity_not_found"),
        ("/api/tasks/nobody-1/why", "task_not_found"),
    ],
)
async def test_what_is_not_there(everywhere: Client, path: str, reason: str) -> None:
    (await everywhere.get(path)).refused(404, reason)


async def test_workers_may_not_ask(penstock: Client) -> None:
    (await penstock.get("/api/workflows/nobody/why", role="worker")).refused(403, "forbidden")
