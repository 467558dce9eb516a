"""Exponential backoff with jitter for requests to an unreachable server."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_S = 0.1
MAX_S = 10.0


class Backoff:
    """Doubles each pause up to a maximum. Jitter keeps workers from reconnecting all at once."""

    def __init__(
        self, first_s: float = FIRST_S, max_s: float = MAX_S, dice: Callable[[], float] = random.random
    ) -> None:
        self._first_s, self._max_s, self._dice = first_s, max_s, dice
        self._next_s = first_s

    def pause_s(self, at_least_s: float = 0.0) -> float:
        """Return the next pause: half of it fixed, half random, and never less than the server requested."""
        whole = self._next_s
        self._next_s = min(self._max_s, whole * 2)
        return max(at_least_s, whole / 2) + self._dice() * whole / 2

    def reset(self) -> None:
        """Start again at the shortest pause, after a response."""
        self._next_s = self._first_s
