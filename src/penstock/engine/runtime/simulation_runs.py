"""The simulations that this server runs, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class SimulationRuns:
    """Tasks by the id of their simulation."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.turn = asyncio.Semaphore(1)

    def start(self, simulation_id: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run in the background; the id is forgotten at the end."""
        task = asyncio.create_task(run(), name=f"penstock-simulation-{simulation_id}")
        self._tasks[simulation_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(simulation_id, None))

    def stop(self, simulation_id: str) -> None:
        """End its process, if it is this server's."""
        task = self._tasks.get(simulation_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End all of them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
