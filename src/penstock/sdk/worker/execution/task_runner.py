"""Runs polled tasks concurrently and frees their slots when they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.error_policy import log
from penstock.sdk.worker.matching.slots import Slots
from penstock.sdk.worker.metrics import WorkerMetrics

Json = dict[str, Any]


class TaskRunner:
    """Runs tasks of one kind in slots that were taken before the poll."""

    def __init__(
        self, kind: str, slots: Slots, handle: Callable[[Json], Awaitable[str]], metrics: WorkerMetrics
    ) -> None:
        self._kind, self._slots, self._handle, self._metrics = kind, slots, handle, metrics
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, task: Json) -> None:
        """Run a task in a slot that is already taken."""
        self._metrics.count(names.TASKS_STARTED, kind=self._kind)
        running = asyncio.create_task(self._run(task))
        self._running.add(running)
        running.add_done_callback(self._ended)

    async def _run(self, task: Json) -> None:
        began, outcome = time.monotonic(), "broken"
        try:
            outcome = await self._handle(task)
        except Exception:
            log.exception(
                "A %s task raised an unexpected error in the worker; its lease will expire", self._kind
            )
        finally:
            self._metrics.count(names.TASKS_ENDED, kind=self._kind, outcome=outcome)
            self._metrics.timing(names.TASK_SECONDS, time.monotonic() - began, kind=self._kind)

    def _ended(self, running: asyncio.Task[None]) -> None:
        self._running.discard(running)
        self._slots.give_back()
        self._metrics.level(names.FREE_SLOTS, self._slots.free, kind=self._kind)

    async def finish(self, seconds: float) -> bool:
        """Wait up to `seconds` for running tasks. Return whether all have ended."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        return not self._running

    async def abandon(self) -> None:
        """Cancel all running tasks and wait for them."""
        for each in self._running:
            each.cancel()
        if self._running:
            await asyncio.wait(self._running)
