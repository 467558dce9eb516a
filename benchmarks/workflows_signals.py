"""Many signals to one run beside as many to runs of their own; with nobody to take them, and with a worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import uvloop

from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, stand
from benchmarks.workflows_client import WAIT, Talk, talk
from benchmarks.workflows_meter import Took, at_once, row
from benchmarks.workloads import Say

PART = "signals"
CONNECTIONS = 16
WORKER_LOOPS = 4
ONE, OWN = "to one run", "to a run each"
UNHEARD, HEARD = "no worker", "a worker that is woken"


class Signals:
    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say

    def run(self, store: StoreName) -> list[dict[str, Any]]:
        with stand(store, self._ground) as server:
            found = uvloop.run(self._measure(server))
        return [
            row(
                store,
                PART,
                f"{to}, {heard}",
                self._sizes.signals,
                tooks,
                found[OWN, heard] if to == ONE else (),
            )
            for (to, heard), tooks in found.items()
        ]

    async def _measure(self, server: Stand) -> dict[tuple[str, str], list[Took]]:
        found: dict[tuple[str, str], list[Took]] = defaultdict(list)
        for number in range(1, self._sizes.repetitions + 1):
            self._say(f"workflows, {server.store.value}: signals, repetition {number}")
            for to in (OWN, ONE):
                for heard in (UNHEARD, HEARD):
                    queue = f"signals-{number}-{len(found)}-{heard[0]}"
                    async with talk(server.url, queue) as talking:
                        found[to, heard].append(await self._send_all(server, talking, to, heard))
        return found

    async def _send_all(self, server: Stand, talking: Talk, to: str, heard: str) -> Took:
        count = self._sizes.signals
        names = await talking.start_many(1 if to == ONE else count)
        targets: Sequence[str] = names * (count // len(names))
        if heard == HEARD:
            await _open_waits(talking, len(names))
        async with _listening(talking, heard == HEARD):
            return await at_once(server, [partial(talking.signal, name) for name in targets], CONNECTIONS)


async def _open_waits(talking: Talk, runs: int) -> None:
    """Have every run wait for a condition, so that a signal wakes it."""
    left = runs
    while left > 0:
        tasks = await talking.take("workflow", 50)
        await asyncio.gather(*(talking.decide(task, [WAIT]) for task in tasks))
        left -= len(tasks)


@contextlib.asynccontextmanager
async def _listening(talking: Talk, heard: bool) -> AsyncIterator[None]:
    """A worker that looks whenever a run is woken, and waits again."""

    async def loop() -> None:
        while True:
            for task in await talking.take("workflow"):
                await talking.decide(task, [WAIT])

    loops = [asyncio.create_task(loop()) for _ in range(WORKER_LOOPS if heard else 0)]
    try:
        yield
        for each in loops:
            assert not each.done(), f"the worker stopped listening: {each.exception()}"
    finally:
        for each in loops:
            each.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
