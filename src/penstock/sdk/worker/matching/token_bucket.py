"""The activity rate of a worker as a token bucket: in any time t at most burst + rate * t starts.

Pure: it neither waits nor reads a clock. Times are integer nanoseconds, passed in by the caller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NANO = 1_000_000_000
BURSTS_PER_SECOND = 10
"""After a pause, at most this fraction of a second's tokens is available at once."""


@dataclass(slots=True)
class TokenBucket:
    """Tokens of one rate. A token is taken before a poll and returned if the poll brings no task for it.

    `paid_until_ns` is the theoretical arrival time of GCRA: spent tokens advance it by one interval each. Taken
    tokens count as spent until they are settled, so that a long poll does not accumulate a burst.
    """

    per_second: float
    paid_until_ns: int = 0
    taken: int = 0

    @property
    def interval_ns(self) -> int:
        """The interval that one token pays for, rounded up, so that the rate is never exceeded."""
        return math.ceil(NANO / self.per_second)

    @property
    def burst(self) -> int:
        return max(1, math.ceil(self.per_second / BURSTS_PER_SECOND))

    def take(self, limit: int, now_ns: int) -> int:
        """Take up to `limit` tokens, possibly none."""
        got = max(0, min(limit, self._available(now_ns)))
        self.taken += got
        return got

    def settle(self, taken: int, spent: int, now_ns: int) -> None:
        """Report how many of the taken tokens were spent now. The others are returned."""
        self.taken -= taken
        if spent:
            self.paid_until_ns = max(self.paid_until_ns, now_ns) + spent * self.interval_ns

    def fitting(self, held: int, now_ns: int) -> int:
        """Return how many taken tokens may be spent: after the rate is lowered, more may be out than exist."""
        return max(0, held + min(0, self._available(now_ns)))

    def _available(self, now_ns: int) -> int:
        owed_ns = max(0, self.paid_until_ns - now_ns)
        return self.burst - -(-owed_ns // self.interval_ns) - self.taken

    def opens_at_ns(self) -> int | None:
        """Return when the next token is available if none is settled before; None if that depends on a settlement."""
        if self.taken >= self.burst:
            return None
        return self.paid_until_ns - (self.burst - 1 - self.taken) * self.interval_ns
