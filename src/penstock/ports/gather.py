"""Independent reads of one operation in a single round trip, and equal reads of one snapshot only once."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, TypeVar, overload

First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")
Reads = Coroutine[Any, Any, First]


@overload
def gather(first: Reads[First], second: Reads[Second], /) -> Reads[tuple[First, Second]]: ...
@overload
def gather(
    first: Reads[First], second: Reads[Second], third: Reads[Third], /
) -> Reads[tuple[First, Second, Third]]: ...
@overload
def gather(*coroutines: Reads[First]) -> Reads[tuple[First, ...]]: ...
@types.coroutine
def gather(*coroutines: Reads[Any]) -> Generator[tuple[Any, ...], Sequence[Any], tuple[Any, ...]]:
    """Run coroutines in lockstep: their reads of the same step are sent together.

    Each read sees locks and changes of earlier steps, and nothing of the other coroutines' reads in the same step. An
    exception in one ends all.
    """
    results: list[Any] = [None] * len(coroutines)
    answers: Sequence[Any] | None = None
    asking = dict.fromkeys(range(len(coroutines)), 0)
    try:
        while True:
            asks: list[Any] = []
            place = 0
            for index, count in list(asking.items()):
                mine = None if answers is None else answers[place : place + count]
                place += count
                try:
                    found = coroutines[index].send(mine)
                except StopIteration as end:
                    results[index] = end.value
                    del asking[index]
                else:
                    asking[index] = len(found)
                    asks += found
            if not asking:
                return tuple(results)
            answers = yield tuple(asks)
    finally:
        for each in coroutines:
            each.close()


@types.coroutine
def remembering(work: Reads[First]) -> Generator[tuple[Any, ...], Sequence[Any], First]:
    """Run a coroutine that only reads, in one snapshot: what it has read before is not read again."""
    known: dict[Any, Any] = {}
    answers: Sequence[Any] | None = None
    try:
        while True:
            try:
                asks = work.send(answers)
            except StopIteration as end:
                found: First = end.value
                return found
            new = tuple(dict.fromkeys(each for each in asks if each not in known))
            if new:
                known.update(zip(new, (yield new), strict=True))
            answers = [known[each] for each in asks]
    finally:
        work.close()
