"""Keeps a long sweep to a share of the time while others work, as vacuum's cost delay does.

Theory of operation. Ten thousand schedules may be due in one second. Fired at once, they would fill every commit group
for seconds, and tasks of others would wait behind them. So a sweep handles its items in small portions. After each
it compares the operations that the store has committed with its own: if others committed any meanwhile, it pauses for a
multiple of the time that the portion took, and so takes at most `SHARE` of the time. While nobody else works there
are no pauses, and portions grow, so that more items share a commit.

Rejected: a fixed rate (it wastes an idle machine, and overloads a slow one), and a queue with a lower priority in front
of the store (operations of one key must keep their order, and a group is only as fast as its largest member).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeVar

from penstock.ports.store import Store

K = TypeVar("K")
PORTION: Final = 32
"""Items that are handled together while others work."""
PORTION_MAX: Final = 256
SHARE: Final = 0.08
"""The goal is that others lose at most a tenth of their rate; a portion delays them for a little after its end, too."""
PAUSE_S_MAX: Final = 5.0
"""Much longer than any portion's share asks for, even on a busy machine; only a stalled one is cut here."""
PAUSE_S_EACH: Final = 0.2
"""The longest pause for each operation of others: one or two in a portion are housekeeping, and need no room."""


class Throttle:
    """Divides the items of a sweep into portions, with pauses between them while others work.

    Args:
        store: the store whose commits are counted.
        own: returns how many operations the sweep itself has committed.
    """

    def __init__(self, store: Store, own: Callable[[], int]) -> None:
        self._store, self._own = store, own
        self._portion = PORTION

    async def portions(self, items: Sequence[K]) -> AsyncIterator[Sequence[K]]:
        """The items in portions; asking for the next one waits as long as the throttle says."""
        loop = asyncio.get_running_loop()
        left = list(items)
        while left:
            portion, left = left[: self._portion], left[self._portion :]
            before, began = self._of_others(), loop.time()
            yield portion
            others = self._of_others() - before
            self._portion = PORTION if others else min(2 * self._portion, PORTION_MAX)
            await asyncio.sleep(pause_s(loop.time() - began, others))

    def _of_others(self) -> int:
        return self._store.health().committed - self._own()


def pause_s(busy_s: float, others: int) -> float:
    """How long to pause after a portion that took `busy_s`, while others committed so many operations."""
    return min(busy_s * (1 - SHARE) / SHARE, others * PAUSE_S_EACH, PAUSE_S_MAX)
