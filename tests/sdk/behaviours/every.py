"""All behaviours, and a worker that runs their workflows: in this process, or as one that may be killed.

As a program: `python -m tests.sdk.behaviours.every URL NAMESPACE QUEUE`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from penstock.sdk.client import Client
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
from tests.sdk.serving import OPERATOR, WORKER

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
    """A worker in a process of its own, which is killed at random moments and started again."""

    def __init__(self, url: str, namespace: str, queue: str, log: Path, dice: random.Random) -> None:
        self._command = [sys.executable, "-m", "tests.sdk.behaviours.every", url, namespace, queue]
        self._log, self._dice = log, dice
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[3],
                env=os.environ | {"PYTHONPATH": "."},
            )

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)

    async def die_and_rise(self, times: int) -> None:
        """Each life ends a random moment after the worker has begun to work."""
        for life in range(times):
            await self.until_at_work(life + 1)
            await asyncio.sleep(self._dice.uniform(0.1, 1.0))
            self.kill()
            self.start()

    async def until_at_work(self, life: int) -> None:
        assert self._process is not None
        while self._log.read_text().count(AT_WORK) < life:
            if self._process.poll() is not None:
                raise RuntimeError(f"the worker ended:\n{self._log.read_text()}")
            await asyncio.sleep(0.02)


@asynccontextmanager
async def mortal_worker(
    url: str, namespace: str, queue: str, log: Path, *, deaths: int, dice: random.Random
) -> AsyncIterator[None]:
    made = MortalWorker(url, namespace, queue, log, dice)
    made.start()
    dying = asyncio.ensure_future(made.die_and_rise(deaths))
    try:
        yield
        await dying
    finally:
        dying.cancel()
        made.kill()


AT_WORK = "at work"


async def main(url: str, namespace: str, queue: str) -> None:
    async with (
        await Client.connect(url, namespace=namespace, control_token=OPERATOR, worker_token=WORKER) as client,
        worker(client, queue),
    ):
        print(AT_WORK, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
