"""A server that freezes under load: workers run no more tasks than the cap, and all tasks end."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.sdk import activity
from penstock.sdk.clients.client import Client
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.worker import Worker
from tests.faults.deadlines import until
from tests.faults.servers import Doomed, serving
from tests.sdk.server_fixtures import OPERATOR, WORKER
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.faults

CAP, TASKS, FREEZES = 3, 60, 3
LEASE_S = 1
TAKES_S = 0.1


@dataclass
class Evidence:
    """Who runs what, told by the activities."""

    running: int = 0
    peak: int = 0
    attempts: list[tuple[str, int]] = field(default_factory=list)

    @activity.defn(name="step")
    async def step(self, name: str) -> str:
        self.attempts.append((name, activity.info().attempt))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(TAKES_S)
        finally:
            self.running -= 1
        return name


async def test_workers_run_no_more_than_the_cap_while_a_server_freezes(
    tmp_path: Path, postgres_database: str
) -> None:
    """Two servers share the cap; the workers of the frozen one hold leases that end, and answers that come late."""
    servers = [Doomed(tmp_path, postgres_database, name=f"s{n}", lease_s=LEASE_S) for n in range(2)]
    frozen, healthy = servers
    evidence = Evidence()
    async with asyncio.timeout(PATIENCE_S), serving(*servers), AsyncExitStack() as stack:
        try:
            clients = [await stack.enter_async_context(await _connected(each.url)) for each in servers]
            limits: dict[str, Any] = {"max_active_leases_per_queue": CAP, "task_queue_type": "activity"}
            await clients[1].transport.control("PATCH", "/task-queues/q/limits", limits, idempotent=True)
            for each in clients:
                made = Worker(
                    each, task_queue="q", activities=[evidence.step], max_concurrent_activity_tasks=CAP
                )
                await stack.enter_async_context(made)
            handles = [
                await clients[1].start_activity(
                    "step",
                    f"t{number}",
                    id=f"t{number}",
                    task_queue="q",
                    start_to_close_timeout=timedelta(seconds=60),
                    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)),
                )
                for number in range(TASKS)
            ]
            for number in range(1, FREEZES + 1):
                await _begun(evidence, number * 5)
                frozen.send(signal.SIGSTOP)
                await _begun(evidence, len(evidence.attempts) + 10)
                frozen.send(signal.SIGCONT)
            assert sorted([await each.result() for each in handles]) == sorted(
                f"t{number}" for number in range(TASKS)
            )
        finally:
            frozen.send(signal.SIGCONT)
    assert healthy.kills == 0
    assert evidence.peak <= CAP
    assert len(evidence.attempts) == len(set(evidence.attempts)), "an attempt began twice"


async def _begun(evidence: Evidence, count: int) -> None:
    await until(
        f"{count} attempts began", lambda: len(evidence.attempts) >= min(count, TASKS), within_s=PATIENCE_S
    )


async def _connected(url: str) -> Client:
    return await Client.connect(url, control_token=OPERATOR, worker_token=WORKER)
