"""Backpressure for workers of several queues: how many tasks of a capped queue they still prefetch."""

from __future__ import annotations

import asyncio


class BackpressureWindow:
    """Limits the prefetched tasks of queues whose starts the server refuses.

    Prefetched tasks of a queue at its cap cannot start, and they occupy capacity that other queues could use. At most
    one of them waits per queue, and at most `spare` in total. Each task that starts without a refusal doubles the
    window of its queue, until the window reaches the total and is removed.
    """

    def __init__(self, total: int, spare: int | None) -> None:
        self._total = total
        self._spare = spare
        """None: there is one queue, which may use everything."""
        self._windows: dict[str, int] = {}
        self._claims: dict[str, int] = {}
        self.capacity_freed = asyncio.Event()
        """Set when a queue that was skipped may be polled again."""

    @property
    def is_limited(self) -> bool:
        return self._spare is not None

    def resize(self, total: int, spare: int | None) -> None:
        self._total, self._spare = total, spare
        self.capacity_freed.set()

    def entered(self, queue: str) -> None:
        """Count one more prefetched task of this queue."""
        self._claims[queue] = self._claims.get(queue, 0) + 1

    def left(self, queue: str) -> None:
        """Count one prefetched task less: it has started, or was handed back."""
        self._claims[queue] -= 1
        if queue in self._windows:
            self.capacity_freed.set()

    def refused(self, queue: str) -> None:
        if self.is_limited:
            self._windows[queue] = 1

    def grow(self, queue: str) -> None:
        if queue not in self._windows:
            return
        self.capacity_freed.set()
        self._windows[queue] *= 2
        if self._windows[queue] >= self._total:
            del self._windows[queue]

    def recheck(self, queue: str) -> None:
        """Allow another poll of this queue if none of its prefetched tasks is here."""
        if queue in self._windows and not self._claims.get(queue):
            self.capacity_freed.set()

    def keeps(self, queue: str) -> int:
        """Return how many prefetched tasks of this queue may stay after a refusal."""
        if self._spare is None:
            return self._total
        others = sum(self._claims.get(each, 0) for each in self._windows if each != queue)
        return 1 if others < self._spare else 0

    def capacity(self, queue: str, *, rests: bool) -> int:
        """Return how many more tasks of this queue may be prefetched now."""
        window = self._windows.get(queue)
        if window is None:
            return self._total
        if rests and not self.keeps(queue):
            return 0
        return max(0, window - self._claims.get(queue, 0))
