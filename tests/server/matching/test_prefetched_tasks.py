"""Prefetched tasks as operators see them: they use no slot until they are started."""

from __future__ import annotations

import itertools
import re

import pytest

from penstock.cli.limits.admission import _slots
from tests.server.client import Client
from tests.server.test_batches import Body, item, start

NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    """A queue of the test's own: the servers are shared."""
    return f"ahead-{next(NUMBERS)}"


async def claimed(client: Client, name: str, count: int) -> list[Body]:
    asked = {
        "worker_id": f"worker-{name}",
        "task_queue": name,
        "timeout_seconds": 0,
        "max_tasks": count,
        "claim_lease_ms": 60_000,
    }
    answer = (await client.post("/api/worker/activity-tasks/poll", asked, role="worker")).expect(200)
    tasks: list[Body] = answer.json["tasks"]
    assert len(tasks) == count
    return tasks


async def begin(client: Client, name: str, task: Body) -> None:
    lease = {"lease_owner": f"worker-{name}", "activity_attempt_id": task["activity_attempt_id"]}
    path = f"/api/worker/activity-tasks/{task['task_id']}/start"
    (await client.post(path, lease, role="worker")).expect(200)


async def test_two_running_and_four_claimed_of_four_slots_are_not_saturated(
    everywhere: Client, name: str
) -> None:
    """Seen: "6 of 4 slots, saturated, add workers"."""
    worker: Body = {"worker_id": f"worker-{name}", "task_queue": name, "runtime": "python"}
    worker |= {"max_concurrent_activity_tasks": 4}
    (await everywhere.post("/api/worker/register", worker, role="worker")).expect(201)
    await start(everywhere, [item(name, number) for number in range(8)])
    for task in (await claimed(everywhere, name, 4))[:2]:
        await begin(everywhere, name, task)
    await claimed(everywhere, name, 2)
    queue = (await everywhere.get(f"/api/task-queues/{name}")).expect(200).json
    section = queue["admission"]["activity_tasks"]
    assert (section["status"], section["available_slot_count"]) == ("accepting", 2)
    assert (section["leased_count"], section["claimed_count"]) == (6, 4)
    assert section["server_active_lease_count"] == 2
    assert queue["stats"]["activity_tasks"]["claimed_count"] == 4
    assert "2 of 4, 2 left; 4 claimed ahead" in _slots(section).text
    metrics = (await everywhere.get("/api/metrics/task-queues")).raw.decode()
    labels = f'kind="activity",namespace="default",task_queue="{name}"'
    assert numbers(metrics, labels) == {"leased": 6.0, "claimed": 4.0, "worker_slots": 4.0, "ready": 2.0}
    assert f"penstock_queue_admission{{{labels_with(labels, 'accepting')}}} 1.0" in metrics


async def test_two_running_and_four_claimed_of_two_slots_and_a_buffer_of_four_are_two_of_two(
    everywhere: Client, name: str
) -> None:
    """A worker of two processes that claims four ahead: it is full, with what it runs."""
    worker: Body = {"worker_id": f"worker-{name}", "task_queue": name, "runtime": "python"}
    worker |= {"max_concurrent_activity_tasks": 2, "max_claimed_activity_tasks": 4}
    (await everywhere.post("/api/worker/register", worker, role="worker")).expect(201)
    await start(everywhere, [item(name, number) for number in range(8)])
    for task in (await claimed(everywhere, name, 4))[:2]:
        await begin(everywhere, name, task)
    await claimed(everywhere, name, 2)
    queue = (await everywhere.get(f"/api/task-queues/{name}")).expect(200).json
    section = queue["admission"]["activity_tasks"]
    assert (section["status"], section["available_slot_count"]) == ("saturated", 0)
    assert (section["configured_slot_count"], section["claimed_count"]) == (2, 4)
    assert "2 of 2, 0 left; 4 claimed ahead" in _slots(section).text


def numbers(metrics: str, labels: str) -> dict[str, float]:
    names = "leased|claimed|worker_slots|ready"
    found = re.findall(rf"^penstock_queue_({names})\{{{re.escape(labels)}\}} (\S+)$", metrics, re.MULTILINE)
    return {name: float(value) for name, value in found}


def labels_with(labels: str, status: str) -> str:
    kind, namespace, queue = labels.split(",")
    return f'{kind},{namespace},status="{status}",{queue}'
