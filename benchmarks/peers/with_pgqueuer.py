"""PgQueuer: `with_pgqueuer worker URL` runs tasks, `with_pgqueuer client URL` is asked for them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries  # type: ignore[import-not-found]
from pgqueuer.core.completion import CompletionWatcher  # type: ignore[import-not-found]

from benchmarks.peers.exchange import Ticks, answer_questions

TASK = "nothing"
CONNECTIONS = 64
BATCH = 200
"""What a worker takes at a time; 10 as it ships, and slower."""
ticks: Ticks


class Asked:
    sends_at_once = CONNECTIONS

    def __init__(self, queries: Any, url: str) -> None:
        self._queries, self._url = queries, url
        self._watcher: Any = None

    async def send(self) -> None:
        await self._queries.enqueue(TASK, None)

    async def send_many(self, count: int) -> None:
        await self._queries.enqueue([TASK] * count, [None] * count, [0] * count)

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Its own way to hear of ends, on a connection of its own."""
        connection = await asyncpg.connect(self._url)
        try:
            async with CompletionWatcher(AsyncpgDriver(connection), queries=self._queries) as self._watcher:
                yield
        finally:
            await connection.close()

    async def ask(self) -> float:
        before = ticks.count()
        (job,) = await self._queries.enqueue(TASK, None)
        await self._watcher.wait_for(job)
        return ticks.since(before)[0]


async def _client(url: str) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=CONNECTIONS) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        await answer_questions(Asked(queries, url), ticks)


async def _worker(url: str) -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @queuer.entrypoint(TASK)  # type: ignore[untyped-decorator]
    async def nothing(job: Any) -> None:
        ticks.tick()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
    await queuer.run(batch_size=BATCH)


if __name__ == "__main__":
    ticks = Ticks()
    asyncio.run((_worker if sys.argv[1] == "worker" else _client)(sys.argv[2]))
