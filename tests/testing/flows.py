"""Workflows and activities for the tests of the test environment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from penstock import RetryPolicy, Worker, activity, workflow
from penstock.testing import WorkflowEnvironment

QUEUE = "orders"
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


@activity.defn
async def charge(order: str, cents: int) -> str:
    return f"{order} paid {cents}"


@activity.defn
def look_up(name: str) -> int:
    """Runs in a thread."""
    return len(name)


@activity.defn
async def work() -> str:
    return "done"


@workflow.defn
class Sleeper:
    @workflow.run
    async def run(self, days: int) -> datetime:
        await workflow.sleep(timedelta(days=days))
        return workflow.now()


@workflow.defn
class TwoTimers:
    @workflow.run
    async def run(self) -> list[str]:
        rung: list[str] = []

        async def ring(name: str, after: timedelta) -> None:
            await asyncio.sleep(after.total_seconds())
            rung.append(name)

        await asyncio.gather(ring("late", 2 * DAY), ring("early", DAY))
        return rung


@workflow.defn
class Payment:
    @workflow.run
    async def run(self, order: str) -> str:
        return await workflow.execute_activity(
            charge,
            args=[order, 5],
            start_to_close_timeout=timedelta(minutes=1),
            retry_policy=RetryPolicy(initial_interval=timedelta(hours=1), maximum_attempts=4),
        )


@workflow.defn
class LookUp:
    @workflow.run
    async def run(self, name: str) -> int:
        return await workflow.execute_activity(look_up, name, start_to_close_timeout=MINUTE)


@workflow.defn
class Watched:
    """One activity with a heartbeat timeout of half a minute and two attempts."""

    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(
            work,
            start_to_close_timeout=timedelta(hours=2),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=2),
        )


@workflow.defn
class Unwatched:
    """One activity without a heartbeat timeout, and with long timeouts."""

    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(
            work, start_to_close_timeout=10 * DAY, retry_policy=RetryPolicy(maximum_attempts=1)
        )


@workflow.defn
class Approval:
    """Waits for a decision; sends itself a reminder daily; gives up after a week."""

    def __init__(self) -> None:
        self._word: str | None = None
        self._days = 0

    @workflow.run
    async def run(self) -> str:
        while self._word is None and self._days < 7:
            try:
                await workflow.wait_condition(lambda: self._word is not None, timeout=DAY)
            except TimeoutError:
                self._days += 1
        return self._word or "given up"

    @workflow.signal
    def approve(self, word: str) -> None:
        self._word = word

    @workflow.query
    def days(self) -> int:
        return self._days

    @workflow.update
    async def think_it_over(self, hours: int) -> int:
        await workflow.sleep(timedelta(hours=hours))
        return self._days


@workflow.defn
class Forever:
    def __init__(self) -> None:
        self._over = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self._over)
        return "over"

    @workflow.signal
    def end(self) -> None:
        self._over = True

    @workflow.update
    async def wait(self) -> None:
        await workflow.wait_condition(lambda: self._over)


@workflow.defn
class Parent:
    @workflow.run
    async def run(self) -> datetime:
        return await workflow.execute_child_workflow(Sleeper.run, 10, id="child")


@workflow.defn
class Careful:
    """Cleans up for an hour when it is cancelled."""

    @workflow.run
    async def run(self) -> str:
        try:
            await workflow.sleep(365 * DAY)
        except asyncio.CancelledError:
            await workflow.sleep(timedelta(hours=1))
            return f"cleaned up at {workflow.now().isoformat()}"
        return "a year later"


@workflow.defn
class Monthly:
    """One run a month, for as long as requested."""

    @workflow.run
    async def run(self, months: int) -> int:
        await workflow.sleep(30 * DAY)
        if months > 1:
            workflow.continue_as_new(months - 1)
        return months


WORKFLOWS = [
    Sleeper,
    TwoTimers,
    Payment,
    LookUp,
    Watched,
    Unwatched,
    Approval,
    Forever,
    Parent,
    Careful,
    Monthly,
]


def a_worker(env: WorkflowEnvironment, *activities: Callable[..., Any]) -> Worker:
    """A worker with all workflows, and these activities."""
    return Worker(env.client, task_queue=QUEUE, workflows=WORKFLOWS, activities=activities or (charge, work))
