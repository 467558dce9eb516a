"""Gates at which a test blocks a worker in its own process: activities, and leased workflow tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from typing import Any

from durable_workflow import PassthroughWorkerInterceptor

from tests.support.patience import PATIENCE_S


class Gate:
    """A door: who comes is announced, and waits until it is opened."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._opened = asyncio.Event()

    def announce(self) -> None:
        self._reached.set()

    async def passed(self) -> None:
        self.announce()
        await self._opened.wait()

    async def reached(self) -> None:
        """Wait until somebody has come."""
        await asyncio.wait_for(self._reached.wait(), PATIENCE_S)

    def open(self) -> None:
        self._opened.set()


GATES: defaultdict[str, Gate] = defaultdict(Gate)
NOTES: defaultdict[str, list[str]] = defaultdict(list)
COUNTS: Counter[str] = Counter()
_held: dict[str, Gate] = {}


class TaskGateInterceptor(PassthroughWorkerInterceptor):
    """Holds workflow tasks of chosen workflows after they were leased and before they are replayed."""

    async def execute_workflow_task(self, context: Any, go_on: Any) -> Any:
        gate = _held.pop(context.task["workflow_id"], None)
        if gate is not None:
            await gate.passed()
        return await go_on(context)


@contextlib.asynccontextmanager
async def next_task_held(workflow_id: str) -> AsyncIterator[Gate]:
    """The next workflow task of a workflow is leased and held; it goes on at the end of the block, or earlier."""
    gate = _held[workflow_id] = Gate()
    try:
        yield gate
    finally:
        _held.pop(workflow_id, None)
        gate.open()


def open_all() -> None:
    """Let everybody go, so that the worker can stop."""
    for gate in GATES.values():
        gate.open()
