"""Dramatiq: `with_dramatiq client URL` is asked; its worker is its own command, with the actor of `tasks_dramatiq`."""

from __future__ import annotations

import asyncio

from benchmarks.peers.exchange import answer_questions
from benchmarks.peers.tasks_dramatiq import nothing, ticks

RESULT_MS_MAX = 30_000


class Asked:
    """Its client waits for the broker: nothing else goes on meanwhile."""

    sends_at_once = 1

    async def send(self) -> None:
        nothing.send()

    async def ask(self) -> float:
        return float(nothing.send().get_result(block=True, timeout=RESULT_MS_MAX))


if __name__ == "__main__":
    asyncio.run(answer_questions(Asked(), ticks))
