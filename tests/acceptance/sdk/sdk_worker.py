"""A worker on the public SDK, as users write them: importable by tests, and runnable as a process.

    python sdk_worker.py URL NAMESPACE QUEUE JOURNAL

Every activity adds a line to the journal: its name, its attempt and the process that ran it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from durable_workflow import ActivityRetryPolicy, Client, NonRetryableError, Worker, activity, workflow
from durable_workflow.errors import ActivityCancelled, ActivityFailed

JOURNAL = Path(os.devnull)
Steps = Generator[Any, Any, Any]


def note(what: str) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(f"{what} {os.getpid()}\n")


@activity.defn(name="greet")
async def greet(name: str) -> str:
    note(f"greet-{name}")
    return f"Hello, {name}"


@activity.defn(name="flaky")
async def flaky(value: int) -> int:
    attempt = activity.context().info.attempt_number
    note(f"flaky-{attempt}")
    if attempt < 3:
        raise ValueError(f"not yet: attempt {attempt}")
    return value * 2


@activity.defn(name="hopeless")
async def hopeless() -> None:
    note("hopeless")
    raise NonRetryableError("never")


@activity.defn(name="stuck_at_first")
async def stuck_at_first() -> int:
    """Never returns at its first attempt: only the death of the worker ends it."""
    attempt = activity.context().info.attempt_number
    note(f"stuck-{attempt}")
    if attempt == 1:
        await asyncio.Event().wait()
    return int(attempt)


@activity.defn(name="beat_until_cancelled")
async def beat_until_cancelled() -> None:
    note("beating")
    try:
        while True:
            await activity.context().heartbeat({"still": "here"})
            await asyncio.sleep(0.05)
    except ActivityCancelled:
        note("cancelled")
        raise


@workflow.defn(name="greeter")
class Greeter:
    def run(self, ctx: Any, name: str) -> Steps:
        greeting = yield ctx.schedule_activity("greet", [name])
        return greeting


@workflow.defn(name="patient")
class Patient:
    """Retries, a timer, and another activity."""

    def run(self, ctx: Any, name: str) -> Steps:
        policy = ActivityRetryPolicy(max_attempts=4, initial_interval_seconds=1, backoff_coefficient=1.0)
        doubled = yield ctx.schedule_activity("flaky", [21], retry_policy=policy)
        yield ctx.sleep(1)
        greeting = yield ctx.schedule_activity("greet", [name])
        return [doubled, greeting]


@workflow.defn(name="two_days")
class TwoDays:
    """Greets, sleeps long enough for a worker to be replaced, and greets again."""

    def run(self, ctx: Any, first: str, second: str) -> Steps:
        one = yield ctx.schedule_activity("greet", [first])
        yield ctx.sleep(3)
        two = yield ctx.schedule_activity("greet", [second])
        return [one, two]


@workflow.defn(name="survivor")
class Survivor:
    def run(self, ctx: Any) -> Steps:
        attempt = yield ctx.schedule_activity(
            "stuck_at_first", [], start_to_close_timeout=2, retry_policy=ActivityRetryPolicy(max_attempts=3)
        )
        return attempt


@workflow.defn(name="doomed")
class Doomed:
    def run(self, ctx: Any) -> Steps:
        yield ctx.schedule_activity("hopeless", [], retry_policy=ActivityRetryPolicy(max_attempts=5))


@workflow.defn(name="forgiving")
class Forgiving:
    def run(self, ctx: Any) -> Steps:
        try:
            yield ctx.schedule_activity("hopeless", [], retry_policy=ActivityRetryPolicy(max_attempts=5))
        except ActivityFailed as failure:
            return f"forgiven: {failure}"


@workflow.defn(name="beating")
class Beating:
    def run(self, ctx: Any) -> Steps:
        yield ctx.schedule_activity("beat_until_cancelled", [], heartbeat_timeout=20)


WORKFLOWS = (Greeter, Patient, TwoDays, Survivor, Doomed, Forgiving, Beating)
ACTIVITIES = (greet, flaky, hopeless, stuck_at_first, beat_until_cancelled)


def worker(client: Client, task_queue: str) -> Worker:
    return Worker(
        client, task_queue=task_queue, workflows=WORKFLOWS, activities=ACTIVITIES, shutdown_timeout=5.0
    )


def client_of(url: str, namespace: str) -> Client:
    """A client with a token for each plane, as a careful deployment gives them out."""
    return Client(url, control_token="operator-secret", worker_token="worker-secret", namespace=namespace)


async def main(url: str, namespace: str, task_queue: str) -> None:
    async with client_of(url, namespace) as client:
        await worker(client, task_queue).run()


if __name__ == "__main__":
    JOURNAL = Path(sys.argv[4])
    asyncio.run(main(*sys.argv[1:4]))
