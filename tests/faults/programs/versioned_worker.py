"""A worker on the public SDK whose workflow code has three versions, and one that never yields.

python changing_worker.py URL NAMESPACE WORKER VERSION
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from typing import Any

from durable_workflow import Client, Worker, activity, workflow

QUEUE = "q"
NAP_SECONDS = 2
Steps = Generator[Any, Any, Any]


@activity.defn(name="greet")
async def greet(name: str) -> str:
    return f"Hello, {name}"


class First:
    """Greets, naps, and says so."""

    def run(self, ctx: Any, name: str) -> Steps:
        greeting = yield ctx.schedule_activity("greet", [name])
        yield ctx.sleep(NAP_SECONDS)
        return greeting


class Broken:
    """Sleeps before it greets: incompatible with histories of the first version."""

    def run(self, ctx: Any, name: str) -> Steps:
        yield ctx.sleep(NAP_SECONDS)
        greeting = yield ctx.schedule_activity("greet", [name])
        return greeting


class Fixed:
    """The first version with one more step at the end."""

    def run(self, ctx: Any, name: str) -> Steps:
        greeting = yield ctx.schedule_activity("greet", [name])
        yield ctx.sleep(NAP_SECONDS)
        return f"{greeting}!"


class Endless:
    """Never yields to the event loop, which blocks its process."""

    def run(self, ctx: Any, name: str) -> Steps:
        while ctx is not None:
            pass
        yield ctx


VERSIONS = {"first": First, "broken": Broken, "fixed": Fixed, "endless": Endless}


async def main(url: str, namespace: str, worker_id: str, version: str) -> None:
    greeter = workflow.defn(name="greeter")(VERSIONS[version])
    async with Client(
        url, control_token="operator-secret", worker_token="worker-secret", namespace=namespace
    ) as client:
        await Worker(
            client,
            task_queue=QUEUE,
            workflows=[greeter],
            activities=[greet],
            worker_id=worker_id,
            build_id=version,
        ).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
