"""Ours as an app: `with_penstock_app worker URL` runs its tasks and workflows, `… client URL` is asked for them."""

from __future__ import annotations

import itertools
import sys
import time
from datetime import timedelta

import uvloop

from benchmarks.peers.exchange import Json, Ticks, answer_questions, in_flight
from penstock import Penstock, Worker, workflow
from penstock.sdk.worker import run_worker

TIMEOUT = timedelta(seconds=60)
OPENED_AT_ONCE = 20
ticks = Ticks()
app = Penstock(
    "bench", sys.argv[2], queue="bench", control_token="operator-secret", worker_token="worker-secret"
)


@app.task(name="nothing", timeout=TIMEOUT)
async def nothing() -> float:
    return ticks.tick()


@app.workflow
@workflow.defn
class Sequence:
    @workflow.run
    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await workflow.execute_activity(nothing, start_to_close_timeout=TIMEOUT)


@app.workflow
@workflow.defn
class Open:
    """Waits for something that never comes."""

    def __init__(self) -> None:
        self.ended = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.ended)

    @workflow.query
    def begun(self) -> bool:
        return True


class Asked:
    sends_at_once = 256
    batches_at_once = 4
    workflows_at_once = 100

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def send(self) -> None:
        await nothing.send()

    async def send_many(self, count: int) -> None:
        await nothing.send_many([()] * count)

    async def ask(self) -> float:
        return await (await nothing.send()).result()

    async def workflow(self, steps: int) -> None:
        client = await app.client()
        await client.execute_workflow(Sequence.run, steps, id=self._id(), task_queue=app.queue)

    async def open(self, count: int) -> Json:
        """So many workflows that have begun and wait."""
        client = await app.client()

        async def one() -> None:
            handle = await client.start_workflow(Open.run, id=self._id(), task_queue=app.queue)
            await handle.query(Open.begun)

        return await in_flight(count, OPENED_AT_ONCE, one)

    def _id(self) -> str:
        return f"bench-{time.monotonic_ns()}-{next(self._numbers)}"


async def _client() -> None:
    async with app:
        await answer_questions(Asked(), ticks)


async def _worker() -> Worker:
    return app.worker(
        await app.client(),
        concurrency=400,
        max_concurrent_activity_task_polls=4,
        max_concurrent_workflow_task_polls=1,
    )


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        run_worker(_worker)
    else:
        uvloop.run(_client())
