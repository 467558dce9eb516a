"""The worker process of the demo: `python -m penstock.cli.demo.worker_main NAME`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys

from penstock.cli.demo.shop import BANK, SERVICES, SHOP, Fulfilment
from penstock.sdk.clients.client import Client
from penstock.sdk.worker import Worker


async def work(name: str) -> None:
    """Run both workers until the process is killed. The environment names the server."""
    async with await Client.connect() as client:
        shop = Worker(
            client,
            task_queue=SHOP,
            workflows=[Fulfilment],
            activities=SERVICES[SHOP],
            identity=f"{name}-{SHOP}",
        )
        bank = Worker(client, task_queue=BANK, activities=SERVICES[BANK], identity=f"{name}-{BANK}")
        async with shop, bank:
            print('{"ready": true}', flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(work(sys.argv[1]))
