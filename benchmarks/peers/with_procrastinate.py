"""Procrastinate: `with_procrastinate worker URL` runs tasks, `with_procrastinate client URL` is asked for them."""

from __future__ import annotations

import asyncio
import logging
import sys

import psycopg  # type: ignore[import-not-found]
from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]

from benchmarks.peers.exchange import Ticks, answer_questions

CONNECTIONS = 16
CONCURRENCY = 10
LOOK_SECONDS = 0.001
"""It has no way to wait for a result: its row is looked at."""
STATUS = "SELECT status FROM procrastinate_jobs WHERE id = %s"
ticks = Ticks()
app = App(connector=PsycopgConnector(conninfo=sys.argv[2], min_size=1, max_size=CONNECTIONS))
logging.disable(logging.INFO)


@app.task(name="nothing", queue="bench")  # type: ignore[untyped-decorator]
async def nothing() -> None:
    ticks.tick()


class Asked:
    sends_at_once = 4

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    async def send(self) -> None:
        await nothing.defer_async()

    async def send_many(self, count: int) -> None:
        await nothing.batch_defer_async(*({} for _ in range(count)))

    async def ask(self) -> float:
        before, job = ticks.count(), await nothing.defer_async()
        while True:
            found = await self._connection.execute(STATUS, (job,), prepare=True)
            if (await found.fetchone())[0] == "succeeded":
                return ticks.since(before)[0]
            await asyncio.sleep(LOOK_SECONDS)


async def _client() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        async with await psycopg.AsyncConnection.connect(sys.argv[2], autocommit=True) as connection:
            await answer_questions(Asked(connection), ticks)


async def _worker() -> None:
    async with app.open_async():
        await app.run_worker_async(queues=["bench"], concurrency=CONCURRENCY, install_signal_handlers=True)


if __name__ == "__main__":
    asyncio.run((_worker if sys.argv[1] == "worker" else _client)())
