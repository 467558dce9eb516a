"""Growing pauses between tries while the server is away."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_S = 0.1
MAX_S = 10.0


class Backoff:
    """Each pause is twice the one before, up to a bound; jitter keeps workers from coming back all at once."""

    def __init__(
        self, first_s: float = FIRST_S, most_s: float = MAX_S, dice: Callable[[], float] = random.random
    ) -> None:
        self._first_s, self._most_s, self._dice = first_s, most_s, dice
        self._next_s = first_s

    def pause_s(self, at_least_s: float = 0.0) -> float:
        """How long to wait now: half of the pause is certain, half is thrown; never less than the server asks for."""
        whole = self._next_s
        self._next_s = min(self._most_s, whole * 2)
        return max(at_least_s, whole / 2) + self._dice() * whole / 2

    def reset(self) -> None:
        """The server answered."""
        self._next_s = self._first_s
