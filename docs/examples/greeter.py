"""A worker with one workflow and one activity. Run it beside `penstock dev`; Ctrl-C stops it."""

import asyncio
import contextlib
from datetime import timedelta

from penstock import Client, Worker, activity, workflow


@activity.defn
async def compose(name: str) -> str:
    return f"Hello, {name}!"


@workflow.defn(name="greeter")
class Greeter:
    @workflow.run
    async def run(self, name: str) -> str:
        text = await workflow.execute_activity(compose, name, start_to_close_timeout=timedelta(seconds=10))
        await workflow.sleep(2)  # a durable timer: stop the worker meanwhile, and start it again
        return text


async def main() -> None:
    async with await Client.connect() as client:
        await Worker(client, task_queue="hello", workflows=[Greeter], activities=[compose]).run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
