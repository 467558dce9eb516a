"""Sticky runs: they stay with the worker that caches them while it polls."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.sdk import workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.worker import Worker, metrics
from tests.acceptance.cluster import Cluster, Hand, Json, until
from tests.sdk.server_fixtures import OPERATOR, WORKER
from tests.support.patience import PATIENCE_S

RUNS = 6
SIGNALS = 5
_ids = itertools.count(1)


async def keep(worker: Hand, task: Json, sticky_ms: int = 600_000) -> None:
    """Complete a task as a worker does that keeps the run in memory."""
    said = {"commands": [], "concurrent": True, "cached": True, "sticky_timeout_ms": sticky_ms}
    (await worker.report(task, "complete", **said)).expect(200)


async def kept(scene: Cluster, worker: Hand, workflow_id: str, sticky_ms: int = 600_000) -> None:
    """A run that a worker keeps in memory."""
    (await scene.start(workflow_id)).expect(201)
    await keep(worker, await worker.take(), sticky_ms)


async def wake(scene: Cluster, workflow_id: str) -> None:
    """Have a run's next task put in line."""
    (await scene.post(f"/api/workflows/{workflow_id}/signal/go", {"input": []})).ok()


async def test_a_task_waits_for_its_worker_and_others_step_over_it(scene: Cluster) -> None:
    first, second = await scene.worker("w-1"), await scene.worker("w-2")
    await kept(scene, first, "order-1")
    await wake(scene, "order-1")
    (await scene.start("order-2")).expect(201)
    assert (await second.take())["workflow_id"] == "order-2"
    for server in scene.servers:
        assert (await second.poll(server=server)).expect(200)["poll_status"] == "empty"
    why = (await scene.get("/api/workflows/order-1/why")).expect(200)
    assert (why["binding"]["kind"], why["waits"]) == ("reserved", True)
    assert "the worker w-1 has its run cached" in why["summary"]
    assert (await first.take())["workflow_id"] == "order-1"


async def test_a_poll_that_waits_on_any_server_is_given_the_task_when_its_time_is_over(
    scene: Cluster,
) -> None:
    first, second = await scene.worker("w-1"), await scene.worker("w-2")
    for number, server in enumerate(scene.servers):
        await kept(scene, first, f"order-{number}", sticky_ms=700)
        poll = asyncio.ensure_future(second.take(server=server))
        await wake(scene, f"order-{number}")
        assert (await poll)["workflow_id"] == f"order-{number}"


async def test_a_worker_that_leaves_is_not_waited_for(scene: Cluster) -> None:
    first, second = await scene.worker("w-1"), await scene.worker("w-2")
    await kept(scene, first, "order-1")
    await wake(scene, "order-1")
    poll = asyncio.ensure_future(second.take())
    (await scene.ask("DELETE", "/api/workers/w-1", role="admin")).ok()
    assert (await poll)["workflow_id"] == "order-1"


@pytest.mark.parametrize("sticky_ms", [-1, 600_001, "10", 1.5])
async def test_a_time_that_is_none_is_refused(scene: Cluster, sticky_ms: object) -> None:
    (await scene.start("order-1")).expect(201)
    worker = await scene.worker("w-1")
    task = await worker.take()
    said = {"commands": [], "concurrent": True, "cached": True, "sticky_timeout_ms": sticky_ms}
    assert (await worker.report(task, "complete", **said)).status == 422


@workflow.defn
class Counting:
    """Counts its signals, and returns which worker processed them."""

    def __init__(self) -> None:
        self.heard = 0

    @workflow.run
    async def run(self, count: int) -> int:
        await workflow.wait_condition(lambda: self.heard >= count)
        return self.heard

    @workflow.signal
    def go(self) -> None:
        self.heard += 1


class Looks:
    """How often a worker went on with a run that it kept, and how often it replayed one."""

    def __init__(self) -> None:
        self.by_outcome: Counter[str] = Counter()

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        if name == metrics.CACHE_LOOKS:
            self.by_outcome[labels["outcome"]] += by

    def timing(self, name: str, seconds: float, **labels: str) -> None:
        return None

    def level(self, name: str, value: float, **labels: str) -> None:
        return None


@asynccontextmanager
async def client_of(scene: Cluster, number: int) -> AsyncIterator[Client]:
    server = scene.servers[number % len(scene.servers)]
    client = await Client.connect(
        server.url, namespace=scene.namespace or "default", control_token=OPERATOR, worker_token=WORKER
    )
    async with client:
        yield client


async def heard(scene: Cluster, workflow_id: str, count: int) -> None:
    """Until the code has looked at so many signals."""

    async def so_many() -> bool:
        types = await scene.event_types(workflow_id)
        looked = [place for place, each in enumerate(types) if each == "WorkflowTaskCompleted"]
        return bool(looked) and types[: looked[-1]].count("SignalReceived") >= count

    await until(so_many)


async def test_all_tasks_of_a_run_go_to_one_worker_while_that_is_there(scene: Cluster) -> None:
    looks = [Looks(), Looks()]
    async with (
        client_of(scene, 0) as one,
        client_of(scene, 1) as other,
        Worker(one, task_queue="q", workflows=[Counting], metrics=looks[0]),
        Worker(other, task_queue="q", workflows=[Counting], metrics=looks[1]),
    ):
        handles = [
            await one.start_workflow(Counting.run, SIGNALS, id=f"run-{next(_ids)}", task_queue="q")
            for _ in range(RUNS)
        ]
        for handle in handles:
            await heard(scene, handle.id, 0)
        for number in range(1, SIGNALS + 1):
            for handle in handles:
                await handle.signal(Counting.go)
                if number < SIGNALS:
                    await heard(scene, handle.id, number)
        assert [await handle.result() for handle in handles] == [SIGNALS] * RUNS
    total = looks[0].by_outcome + looks[1].by_outcome
    assert total == {"replayed": RUNS, "kept": RUNS * SIGNALS}


PROGRAM = """
import asyncio, sys
from datetime import timedelta

from penstock.sdk.clients.client import Client
from penstock.sdk.worker import Worker
from tests.acceptance.matching.test_sticky_tasks import Counting


async def main() -> None:
    tokens = {"control_token": sys.argv[3], "worker_token": sys.argv[4]}
    client = await Client.connect(sys.argv[1], namespace=sys.argv[2], **tokens)
    sticky = timedelta(seconds=float(sys.argv[5]))
    async with client, Worker(
        client, task_queue="q", workflows=[Counting], sticky_queue_schedule_to_start_timeout=sticky
    ):
        print("up", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
"""


@pytest.mark.parametrize("sticky_s", ["2", "300"])
async def test_runs_of_a_worker_that_is_killed_go_on_with_another_one(
    scene: Cluster, tmp_path: Path, sticky_s: str
) -> None:
    """The sticky wait ends when the worker is known to be dead: its connection is gone."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    named = [scene.first.url, scene.namespace or "default", OPERATOR, WORKER, sticky_s]
    path = os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])
    with subprocess.Popen(
        [sys.executable, str(program), *named],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        text=True,
    ) as doomed:
        try:
            assert doomed.stdout is not None
            assert await asyncio.to_thread(doomed.stdout.readline) == "up\n"
            async with client_of(scene, 1) as client:
                handles = [
                    await client.start_workflow(Counting.run, 2, id=f"run-{next(_ids)}", task_queue="q")
                    for _ in range(RUNS)
                ]
                for handle in handles:
                    await handle.signal(Counting.go)
                    await heard(scene, handle.id, 1)
                doomed.send_signal(signal.SIGKILL)
                doomed.wait()
                looks = Looks()
                async with Worker(client, task_queue="q", workflows=[Counting], metrics=looks):
                    for handle in handles:
                        await handle.signal(Counting.go)
                    async with asyncio.timeout(PATIENCE_S):
                        assert [await handle.result() for handle in handles] == [2] * RUNS
        finally:
            doomed.kill()
    assert looks.by_outcome == {"replayed": RUNS}
