"""Leases of a worker: handed back on shutdown, and renewed meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.worker import Worker
from tests.acceptance.cluster import Cluster
from tests.sdk.activities.activities_in_processes import in_c_code
from tests.sdk.server_fixtures import serving
from tests.support.patience import PATIENCE, PATIENCE_S
from tests.support.sdk import Numbers, Watched

SHORT = PATIENCE
QUEUE = "q"
ONCE = RetryPolicy(maximum_attempts=1)
_ids = itertools.count(1)


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("handing-back")
    async with serving(folder, DW_ACTIVITY_TASK_TIMEOUT="2") as made:
        yield made


@pytest.fixture
def watched(client: Client) -> Watched:
    return Watched(client.transport)


def new_id() -> str:
    return f"h-{next(_ids)}"


class Gate:
    """An activity that signals its start, and ends when released."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.stopped = asyncio.Event()
        self.attempts: list[int] = []

    @activity.defn(name="gate")
    async def gate(self) -> str:
        self.attempts.append(activity.info().attempt)
        if details := activity.info().heartbeat_details:
            return f"after {details[0]}"
        activity.heartbeat("half")
        self.entered.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return "through"


@workflow.defn
class LocalGate:
    @workflow.run
    async def run(self) -> str:
        return str(
            await workflow.execute_local_activity("gate", start_to_close_timeout=SHORT, retry_policy=ONCE)
        )


async def start_gate(client: Client) -> Any:
    return await client.start_activity(
        "gate", id=new_id(), task_queue=QUEUE, start_to_close_timeout=SHORT, retry_policy=ONCE
    )


async def beats(watched: Watched, times: int) -> list[dict[str, Any]]:
    """The bodies of activity heartbeats, once there are `times` of them."""
    while True:
        heard = watched.of("/heartbeat")
        told = [body for body in heard if "activity_attempt_id" in body]
        if len(told) >= times:
            return told
        await watched.until("/heartbeat", len(heard) + 1)


def handed_back(watched: Watched, kind: str) -> int:
    batches = watched.of(f"{kind}-tasks/batch")
    return sum(item["action"] == "hand_back" for body in batches for item in body["items"])


async def test_an_activity_that_a_stopping_worker_ends_costs_no_attempt(
    client: Client, watched: Watched
) -> None:
    gate, numbers = Gate(), Numbers()
    own = Client(watched, namespace=client.namespace)
    async with Worker(own, task_queue=QUEUE, activities=[gate.gate], metrics=numbers):
        handle = await start_gate(client)
        await gate.entered.wait()
        await beats(watched, 2)
    assert handed_back(watched, "activity") == 1
    assert numbers.counts["penstock_worker_tasks_ended", "activity", "handed_back"] == 1
    async with Worker(client, task_queue=QUEUE, activities=[gate.gate]):
        assert await handle.result() == "after half"
    assert gate.attempts == [1, 1]


async def test_a_workflow_task_whose_local_activity_is_ended_by_a_stopping_worker_is_decided_by_another(
    client: Client, watched: Watched, scene: Cluster
) -> None:
    gate, numbers = Gate(), Numbers()
    own = Client(watched, namespace=client.namespace)
    async with Worker(own, task_queue=QUEUE, workflows=[LocalGate], activities=[gate.gate], metrics=numbers):
        handle = await client.start_workflow(LocalGate.run, id=new_id(), task_queue=QUEUE)
        await gate.entered.wait()
    assert handed_back(watched, "workflow") == 1
    assert numbers.counts["penstock_worker_tasks_ended", "workflow", "handed_back"] == 1
    gate.open.set()
    async with Worker(client, task_queue=QUEUE, workflows=[LocalGate], activities=[gate.gate]):
        assert await handle.result() == "through"
    assert gate.attempts == [1, 1]


async def test_an_activity_that_never_heartbeats_is_told_by_the_renewal_of_its_lease_that_it_is_not_wanted(
    client: Client,
) -> None:
    gate = Gate()
    async with asyncio.timeout(PATIENCE_S), Worker(client, task_queue=QUEUE, activities=[gate.gate]):
        handle = await start_gate(client)
        await gate.entered.wait()
        await handle.cancel()
        await gate.stopped.wait()


async def test_the_renewal_of_a_lease_keeps_what_the_activity_told(client: Client, watched: Watched) -> None:
    gate = Gate()
    own = Client(watched, namespace=client.namespace)
    async with asyncio.timeout(PATIENCE_S), Worker(own, task_queue=QUEUE, activities=[gate.gate]):
        handle = await start_gate(client)
        await gate.entered.wait()
        first, *others = await beats(watched, 3)
        assert "details" in first
        assert not any("details" in each for each in others)
    async with Worker(client, task_queue=QUEUE, activities=[gate.gate]):
        assert await handle.result() == "after half"


async def test_a_process_that_is_in_the_hands_of_c_code_is_not_taken_for_dead(
    client: Client, watched: Watched, tmp_path: Path
) -> None:
    """Scenario 44: nothing else in the process runs meanwhile, and it holds its lease for longer than its duration."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    own = Client(watched, namespace=client.namespace)
    async with asyncio.timeout(PATIENCE_S), Worker(own, task_queue=QUEUE, activities=[in_c_code]):
        handle = await client.start_activity(
            in_c_code,
            str(pipe),
            id=new_id(),
            task_queue=QUEUE,
            start_to_close_timeout=SHORT,
            retry_policy=ONCE,
        )
        await beats(watched, 4)
        os.close(await asyncio.to_thread(os.open, pipe, os.O_WRONLY))
        assert await handle.result() == 1
    assert len({body["activity_attempt_id"] for body in await beats(watched, 4)}) == 1


async def test_a_worker_says_how_its_activities_heartbeat_and_run_in_processes(client: Client) -> None:
    gate = Gate()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"process_slots": 0}, "process_slots is 1"),
        ({"process_recycle_after": 0}, "process_recycle_after is 1"),
        ({"process_start_method": "fork"}, '"spawn" or "forkserver"'),
        ({"auto_heartbeat": timedelta(0)}, "longer than 0"),
    ]
    for options, told in wrong:
        with pytest.raises(ValueError, match=told):
            Worker(client, task_queue=QUEUE, activities=[gate.gate], **options)
    watched = Watched(client.transport)
    own = Client(watched, namespace=client.namespace)
    beat = timedelta(milliseconds=20)
    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(own, task_queue=QUEUE, activities=[gate.gate], auto_heartbeat=beat, process_slots=1),
    ):
        await start_gate(client)
        await beats(watched, 5)
        gate.open.set()
