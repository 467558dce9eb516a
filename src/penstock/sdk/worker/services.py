"""A worker of several queues: one service for each, in one room."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.sdk.worker.service import Service


class Services:
    """Opens, serves and closes them together. If one breaks, the others end, too."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services

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

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._services))
