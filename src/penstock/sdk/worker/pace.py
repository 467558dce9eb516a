"""Waits until a worker may start another activity."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from penstock.sdk.worker.bucket import NANO, Bucket


class Pace:
    """The tokens of a worker, shared by all its polls for activities; without a rate there is no end of them."""

    def __init__(self, per_second: float | None, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._bucket = None if per_second is None else Bucket(per_second)
        self._clock = clock
        self._settled = asyncio.Event()

    async def take(self, most: int) -> int:
        """Take up to `most` tokens; wait until there is one."""
        if self._bucket is None:
            return most
        while not (taken := self._bucket.take(most, self._clock())):
            await self._wait(self._bucket.opens_at_ns())
        return taken

    def settle(self, taken: int, spent: int) -> None:
        """Say how many of the tokens that were taken were spent; the others are there again."""
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

    async def _wait(self, until_ns: int | None) -> None:
        """Until a token may be there: by the clock, or because another poll gave one back."""
        self._settled.clear()
        left_s = None if until_ns is None else max(0, until_ns - self._clock()) / NANO
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), left_s)
