"""A worker of several queues: one service for each, in one room."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.sdk.worker.adjusting import narrower
from penstock.sdk.worker.options import WorkerOptions
from penstock.sdk.worker.room import Room
from penstock.sdk.worker.service import Service


class Services:
    """Opens, serves and closes them together. If one breaks, the others end, too."""

    def __init__(self, services: Sequence[Service], room: Room, options: WorkerOptions) -> None:
        self._services, self._room, self._options = services, room, options

    @property
    def killed(self) -> int:
        return sum(each.killed for each in self._services)

    async def open(self, stop: asyncio.Event) -> bool:
        """Register all; False when the worker is to stop before a server was there."""
        opened = await asyncio.gather(*(each.open(stop) for each in self._services))
        return all(opened)

    async def serve(self, stop: asyncio.Event) -> None:
        serving = [asyncio.ensure_future(each.serve(stop)) for each in self._services]
        try:
            done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_EXCEPTION)
            for each in done:
                each.result()
        finally:
            for each in serving:
                each.cancel()
            await asyncio.wait(serving)

    async def adjust(self, options: WorkerOptions) -> None:
        """Go by other numbers: first by what is less, then the server is told, then by what is more.

        The server gives a worker no more than it offers, so that a poll for more would wait for nothing.
        """
        before, self._options = self._options, options
        self._go_by(narrower(before, options))
        places = options.max_concurrent_activity_tasks
        await asyncio.gather(*(each.tell(options, places) for each in self._services))
        self._go_by(options)
        if before.max_activities_per_second != options.max_activities_per_second:
            await asyncio.gather(*(each.introduce_again() for each in self._services))

    def _go_by(self, options: WorkerOptions) -> None:
        self._room.resize(options)
        for each in self._services:
            each.adjust(options)

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._services))
