"""Queues whose starts are refused: how many of their tasks a worker of several queues still claims."""

from __future__ import annotations

import asyncio


class BackpressureWindow:
    """Claims of a queue at its cap wait for nothing that this worker could do, in places that other queues could use.

    So no more than one of them waits, and in all no more than may be spared. Each that starts without a refusal doubles
    what is claimed of its queue, until it is an ordinary queue again.
    """

    def __init__(self, total: int, spare: int | None) -> None:
        self._total = total
        self._spare = spare
        """None: there is one queue, and it may have everything."""
        self._windows: dict[str, int] = {}
        self._claims: dict[str, int] = {}
        self.capacity_freed = asyncio.Event()
        """Set when a queue that was left out may be asked again."""

    @property
    def is_limited(self) -> bool:
        return self._spare is not None

    def resize(self, total: int, spare: int | None) -> None:
        self._total, self._spare = total, spare
        self.capacity_freed.set()

    def entered(self, queue: str) -> None:
        """One more claim of this queue is here."""
        self._claims[queue] = self._claims.get(queue, 0) + 1

    def left(self, queue: str) -> None:
        """It has started, or is here no more."""
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
        """Something has changed for this queue: if nothing of it waits here, it is worth asking."""
        if queue in self._windows and not self._claims.get(queue):
            self.capacity_freed.set()

    def keeps(self, queue: str) -> int:
        """How many of its claims may wait on after a refusal."""
        if self._spare is None:
            return self._total
        others = sum(self._claims.get(each, 0) for each in self._windows if each != queue)
        return 1 if others < self._spare else 0

    def capacity(self, queue: str, *, rests: bool) -> int:
        """How many more may be claimed of it now."""
        window = self._windows.get(queue)
        if window is None:
            return self._total
        if rests and not self.keeps(queue):
            return 0
        return max(0, window - self._claims.get(queue, 0))
