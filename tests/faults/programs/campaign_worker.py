"""A worker process of a fault campaign: Penstock's SDK, with every start and end of an attempt logged.

    python campaign_worker.py NAME LOG URL[,URL…]

The log is the evidence of what workers *run*, as opposed to what the server leased. Times are CLOCK_MONOTONIC, which
all processes of a machine share. A line is written with one `write`, so that a kill leaves whole lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

from penstock import Client, RetryPolicy, Worker, activity, workflow
from penstock.sdk.worker.claim_options import Claiming

QUEUES = ("capped", "ahead", "rated", "minute", "budget", "flows")
TIMEOUT = timedelta(seconds=30)
ATTEMPTS = 50
_log = -1
_name = ""


def write(op: str, **fields: Any) -> None:
    info = activity.info()
    line = {
        "op": op,
        "at": time.monotonic(),
        "worker": _name,
        "task": info.task_id,
        "attempt": info.attempt,
        "queue": info.task_queue,
    }
    os.write(_log, json.dumps(line | fields).encode() + b"\n")


@activity.defn(name="campaign.step")
async def step(seconds: float) -> None:
    write("begin")
    try:
        await asyncio.sleep(seconds)
    finally:
        write("end")


@workflow.defn(name="campaign.flow")
class Flow:
    @workflow.run
    async def run(self, seconds: float) -> int:
        """Three capped activities at once, a timer, and one more."""
        again = RetryPolicy(maximum_attempts=ATTEMPTS, initial_interval=timedelta(milliseconds=100))
        steps = [
            workflow.execute_activity(
                step, seconds, task_queue="capped", start_to_close_timeout=TIMEOUT, retry_policy=again
            )
            for _ in range(3)
        ]
        await asyncio.gather(*steps)
        await asyncio.sleep(seconds)
        await workflow.execute_activity(
            step, seconds, task_queue="ahead", start_to_close_timeout=TIMEOUT, retry_policy=again
        )
        return len(steps) + 1


async def main(name: str, log: str, urls: str) -> None:
    global _log, _name
    _name, _log = name, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    client = await Client.connect(
        urls.split(","),
        control_token="operator-secret",
        worker_token="worker-secret",
        retry_for=timedelta(minutes=10),
    )
    async with client, contextlib.AsyncExitStack() as stack:
        for queue in QUEUES:
            claiming = Claiming(prefetch=4, lease_ms=2000) if queue == "ahead" else None
            await stack.enter_async_context(
                Worker(
                    client,
                    task_queue=queue,
                    workflows=[Flow] if queue == "flows" else [],
                    activities=[step],
                    max_concurrent_activities=8,
                    claiming=claiming,
                    identity=f"{name}-{queue}",
                    sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
                )
            )
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
