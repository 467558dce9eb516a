"""Celery: `with_celery client URL` is asked; its worker is its own command, with the app of `tasks_celery`."""

from __future__ import annotations

import asyncio

from benchmarks.peers.exchange import answer_questions
from benchmarks.peers.tasks_celery import nothing, ticks

RESULT_SECONDS_MAX = 30


class Asked:
    """Its client waits for the broker: nothing else goes on meanwhile."""

    sends_at_once = 1

    async def send(self) -> None:
        nothing.delay()

    async def ask(self) -> float:
        return float(nothing.delay().get(timeout=RESULT_SECONDS_MAX))


if __name__ == "__main__":
    asyncio.run(answer_questions(Asked(), ticks))
