"""A server that records heartbeats, a manual clock, and polled tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.activities.execution.runner import ActivityRunner
from penstock.sdk.activities.info import WorkerIdentity
from penstock.sdk.converters import DEFAULT
from tests.support.patience import PATIENCE_S

FACTS = WorkerIdentity("default", "cards", "worker-1")
GO_ON = {"cancel_requested": False, "can_continue": True}
CANCELLED = {"cancel_requested": True, "can_continue": False, "reason": "activity_cancelled"}
ASKED_TO_CANCEL = {"cancel_requested": True, "can_continue": True}
LOST = {"cancel_requested": False, "can_continue": False, "reason": "stale_attempt"}
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)

_numbers = count(1)


def a_task(name: str, *args: Any, **more: Any) -> dict[str, Any]:
    number = next(_numbers)
    return {
        "task_id": f"run:{number}",
        "activity_attempt_id": "1.secret",
        "activity_execution_id": f"activity-{number}",
        "activity_type": name,
        "attempt_number": 1,
        "workflow_id": "order-7",
        "run_id": "run",
        "workflow_type": "Order",
        "arguments": DEFAULT.encode_arguments(args, name),
        "retry_policy": {},
        "task_queue": "cards",
        "idempotency_key": f"activity-{number}",
        "deadlines": {},
        "priority": 3,
        "priority_key": 2,
        "fairness_key": "tenant-a",
    } | more


class HearingServer:
    """Records heartbeats and answers them as configured."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] | Exception = GO_ON
        self.bodies: list[dict[str, Any]] = []
        self._heard = asyncio.Condition()

    async def heartbeat(self, task: Any, body: dict[str, Any]) -> dict[str, Any]:
        async with self._heard:
            self.bodies.append(body)
            self._heard.notify_all()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def heard(self, times: int) -> None:
        async with self._heard:
            await self._heard.wait_for(lambda: len(self.bodies) >= times)

    @property
    def told(self) -> list[Any]:
        return [
            DEFAULT.decode_arguments(body["details"]) if "details" in body else None for body in self.bodies
        ]


class SteppedClock:
    """Time passes only in `advance`."""

    def __init__(self) -> None:
        self._now = BEGIN
        self._sleeping: list[tuple[datetime, asyncio.Future[None]]] = []
        self._changed = asyncio.Condition()

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._now + timedelta(seconds=seconds), woken)
        self._sleeping.append(entry)
        async with self._changed:
            self._changed.notify_all()
        try:
            await woken
        finally:
            if entry in self._sleeping:
                self._sleeping.remove(entry)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.Task[None]:
        async def later() -> None:
            await self.sleep(seconds)
            callback()

        return asyncio.create_task(later())

    async def advance(self, seconds: float, *, sleepers: int = 1) -> None:
        """Advance the time once at least this many tasks sleep."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._sleeping) >= sleepers)
        self._now += timedelta(seconds=seconds)
        due = [entry for entry in self._sleeping if entry[0] <= self._now]
        self._sleeping = [entry for entry in self._sleeping if entry not in due]
        for _, woken in due:
            if not woken.done():
                woken.set_result(None)


@asynccontextmanager
async def a_runner(*functions: Any, server: HearingServer | None = None, **options: Any):
    server = server or HearingServer()
    runner = ActivityRunner(
        [ActivityDefinition.to_run(each) for each in functions],
        options.pop("converter", DEFAULT),
        heartbeat=server.heartbeat,
        worker=FACTS,
        **options,
    )
    try:
        yield runner
    finally:
        await asyncio.wait_for(runner.close(), PATIENCE_S)


def value(outcome: dict[str, Any]) -> Any:
    """The result of a completed activity."""
    assert outcome["action"] == "complete", outcome
    return DEFAULT.decode(outcome["result"])


def failure(outcome: dict[str, Any]) -> dict[str, Any]:
    assert outcome["action"] == "fail", outcome
    return outcome["failure"]
