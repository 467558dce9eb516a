"""How many activities a worker may start in a second."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

BURST_S = 0.1
"""What was saved in a rest may go at once: so much of it."""


class Pace:
    """Tokens on an exact schedule: in any span of T seconds at most `rate × T + burst` are spent.

    A token is taken before a poll and given back if the poll brought less. What is taken and what is left are
    together never more than the burst, so that a poll that waits long does not save up.
    """

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._burst = 1 if per_second is None else max(1, math.floor(per_second * BURST_S))
        self._clock = clock
        self._tokens = float(self._burst)
        self._taken = 0
        self._at = clock()
        self._settled = asyncio.Event()

    async def take(self, most: int) -> int:
        """Take up to `most` tokens; wait until there is one."""
        if self._rate is None:
            return most
        while (wait_s := self._wait_s()) > 0:
            if self._taken >= self._burst:
                self._settled.clear()
                await self._settled.wait()
            else:
                await asyncio.sleep(wait_s)
        taken = min(most, math.floor(self._tokens))
        self._tokens -= taken
        self._taken += taken
        return taken

    def settle(self, taken: int, spent: int) -> None:
        """Say how many of the tokens that were taken were spent; the others are there again."""
        if self._rate is None:
            return
        self._refill()
        self._taken -= taken
        self._tokens = min(self._burst - self._taken, self._tokens + taken - spent)
        self._settled.set()

    def _wait_s(self) -> float:
        assert self._rate is not None
        self._refill()
        if self._tokens >= 1:
            return 0.0
        return max(0.001, (1 - self._tokens) / self._rate)

    def _refill(self) -> None:
        assert self._rate is not None
        now = self._clock()
        grown = self._tokens + (now - self._at) * self._rate
        self._at = now
        self._tokens = max(self._tokens, min(self._burst - self._taken, grown))
