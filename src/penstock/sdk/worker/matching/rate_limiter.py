"""Waits until a worker may start another activity."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from penstock.sdk.worker.matching.token_bucket import NANO, TokenBucket


class RateLimiter:
    """The tokens of a worker, shared by all its polls for activities; without a rate there is no end of them."""

    def __init__(self, per_second: float | None, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._bucket = None if per_second is None else TokenBucket(per_second)
        self._clock = clock
        self._out = 0
        """Tokens that are with polls."""
        self._settled = asyncio.Event()

    async def take(self, most: int) -> int:
        """Take up to `most` tokens; wait until there is one."""
        while (bucket := self._bucket) is not None:
            taken = bucket.take(most, self._clock())
            if taken:
                self._out += taken
                return taken
            await self._wait(bucket.opens_at_ns())
        self._out += most
        return most

    def settle(self, taken: int, spent: int) -> None:
        """Say how many of the tokens that were taken were spent; the others are there again."""
        self._out -= taken
        if self._bucket is not None:
            self._bucket.settle(taken, spent, self._clock())
        self._settled.set()

    def spend_now(self) -> bool:
        """Take and spend a token if there is one: for a task that came though nobody asked any more."""
        if self._bucket is None:
            return True
        now_ns = self._clock()
        taken = self._bucket.take(1, now_ns)
        self._bucket.settle(taken, taken, now_ns)
        return taken > 0

    def change(self, per_second: float | None) -> None:
        """Go at another rate from now on. Who waits for a token looks again; who has some keeps what still fits."""
        if per_second is None:
            self._bucket = None
        else:
            paid_until_ns = 0 if self._bucket is None else self._bucket.paid_until_ns
            changed = TokenBucket(per_second, taken=self._out)
            most_ns = self._clock() + changed.burst * changed.interval_ns
            changed.paid_until_ns = min(paid_until_ns, most_ns)
            self._bucket = changed
        self._settled.set()

    def fitting(self, held: int) -> int:
        """How many of the tokens that a poll holds may be spent: the rate may be another one by now."""
        return held if self._bucket is None else self._bucket.fitting(held, self._clock())

    async def _wait(self, until_ns: int | None) -> None:
        """Until a token may be there: by the clock, or because another poll gave one back."""
        self._settled.clear()
        left_s = None if until_ns is None else max(0, until_ns - self._clock()) / NANO
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), left_s)
