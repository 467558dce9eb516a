"""All behaviours, and a worker that runs their workflows: in this process, or in one that may be killed.

As a program, `python -m tests.sdk.behaviours.every URL NAMESPACE QUEUE`, it starts a worker for each line of input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from penstock.sdk.clients.client import Client
from penstock.sdk.worker import Worker
from tests.sdk.behaviours import (
    of_activities,
    of_endings,
    of_families,
    of_messages,
    of_records,
    of_waiting,
)
from tests.sdk.behaviours.acts import ACTIVITIES
from tests.sdk.behaviours.scene import workflows_of
from tests.sdk.server_fixtures import OPERATOR, WORKER

MODULES = (of_activities, of_waiting, of_messages, of_families, of_endings, of_records)
WORKFLOWS = [each for module in MODULES for each in workflows_of(module)]


def worker(client: Client, queue: str, *, cached: int = 1000) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        workflows=WORKFLOWS,
        activities=ACTIVITIES,
        max_cached_workflows=cached,
        max_concurrent_activity_tasks=200,
        default_heartbeat_throttle_interval=timedelta(milliseconds=100),
        max_heartbeat_throttle_interval=timedelta(milliseconds=100),
        task_timeout=timedelta(seconds=20),
    )


class MortalWorker:
    """A worker in a separate process that is killed at random times and replaced.

    The processes are forked from one that has everything imported, so that they start quickly.
    """

    def __init__(self, url: str, namespace: str, queue: str, log: Path, dice: random.Random) -> None:
        self._command = [sys.executable, "-m", "tests.sdk.behaviours.every", url, namespace, queue]
        self._log, self._dice = log, dice
        self._mother: subprocess.Popen[bytes] | None = None
        self._lives = 0

    async def start(self) -> None:
        """Returns when the next worker is running."""
        if self._mother is None:
            with self._log.open("ab") as log:
                self._mother = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    cwd=Path(__file__).parents[3],
                )
        assert self._mother.stdin is not None
        self._mother.stdin.write(b"\n")
        self._mother.stdin.flush()
        self._lives += 1
        while len(self._pids()) < self._lives:
            if self._mother.poll() is not None:
                raise RuntimeError(f"no worker is born any more:\n{self._log.read_text()}")
            await asyncio.sleep(0.02)

    def _pids(self) -> list[int]:
        """The ids of all processes so far."""
        return [int(pid) for pid in re.findall(f"^{AT_WORK} (\\d+)$", self._log.read_text(), re.MULTILINE)]

    def kill(self) -> None:
        os.kill(self._pids()[-1], signal.SIGKILL)

    async def die_and_rise(self, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(self._dice.uniform(0.1, 1.0))
            self.kill()
            await self.start()

    def end(self) -> None:
        """Stop the last worker process and its parent."""
        if self._mother is not None:
            self._mother.communicate(timeout=10)


@asynccontextmanager
async def mortal_worker(
    url: str, namespace: str, queue: str, log: Path, *, deaths: int, dice: random.Random
) -> AsyncIterator[None]:
    made = MortalWorker(url, namespace, queue, log, dice)
    try:
        await made.start()
        dying = asyncio.ensure_future(made.die_and_rise(deaths))
        try:
            yield
            await dying
        finally:
            dying.cancel()
    finally:
        made.end()


AT_WORK = "at work"


async def work(url: str, namespace: str, queue: str) -> None:
    async with (
        await Client.connect(url, namespace=namespace, control_token=OPERATOR, worker_token=WORKER) as client,
        worker(client, queue),
    ):
        print(AT_WORK, os.getpid(), flush=True)
        await asyncio.Event().wait()


def bear(*where: str) -> None:
    """Fork a worker for each line of the input. It lives until it is killed, or the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    last = 0
    for _ in sys.stdin:
        last = os.fork()
        if not last:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(work(*where))
    with contextlib.suppress(ProcessLookupError):
        os.kill(last, signal.SIGKILL)


if __name__ == "__main__":
    bear(*sys.argv[1:])
