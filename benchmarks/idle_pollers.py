"""`python -m benchmarks.idle_pollers URL COUNT`: so many polls that wait where nothing ever comes.

Says `ready` when all of them wait, and goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

import uvloop

from benchmarks.workflows_client import Talk, talk
from benchmarks.workload_loops import UnexpectedAnswer

QUEUES = 20
KINDS = ("activity", "workflow")
SETTLE_SECONDS = 1.0
SENT_TOGETHER, BREATH_SECONDS = 100, 0.05


async def _poll(talking: Talk, kind: str) -> None:
    while True:
        if found := await talking.take(kind):
            raise UnexpectedAnswer(f"a task came to a queue that is empty: {found}")


async def _wait(url: str, count: int) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as polling:
        talking = [await stack.enter_async_context(talk(url, f"idle-{number}")) for number in range(QUEUES)]
        for number in range(count):
            # Half of them for each kind of task, as workers do that serve both.
            polling.create_task(_poll(talking[number % QUEUES], KINDS[number // QUEUES % len(KINDS)]))
            if number % SENT_TOGETHER == 0:
                await asyncio.sleep(BREATH_SECONDS)
        await asyncio.sleep(SETTLE_SECONDS)
        print("ready", flush=True)


if __name__ == "__main__":
    uvloop.run(_wait(sys.argv[1], int(sys.argv[2])))
