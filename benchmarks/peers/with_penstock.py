"""Our SDK: `with_penstock worker URL` runs tasks and workflows, `with_penstock client URL` is asked for them."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from datetime import timedelta
from math import ceil

import uvloop

from benchmarks.peers.exchange import Json, Ticks, answer_questions, save, saved, timed
from penstock import Client, Replayer, Worker, WorkflowHandle, activity, workflow
from penstock.sdk.clients.descriptions import WorkflowHistory
from penstock.sdk.worker import run_worker

QUEUE = "bench"
TIMEOUT = timedelta(seconds=60)
GROWN_AT_ONCE = 500
HISTORY_WIDTH = 100
"""Activities side by side in each round of the history that is replayed."""
EVENTS_OF_AN_ACTIVITY = 2
ticks: Ticks


@activity.defn
async def nothing() -> float:
    return ticks.tick()


@workflow.defn
class Sequence:
    @workflow.run
    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await workflow.execute_activity(nothing, start_to_close_timeout=TIMEOUT)


@workflow.defn
class Rounds:
    @workflow.run
    async def run(self, rounds: int, width: int) -> None:
        for _ in range(rounds):
            await asyncio.gather(
                *(workflow.execute_activity(nothing, start_to_close_timeout=TIMEOUT) for _ in range(width))
            )


@workflow.defn
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
    sends_at_once = 64
    workflows_at_once = 100

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = itertools.count(1)
        self._long: dict[str, WorkflowHandle[None]] = {}

    def _id(self) -> str:
        return f"bench-{time.monotonic_ns()}-{next(self._numbers)}"

    async def send(self) -> None:
        await self._client.start_activity(
            nothing, id=self._id(), task_queue=QUEUE, start_to_close_timeout=TIMEOUT
        )

    async def ask(self) -> float:
        return await self._client.execute_activity(
            nothing, id=self._id(), task_queue=QUEUE, start_to_close_timeout=TIMEOUT
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
        history = WorkflowHistory.from_json(saved(path))
        replayer = Replayer(workflows=[Rounds])
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


async def _connected(url: str) -> Client:
    return await Client.connect(url, control_token="operator-secret", worker_token="worker-secret")


async def _client(url: str) -> None:
    async with await _connected(url) as client:
        await answer_questions(Asked(client), ticks)


async def _worker(url: str) -> Worker:
    types = [Sequence, Rounds, Long]
    return Worker(await _connected(url), task_queue=QUEUE, workflows=types, activities=[nothing])


if __name__ == "__main__":
    ticks = Ticks()
    if sys.argv[1] == "worker":
        run_worker(lambda: _worker(sys.argv[2]))
    else:
        uvloop.run(_client(sys.argv[2]))
