"""What the accuracy benchmark asks of any system: one queue, tasks with keys, and the order they come out in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

LEVEL = 3
"""The priority level that both systems take as their middle and default."""


class Waiting(Struct, frozen=True):
    """A task to be enqueued: whose it is, with which weight, on which level."""

    key: str
    weight: float = 1.0
    level: int = LEVEL


class FairLine(Protocol):
    """One queue of a system at a time, with one caller that enqueues, waits, and takes."""

    def renew(self) -> None:
        """Go on with another queue, which has never held a task."""
        ...

    def enqueue(self, tasks: Sequence[Waiting]) -> None:
        """Put tasks in line; when this returns, all of them wait there."""
        ...

    def override(self, key: str, weight: float) -> None:
        """Set the weight of a key for the whole queue, whatever its tasks say."""
        ...

    def take(self, count: int) -> list[str]:
        """The keys of the next tasks in the order in which they were handed out; fewer when no more wait."""
        ...
