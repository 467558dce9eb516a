"""An app of Procrastinate with one task."""

from __future__ import annotations

import asyncio
import os

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]

from benchmarks.peers.marks import mark

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_ADDRESS"]))


@app.task(name="first")  # type: ignore[untyped-decorator]
async def first() -> None:
    mark()


async def _send() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await first.defer_async()


def send() -> None:
    """The first task of an empty database: the schema comes before it."""
    asyncio.run(_send())
