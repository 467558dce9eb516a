"""Measures stalls of a queue as its clients see them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence

import aiohttp

from tests.acceptance.cluster import Cluster, Hand
from tests.faults.deadlines import until
from tests.support.lag import Lag
from tests.support.patience import PATIENCE_S


class Progress:
    """Starts, polls and completes activities in a loop, at one server and on one queue."""

    def __init__(self, cluster: Cluster, name: str, task_queue: str) -> None:
        self._cluster = cluster
        self._name = name
        self._queue = task_queue
        self._numbers = itertools.count()
        self._hand: Hand | None = None
        self.finished_at: list[float] = []
        self.refusals: list[str] = []

    async def prepare(self) -> None:
        """Register the worker and do one round, to warm up caches."""
        self._hand = await self._cluster.worker(f"worker-{self._name}", self._queue)
        await until(f"a first round of {self._name}", self.round)

    async def run_forever(self) -> None:
        while True:
            if await self.round():
                self.finished_at.append(time.monotonic())

    async def round(self) -> bool:
        """Whether a task was completed; rejected requests are not retried within the round."""
        assert self._hand is not None
        try:
            started = await self._cluster.start_activity(
                f"{self._name}-{next(self._numbers)}", task_queue=self._queue
            )
            if started.status != 201:
                self.refusals.append(f"start: {started.status} {started.reason}")
            polled = await self._hand.poll("activity", 1)
            if polled.status != 200:
                self.refusals.append(f"poll: {polled.status} {polled.reason}")
                return False
            if polled["task"] is None:
                return False
            return (await self._hand.report(polled["task"], "complete", result=None)).status == 200
        except (aiohttp.ClientError, TimeoutError) as error:
            self.refusals.append(repr(error))
            return False

    def longest_standstill_s(self, since: float, lag: Lag) -> float:
        """The longest time between two completions, from `since` to the last one, less the lag of the machine."""
        moments = [since, *(each for each in self.finished_at if each > since)]
        assert len(moments) > 1, f"{self._name} never went on: {self.refusals[-5:]}"
        return max(
            later - earlier - lag.between(earlier, later) for earlier, later in itertools.pairwise(moments)
        )


async def watch(progresses: Sequence[Progress], since: float, for_s: float) -> dict[str, float]:
    """Run all until each has completed something after `since + for_s`; return the longest stall of each."""
    running = [asyncio.create_task(each.run_forever()) for each in progresses]

    def all_past() -> bool:
        for task in running:
            if task.done():
                task.result()
        return all(each.finished_at and each.finished_at[-1] > since + for_s for each in progresses)

    with Lag() as lag:
        try:
            await until("every queue goes on", all_past, within_s=PATIENCE_S)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return {each._name: each.longest_standstill_s(since, lag) for each in progresses}
