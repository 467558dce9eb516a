"""Waiting for something to be true in the store: woken by a bell, looking anyway once a second."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.engine.context import EngineContext
from penstock.ports.wakeups import Topic

T = TypeVar("T")
LOOK_AGAIN_S = 1.0


async def wait_until(
    ctx: EngineContext,
    topic: Topic,
    look: Callable[[], Awaitable[tuple[T, bool]]],
    wait_ms: int,
    draining: asyncio.Event,
    *,
    look_again_s: float = LOOK_AGAIN_S,
) -> tuple[T, bool]:
    """What was seen last, and whether it is what was waited for; the server's leaving ends the wait."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_ms / 1000
    rest = _Rest(loop)
    silence = ctx.wakeups.listen(topic, rest.end)
    leaving: asyncio.Task[bool] | None = None
    try:
        while True:
            rest.begin()
            seen, done = await look()
            left = ends_at - loop.time()
            if done or left <= 0 or draining.is_set():
                return seen, done
            if leaving is None:
                leaving = asyncio.ensure_future(draining.wait())
                leaving.add_done_callback(rest.end)
            await rest.over(min(left, look_again_s))
    finally:
        silence()
        if leaving is not None:
            leaving.remove_done_callback(rest.end)
            leaving.cancel()


class _Rest:
    """The time between two looks: it is over when somebody says so, or when it is time to look anyway."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended = loop.create_future()

    def begin(self) -> None:
        """What is said from now on ends it, also before anybody waits."""
        if self._ended.done():
            self._ended = self._loop.create_future()

    def end(self, _: object = None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def over(self, timeout_s: float) -> None:
        timer = None if timeout_s == math.inf else self._loop.call_later(timeout_s, self.end)
        try:
            await self._ended
        finally:
            if timer is not None:
                timer.cancel()
