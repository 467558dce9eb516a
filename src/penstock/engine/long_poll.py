"""Waiting for a condition on stored state: woken by a notification, re-checked once a second regardless.

Notifications are hints that may be lost (`wakeups-are-hints`), so every wait also polls.
"""

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
    check: Callable[[], Awaitable[tuple[T, bool]]],
    wait_ms: int,
    draining: asyncio.Event,
    *,
    look_again_s: float = LOOK_AGAIN_S,
) -> tuple[T, bool]:
    """Call `check` until it reports done, `wait_ms` has passed or the server drains.

    Returns the last value that `check` produced and whether it was done. The topic is subscribed before the first
    check, so a notification sent between a check and the wait after it is not missed.
    """
    if wait_ms <= 0:
        return await check()
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_ms / 1000
    pause = _Pause(loop)
    unsubscribe = ctx.wakeups.listen(topic, pause.end)
    leaving: asyncio.Task[bool] | None = None
    try:
        while True:
            pause.begin()
            value, done = await check()
            left = ends_at - loop.time()
            if done or left <= 0 or draining.is_set():
                return value, done
            if leaving is None:
                leaving = asyncio.ensure_future(draining.wait())
                leaving.add_done_callback(pause.end)
            await pause.wait(min(left, look_again_s))
    finally:
        unsubscribe()
        if leaving is not None:
            leaving.remove_done_callback(pause.end)
            leaving.cancel()


class _Pause:
    """The pause between two checks: ended by `end` or by its timeout."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended = loop.create_future()

    def begin(self) -> None:
        """Arm the pause: an `end` from now on counts, even if it comes before `wait`."""
        if self._ended.done():
            self._ended = self._loop.create_future()

    def end(self, _: object = None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def wait(self, timeout_s: float) -> None:
        timer = None if timeout_s == math.inf else self._loop.call_later(timeout_s, self.end)
        try:
            await self._ended
        finally:
            if timer is not None:
                timer.cancel()
