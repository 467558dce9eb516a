"""DBOS: `with_dbos worker URL` runs tasks from a queue, `with_dbos client URL` is asked.

Workflows run in the client's own process, as the library is used, in eight threads: more were slower. `queued` has a
worker run them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, DBOSClient  # type: ignore[import-not-found]

from benchmarks.peers.exchange import Json, Ticks, answer_questions, in_flight

QUEUE = "bench"
THREADS = 8
QUEUED_AT_ONCE = 100
QUEUE_POLL_SECONDS = 0.05
RESULT_POLL_SECONDS = 0.01
"""Both are one second as it ships."""
CONNECT_SECONDS_MAX = 30.0
ticks: Ticks


@DBOS.workflow(name="nothing")  # type: ignore[untyped-decorator]
async def nothing() -> float:
    return ticks.tick()


@DBOS.step()  # type: ignore[untyped-decorator]
def step() -> float:
    return ticks.tick()


@DBOS.step()  # type: ignore[untyped-decorator]
async def step_beside_others() -> float:
    return ticks.tick()


@DBOS.workflow(name="sequence")  # type: ignore[untyped-decorator]
def sequence(steps: int) -> None:
    for _ in range(steps):
        step()


@DBOS.workflow(name="queued")  # type: ignore[untyped-decorator]
async def queued(steps: int) -> None:
    for _ in range(steps):
        await step_beside_others()


@DBOS.workflow(name="side_by_side")  # type: ignore[untyped-decorator]
async def side_by_side(width: int) -> None:
    await asyncio.gather(*(step_beside_others() for _ in range(width)))


def _launch(url: str, queues: list[str]) -> None:
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    DBOS.listen_queues(queues)
    DBOS.launch()


class _Awaited:
    """The result of a handle that is not meant for a loop."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def get_result(self, polling_interval_sec: float) -> Any:
        return await asyncio.to_thread(self._handle.get_result, polling_interval_sec=polling_interval_sec)


class Asked:
    workflows_at_once = THREADS

    def __init__(self, url: str) -> None:
        self._url = url
        self.sends_at_once = 1 if url.startswith("sqlite") else THREADS
        self._client: Any = None
        self._threads = ThreadPoolExecutor(THREADS)

    async def send(self) -> None:
        await self._enqueue()

    async def ask(self) -> float:
        handle = await self._enqueue()
        return float(await handle.get_result(polling_interval_sec=RESULT_POLL_SECONDS))

    async def queued(self, count: int, steps: int) -> Json:
        """Workflows that a worker takes from the queue, a hundred in flight."""

        async def one() -> None:
            wish = {"workflow_name": "queued", "queue_name": QUEUE}
            handle = await self._client.enqueue_async(wish, steps)
            await handle.get_result(polling_interval_sec=RESULT_POLL_SECONDS)

        return await in_flight(count, QUEUED_AT_ONCE, one)

    async def _enqueue(self) -> Any:
        """Until the first worker is up there are no tables yet."""
        ends_at = time.monotonic() + (CONNECT_SECONDS_MAX if self._client is None else 0)
        while True:
            with contextlib.suppress(Exception):
                self._client = self._client or DBOSClient(system_database_url=self._url)
                return await self._put()
            if time.monotonic() > ends_at:
                raise RuntimeError("nothing can be put into the queue")
            await asyncio.sleep(0.02)

    async def _put(self) -> Any:
        """On PostgreSQL threads are faster than its own way beside a loop; SQLite has one writer."""
        wish = {"workflow_name": "nothing", "queue_name": QUEUE}
        if self.sends_at_once == 1:
            return await self._client.enqueue_async(wish)
        handle = await asyncio.get_running_loop().run_in_executor(self._threads, self._client.enqueue, wish)
        return _Awaited(handle)

    async def embed(self) -> Json:
        """From here on this process is the one that runs workflows."""
        await asyncio.to_thread(_launch, self._url, [])
        return {}

    async def workflow(self, steps: int) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, sequence, steps)

    async def fan_out(self, width: int) -> None:
        await side_by_side(width)


def _work(url: str) -> None:
    _launch(url, [QUEUE])
    DBOS.register_queue(QUEUE, polling_interval_sec=QUEUE_POLL_SECONDS)
    signal.sigwait([signal.SIGTERM])
    os._exit(0)


if __name__ == "__main__":
    ticks = Ticks()
    if sys.argv[1] == "worker":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        _work(sys.argv[2])
    else:
        asyncio.run(answer_questions(Asked(sys.argv[2]), ticks))
