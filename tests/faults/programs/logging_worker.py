"""A worker process that a test may kill or stop: it polls, completes tasks, and logs its observations.

    python logging_worker.py NAME LOG SEED POLLERS QUEUES URL [URL …]

Each line of LOG is written in one piece before anything else is sent, in the form that `penstock verify` reads.
QUEUES are names with commas between; `~` before a name has its tasks claimed ahead of time, then started.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.support.live import headers

Json = dict[str, Any]
LOST = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
POLL_S = 2
LEASE_MS = CLAIM_MS = 2_000
WORK_S = 0.03
"""The longest duration of a task."""
GROUP = "group:default/shared"
FORGETS, FAILS, BEATS = 0.02, 0.05, 0.1
"""Probabilities that a task is dropped, fails, or is heartbeaten first."""


def now_ms() -> float:
    return time.monotonic() * 1000


@dataclass(frozen=True)
class Worker:
    """All pollers of the process."""

    name: str
    log: int
    dice: random.Random
    session: aiohttp.ClientSession
    urls: Iterator[str]

    def write(self, **line: Any) -> None:
        os.write(self.log, json.dumps(line).encode() + b"\n")

    async def ask(self, path: str, body: Json) -> tuple[int, Json] | None:
        """One attempt at the next server; None without a usable response."""
        try:
            async with self.session.post(
                next(self.urls) + path, json=body, headers=headers("worker")
            ) as answer:
                found = await answer.json()
                return None if answer.status >= 429 else (answer.status, found)
        except LOST:
            return None

    async def insist(self, path: str, body: Json) -> tuple[int, Json]:
        while True:
            answer = await self.ask(path, body)
            if answer is not None:
                return answer
            await asyncio.sleep(0.02)

    async def register(self, queue: str) -> None:
        body = {"worker_id": f"{self.name}-{queue}", "task_queue": queue, "runtime": "python"}
        await self.insist("/api/worker/register", body)

    async def poll_forever(self, queue: str, *, ahead: bool) -> None:
        while True:
            for task in await self.poll(queue, ahead=ahead):
                await self.do(task, f"{self.name}-{queue}")

    async def poll(self, queue: str, *, ahead: bool) -> Sequence[Json]:
        worker_id = f"{self.name}-{queue}"
        body: Json = {
            "worker_id": worker_id,
            "task_queue": queue,
            "timeout_seconds": POLL_S,
            "max_tasks": self.dice.choice((1, 1, 3)),
        }
        body |= {"claim_lease_ms": CLAIM_MS} if ahead else {}
        sent_at = now_ms()
        answer = await self.ask("/api/worker/activity-tasks/poll", body)
        if answer is None or answer[0] != 200:
            self.write(op="poll", t_inv=sent_at, worker_id=worker_id)
            await asyncio.sleep(0.05)
            return ()
        tasks: list[Json] = answer[1]["tasks"]
        leases = [
            {
                "task_id": task["task_id"],
                "lease": task["activity_attempt_id"],
                "namespace": "default",
                "task_queue": queue,
                "kind": "activity",
                "attempt": task["attempt_number"],
                "expires_in_ms": LEASE_MS,
                "phase": "claimed" if task["must_start"] else "running",
                "scopes": [GROUP] if queue in ("a", "b") else [],
            }
            for task in tasks
        ]
        self.write(op="poll", t_inv=sent_at, t_ok=now_ms(), worker_id=worker_id, leases=leases)
        return tasks

    async def do(self, task: Json, worker_id: str) -> None:
        if task["must_start"] and not await self.begin(task, worker_id):
            return
        luck = self.dice.random()
        await asyncio.sleep(luck * WORK_S)
        if luck < FORGETS:
            return
        if luck < FORGETS + BEATS:
            await self.report(task, worker_id, "heartbeat")
        if luck > 1 - FAILS:
            failure = {"message": "no luck"}
            await self.report(task, worker_id, "fail", failure=failure)
        else:
            await self.report(task, worker_id, "complete", result=None)

    async def begin(self, task: Json, worker_id: str) -> bool:
        """Request the permit until it is granted or the lease is lost."""
        while True:
            status, answer = await self.report(task, worker_id, "start")
            if status != 200 or answer["started"]:
                return status == 200
            await asyncio.sleep(0.02)

    async def report(self, task: Json, worker_id: str, action: str, **fields: Any) -> tuple[int, Json]:
        lease = {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": worker_id}
        path = f"/api/worker/activity-tasks/{task['task_id']}/{action}"
        op = "started" if action == "start" else action
        while True:
            sent_at = now_ms()
            answer = await self.ask(path, lease | fields)
            said = {
                "op": op,
                "t_inv": sent_at,
                "task_id": task["task_id"],
                "lease": lease["activity_attempt_id"],
            }
            if answer is not None:
                heard = answer[1].get("started", True) and answer[1].get("heartbeat_recorded", True)
                accepted = answer[0] == 200 and bool(heard)
                verdict = "accepted" if accepted else "refused"
                self.write(**said, t_ok=now_ms(), verdict=verdict, expires_in_ms=LEASE_MS)
                return answer
            self.write(**said)
            await asyncio.sleep(0.02)


async def main(name: str, log: str, seed: str, pollers: str, queues: str, *urls: str) -> None:
    working = asyncio.current_task()
    assert working is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    timeout, connector = aiohttp.ClientTimeout(total=10), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        worker = Worker(name, file, random.Random(int(seed)), session, itertools.cycle(urls))
        names = [(queue.lstrip("~"), queue.startswith("~")) for queue in queues.split(",")]
        for queue, _ in names:
            await worker.register(queue)
        turns = itertools.islice(itertools.cycle(names), int(pollers))
        await asyncio.gather(*(worker.poll_forever(queue, ahead=ahead) for queue, ahead in turns))


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(main(*sys.argv[1:]))
