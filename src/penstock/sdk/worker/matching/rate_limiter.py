"""Delays polls so that a worker stays within its own activity rate."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from penstock.sdk.worker.matching.token_bucket import NANO, TokenBucket


class RateLimiter:
    """The tokens of a worker, shared by all its activity polls. Without a rate the supply is unlimited."""

    def __init__(self, per_second: float | None, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._bucket = None if per_second is None else TokenBucket(per_second)
        self._clock = clock
        self._out = 0
        """Tokens held by open polls."""
        self._settled = asyncio.Event()

    async def take(self, limit: int) -> int:
        """Take up to `limit` tokens, waiting until at least one is available."""
        while (bucket := self._bucket) is not None:
            taken = bucket.take(limit, self._clock())
            if taken:
                self._out += taken
                return taken
            await self._wait(bucket.opens_at_ns())
        self._out += limit
        return limit

    def settle(self, taken: int, spent: int) -> None:
        """Report how many of the taken tokens were spent. The others are returned."""
        self._out -= taken
        if self._bucket is not None:
            self._bucket.settle(taken, spent, self._clock())
        self._settled.set()

    def spend_now(self) -> bool:
        """Take and spend one token if available, for a task that arrives after its poll was abandoned."""
        if self._bucket is None:
            return True
        now_ns = self._clock()
        taken = self._bucket.take(1, now_ns)
        self._bucket.settle(taken, taken, now_ns)
        return taken > 0

    def change(self, per_second: float | None) -> None:
        """Change the rate. Waiting polls check again; polls that hold tokens keep those that still fit."""
        if per_second is None:
            self._bucket = None
        else:
            paid_until_ns = 0 if self._bucket is None else self._bucket.paid_until_ns
            changed = TokenBucket(per_second, taken=self._out)
            latest_ns = self._clock() + changed.burst * changed.interval_ns
            changed.paid_until_ns = min(paid_until_ns, latest_ns)
            self._bucket = changed
        self._settled.set()

    def fitting(self, held: int) -> int:
        """Return how many of the tokens held by a poll may be spent. The rate may have changed since."""
        return held if self._bucket is None else self._bucket.fitting(held, self._clock())

    async def _wait(self, until_ns: int | None) -> None:
        """Wait until the given time, or until another poll returns a token."""
        self._settled.clear()
        left_s = None if until_ns is None else max(0, until_ns - self._clock()) / NANO
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), left_s)
