"""How many activities a worker may start, by the clock alone: in any time t at most burst + rate × t.

Nothing here waits or reads a clock. Times are whole nanoseconds and come from outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NANO = 1_000_000_000
BURSTS_PER_SECOND = 10
"""After a rest so small a part of a second's worth may go at once."""


@dataclass(slots=True)
class TokenBucket:
    """Tokens of one rate. A token is taken before a poll and given back if the poll brought nothing for it.

    One moment says what was spent: until when that is paid for. What is taken counts as gone until it is settled,
    so that a poll that waits long saves nothing up.
    """

    per_second: float
    paid_until_ns: int = 0
    taken: int = 0

    @property
    def interval_ns(self) -> int:
        """The time that one token pays for, rounded up, so that the rate is never exceeded."""
        return math.ceil(NANO / self.per_second)

    @property
    def burst(self) -> int:
        return max(1, math.ceil(self.per_second / BURSTS_PER_SECOND))

    def take(self, most: int, now_ns: int) -> int:
        """Take up to `most` tokens: as many as there are, also none."""
        got = max(0, min(most, self._available(now_ns)))
        self.taken += got
        return got

    def settle(self, taken: int, spent: int, now_ns: int) -> None:
        """Say how many of the tokens that were taken were spent now; the others are there again."""
        self.taken -= taken
        if spent:
            self.paid_until_ns = max(self.paid_until_ns, now_ns) + spent * self.interval_ns

    def fitting(self, held: int, now_ns: int) -> int:
        """How many of the tokens that were taken may be spent: more are out than there are if the rate was lowered."""
        return max(0, held + min(0, self._available(now_ns)))

    def _available(self, now_ns: int) -> int:
        owed_ns = max(0, self.paid_until_ns - now_ns)
        return self.burst - -(-owed_ns // self.interval_ns) - self.taken

    def opens_at_ns(self) -> int | None:
        """When the next token is there if none is settled before; None: not before one is."""
        if self.taken >= self.burst:
            return None
        return self.paid_until_ns - (self.burst - 1 - self.taken) * self.interval_ns
