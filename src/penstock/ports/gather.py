"""Two independent reads of one operation in a single round trip."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from typing import Any, TypeVar

First = TypeVar("First")
Second = TypeVar("Second")


async def gather(
    first: Coroutine[Any, Any, First], second: Coroutine[Any, Any, Second]
) -> tuple[First, Second]:
    """Run both coroutines in lockstep: their reads of the same step are sent together.

    Each read sees locks and changes of earlier steps, and nothing of the other coroutine's read in the same step. An
    exception in one ends both.
    """
    coroutines = (first, second)
    try:
        one, other = await _SideBySide(coroutines)
        return one, other
    finally:
        first.close()
        second.close()


class _SideBySide:
    """Two coroutines that are sent their answers step by step until both have ended."""

    def __init__(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> None:
        self._coroutines = coroutines

    def __await__(self) -> Generator[tuple[Any, ...], Sequence[Any], list[Any]]:
        results: list[Any] = [None] * len(self._coroutines)
        answers: Sequence[Any] | None = None
        asking = dict.fromkeys(range(len(self._coroutines)), 0)
        while True:
            asks: list[Any] = []
            place = 0
            for index, count in list(asking.items()):
                mine = None if answers is None else answers[place : place + count]
                place += count
                try:
                    found = self._coroutines[index].send(mine)
                except StopIteration as end:
                    results[index] = end.value
                    del asking[index]
                else:
                    asking[index] = len(found)
                    asks += found
            if not asking:
                return results
            answers = yield tuple(asks)
