"""Two things that an operation asks of the store at once, because neither needs the other's answer."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from typing import Any, TypeVar

First = TypeVar("First")
Second = TypeVar("Second")


async def gather(
    first: Coroutine[Any, Any, First], second: Coroutine[Any, Any, Second]
) -> tuple[First, Second]:
    """Go through both side by side: what they ask in the same step travels together.

    Either sees what is locked or changed before the step in which it asks, and nothing of what the other one asks in
    the same step. What one refuses ends both.
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
