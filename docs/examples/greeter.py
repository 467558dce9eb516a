"""A worker with one workflow and one activity. Run it beside `penstock dev`; Ctrl-C stops it."""

import asyncio
import contextlib
import os

from durable_workflow import ActivityRetryPolicy, Client, Worker, activity, workflow


@activity.defn(name="compose")
async def compose(name: str) -> str:
    return f"Hello, {name}!"


@workflow.defn(name="greeter")
class Greeter:
    def run(self, ctx, name):
        greeting = yield ctx.schedule_activity(
            "compose", [name], retry_policy=ActivityRetryPolicy(max_attempts=3)
        )
        yield ctx.sleep(2)  # a durable timer: stop the worker meanwhile, and start it again
        return greeting


async def main() -> None:
    client = Client(
        os.environ["DURABLE_WORKFLOW_SERVER_URL"], token=os.environ["DURABLE_WORKFLOW_AUTH_TOKEN"]
    )
    async with client:
        await Worker(client, task_queue="hello", workflows=[Greeter], activities=[compose]).run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
