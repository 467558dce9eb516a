"""A worker of one or more task queues: one service per queue, with shared activity slots."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.sdk.worker.adjustable_options import shrunk_slots
from penstock.sdk.worker.matching.slot_pool import SlotPool
from penstock.sdk.worker.options import WorkerOptions
from penstock.sdk.worker.queue_service import QueueService


class QueueServices:
    """Opens, serves and closes all services together. If one fails, the others stop as well."""

    def __init__(self, services: Sequence[QueueService], slot_pool: SlotPool, options: WorkerOptions) -> None:
        self._services, self._slot_pool, self._options = services, slot_pool, options

    @property
    def killed(self) -> int:
        return sum(each.killed for each in self._services)

    async def open(self, stop: asyncio.Event) -> bool:
        """Register all. Returns False if the worker is stopped before a server is reachable."""
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
        """Apply new options: reductions first, then report them to the server, then increases.

        The server does not lease more tasks than a worker offers, so a larger poll before the report would wait in
        vain.
        """
        before, self._options = self._options, options
        self._apply_options(shrunk_slots(before, options))
        activity_slots = options.max_concurrent_activity_tasks
        await asyncio.gather(*(each.report_slots(options, activity_slots) for each in self._services))
        self._apply_options(options)
        if before.max_activities_per_second != options.max_activities_per_second:
            await asyncio.gather(*(each.register_again() for each in self._services))

    def _apply_options(self, options: WorkerOptions) -> None:
        self._slot_pool.resize(options)
        for each in self._services:
            each.adjust(options)

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._services))
