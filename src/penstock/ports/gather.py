"""Two things that an operation asks of the store at once, because neither needs the other's answer."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

First = TypeVar("First")
Second = TypeVar("Second")


async def gather(
    first: Coroutine[Any, Any, First], second: Coroutine[Any, Any, Second]
) -> tuple[First, Second]:
    """Go through both side by side: what they ask in the same step travels together.

    Either sees what is locked or changed before the step in which it asks, and nothing of what the other one asks in
    the same step. What one refuses ends both.
    """
    one, other = _Path(first), _Path(second)
    try:
        await _Steps((one, other))
        return one.result(), other.result()
    finally:
        first.close()
        second.close()


class _Path(Generic[First]):
    """One of them, as far as it has gone."""

    def __init__(self, coroutine: Coroutine[Any, Any, First]) -> None:
        self._coroutine = coroutine
        self._results: list[First] = []
        self.asks: tuple[Any, ...] = ()

    def result(self) -> First:
        return self._results[0]

    def go_on(self, answers: Sequence[Any] | None) -> None:
        """To its next questions, or to its end."""
        self.asks = ()
        try:
            self.asks = self._coroutine.send(answers)
        except StopIteration as end:
            self._results.append(end.value)


class _Steps:
    def __init__(self, paths: Sequence[_Path[Any]]) -> None:
        self._paths = paths

    def __await__(self) -> Generator[tuple[Any, ...], Sequence[Any], None]:
        for path in self._paths:
            path.go_on(None)
        while asks := tuple(ask for path in self._paths for ask in path.asks):
            answers = yield asks
            place = 0
            for path in self._paths:
                if mine := len(path.asks):
                    path.go_on(answers[place : place + mine])
                    place += mine
