"""Time in which nobody could renew a lease here, because this process stood still or could not reach its store.

Such time is not held against workers: for a while after it, a report on a lease that ended meanwhile still
counts, unless the task was given to somebody else. That stays exact, because a lease ends for good only when
somebody takes it back, under the lock of its task.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STALL_S = 5.0
"""A gap between two looks at the store beyond this was a standstill."""
GRACE_S = 5.0
"""How long after a standstill workers may still make themselves heard."""


class StallDetector:
    """Told whenever a sweeper has looked at the store; until it is told first, nothing is excused."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._began_at: float | None = None
        self._looked_at: float | None = None
        self._stood_s = 0.0
        self._grace_ends_at = 0.0

    def looked(self) -> None:
        """The store has answered a sweeper just now."""
        now = self._monotonic()
        if self._began_at is None:
            self._began_at = now
        gap = 0.0 if self._looked_at is None else now - self._looked_at
        if gap > STALL_S:
            self._stood_s, self._grace_ends_at = gap, now + GRACE_S
        self._looked_at = now

    @property
    def lease_grace_ms(self) -> int:
        """By how much an ended lease is excused now; 0 at almost all times."""
        if self._looked_at is None:
            return 0
        now = self._monotonic()
        gap = now - self._looked_at
        if gap > STALL_S:
            return round(gap * 1000)
        return round(self._stood_s * 1000) if now < self._grace_ends_at else 0

    @property
    def fresh_ms(self) -> int | None:
        """How long this process has been there, while it is so new that workers may not have been heard yet."""
        if self._began_at is None:
            return None
        there_s = self._monotonic() - self._began_at
        return round(there_s * 1000) if there_s < GRACE_S else None
