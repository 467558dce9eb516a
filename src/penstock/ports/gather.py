"""Two independent reads of one operation in a single round trip."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

First = TypeVar("First")
Second = TypeVar("Second")


async def gather(
    first: Coroutine[Any, Any, First], second: Coroutine[Any, Any, Second]
) -> tuple[First, Second]:
    """Run both coroutines in lockstep: their reads of the same step are sent together.

    Each read sees locks and changes of earlier steps, and nothing of the other coroutine's read in the same step. An
    exception in one ends both.
    """
    one, other = _Branch(first), _Branch(second)
    try:
        await _Steps((one, other))
        return one.result(), other.result()
    finally:
        first.close()
        second.close()


class _Branch(Generic[First]):
    """One of the coroutines, with the reads that it waits for."""

    def __init__(self, coroutine: Coroutine[Any, Any, First]) -> None:
        self._coroutine = coroutine
        self._results: list[First] = []
        self.reads: tuple[Any, ...] = ()

    def result(self) -> First:
        return self._results[0]

    def advance(self, results: Sequence[Any] | None) -> None:
        """Advance to the next reads, or to the end."""
        self.reads = ()
        try:
            self.reads = self._coroutine.send(results)
        except StopIteration as end:
            self._results.append(end.value)


class _Steps:
    def __init__(self, branches: Sequence[_Branch[Any]]) -> None:
        self._branches = branches

    def __await__(self) -> Generator[tuple[Any, ...], Sequence[Any], None]:
        for branch in self._branches:
            branch.advance(None)
        while reads := tuple(read for branch in self._branches for read in branch.reads):
            results = yield reads
            start = 0
            for branch in self._branches:
                if count := len(branch.reads):
                    branch.advance(results[start : start + count])
                    start += count
