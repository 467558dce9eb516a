"""Temporal's SDK: `with_temporal worker ADDRESS` runs tasks and workflows, `with_temporal client ADDRESS` is asked."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
from datetime import timedelta
from math import ceil
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import (
    Replayer,
    UnsandboxedWorkflowRunner,
    Worker,
)

from benchmarks.peers.exchange import Json, Ticks, answer_questions, save, saved, timed

QUEUE = "bench"
TIMEOUT = timedelta(seconds=10)
"""Short, so that a task whose delivery got lost is delivered again soon."""
CONNECT_SECONDS_MAX = 30.0
GROWN_AT_ONCE = 500
HISTORY_WIDTH = 100
"""Activities side by side in each round of the history that is replayed."""
EVENTS_OF_AN_ACTIVITY = 3
ticks: Ticks


@activity.defn
async def nothing() -> float:
    return ticks.tick()


@workflow.defn(sandboxed=False)
class Sequence:
    @workflow.run
    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await workflow.execute_activity(nothing, start_to_close_timeout=TIMEOUT)


@workflow.defn(sandboxed=False)
class Rounds:
    @workflow.run
    async def run(self, rounds: int, width: int) -> None:
        for _ in range(rounds):
            await asyncio.gather(
                *(workflow.execute_activity(nothing, start_to_close_timeout=TIMEOUT) for _ in range(width))
            )


@workflow.defn(sandboxed=False)
class Long:
    """Lives until it is told to end; `grow` makes its history longer, `more` adds as little as an update can."""

    def __init__(self) -> None:
        self.ended = False
        self.grown = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.ended)

    @workflow.update
    async def grow(self, events: int) -> None:
        for _ in range(events):
            self.grown += 1
            workflow.upsert_memo({"grown": self.grown})

    @workflow.update
    async def more(self) -> None:
        self.grown += 1

    @workflow.signal
    def end(self) -> None:
        self.ended = True


class Asked:
    sends_at_once = 16
    workflows_at_once = 100
    counted = 0.98
    """Now and then the dev server delivers a task only after its timeout."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._numbers = itertools.count(1)
        self._long: dict[str, Any] = {}

    def _id(self) -> str:
        return f"bench-{time.monotonic_ns()}-{next(self._numbers)}"

    async def send(self) -> None:
        await self._client.start_activity(
            nothing, id=self._id(), task_queue=QUEUE, start_to_close_timeout=TIMEOUT
        )

    async def ask(self) -> float:
        return float(
            await self._client.execute_activity(
                nothing, id=self._id(), task_queue=QUEUE, start_to_close_timeout=TIMEOUT
            )
        )

    async def workflow(self, steps: int) -> None:
        await self._client.execute_workflow(Sequence.run, steps, id=self._id(), task_queue=QUEUE)

    async def fan_out(self, width: int) -> None:
        await self._client.execute_workflow(Rounds.run, args=[1, width], id=self._id(), task_queue=QUEUE)

    async def record(self, events: int, path: str) -> Json:
        """Run a workflow of about so many events, and save its history."""
        width = min(HISTORY_WIDTH, ceil(events / EVENTS_OF_AN_ACTIVITY))
        rounds = ceil(events / EVENTS_OF_AN_ACTIVITY / width)
        handle = await self._client.start_workflow(
            Rounds.run, args=[rounds, width], id=self._id(), task_queue=QUEUE
        )
        await handle.result()
        history = await handle.fetch_history()
        save(path, history.to_json())
        return {"events": len(history.events)}

    async def replay(self, path: str) -> Json:
        """Replay a saved history; reading it is not counted."""
        history = WorkflowHistory.from_json("bench", saved(path))
        replayer = Replayer(workflows=[Rounds], workflow_runner=UnsandboxedWorkflowRunner())
        began = time.perf_counter()
        await replayer.replay_workflow(history)
        return {"count": len(history.events), "seconds": time.perf_counter() - began}

    async def lengthen(self, events: int) -> Json:
        """A run whose history has about so many events; it stays open, and its worker has it in its cache."""
        handle = self._long[str(events)] = await self._client.start_workflow(
            Long.run, id=self._id(), task_queue=QUEUE
        )
        for start in range(0, events, GROWN_AT_ONCE):
            await handle.execute_update(Long.grow, min(GROWN_AT_ONCE, events - start))
        return {"events": (await handle.describe()).history_length}

    async def more(self, events: int, count: int) -> Json:
        """So many updates, one after the other, of the run that is about so long."""
        return await timed(count, lambda: self._long[str(events)].execute_update(Long.more))

    async def end(self) -> Json:
        for handle in self._long.values():
            await handle.signal(Long.end)
            await handle.result()
        return {}


async def _connected(address: str) -> Any:
    ends_at = time.monotonic() + CONNECT_SECONDS_MAX
    while True:
        try:
            return await Client.connect(address)
        except RuntimeError:
            if time.monotonic() > ends_at:
                raise
            await asyncio.sleep(0.2)


async def _client(address: str) -> None:
    await answer_questions(Asked(await _connected(address)), ticks)


async def _worker(address: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with Worker(
        await _connected(address),
        task_queue=QUEUE,
        workflows=[Sequence, Rounds, Long],
        activities=[nothing],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=1000,
        max_concurrent_activities=100,
        max_concurrent_workflow_tasks=100,
    ):
        await ended.wait()


if __name__ == "__main__":
    ticks = Ticks()
    asyncio.run((_worker if sys.argv[1] == "worker" else _client)(sys.argv[2]))
