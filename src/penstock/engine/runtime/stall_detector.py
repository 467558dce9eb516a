"""Detects stalls: periods in which this process was suspended or could not reach its store.

Workers cannot renew leases during a stall, so the time is not held against them: for `GRACE_S` afterwards a report on
a lease that expired meanwhile is still accepted, unless the task was leased again. This is safe because a lease ends
only when it is reclaimed under the lock of its task, never by the passing of time alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STALL_S = 5.0
"""A gap between two successful store reads beyond this counts as a stall."""
GRACE_S = 5.0
"""How long after a stall, or after startup, workers get to report before leases are reclaimed."""


class StallDetector:
    """Measures gaps between successful store reads. Before the first read there is no grace."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._started_at: float | None = None
        self._last_read_at: float | None = None
        self._stalled_s = 0.0
        self._grace_ends_at = 0.0

    def record_read(self) -> None:
        """Record that the store answered a sweeper now."""
        now = self._monotonic()
        if self._started_at is None:
            self._started_at = now
        gap = 0.0 if self._last_read_at is None else now - self._last_read_at
        if gap > STALL_S:
            self._stalled_s, self._grace_ends_at = gap, now + GRACE_S
        self._last_read_at = now

    @property
    def lease_grace_ms(self) -> int:
        """How long ago a lease may have expired and still be honoured; 0 unless there was a stall."""
        if self._last_read_at is None:
            return 0
        now = self._monotonic()
        gap = now - self._last_read_at
        if gap > STALL_S:
            return round(gap * 1000)
        return round(self._stalled_s * 1000) if now < self._grace_ends_at else 0

    @property
    def uptime_ms(self) -> int | None:
        """Uptime while the process is so new that workers may not have reconnected yet; then None."""
        if self._started_at is None:
            return None
        uptime_s = self._monotonic() - self._started_at
        return round(uptime_s * 1000) if uptime_s < GRACE_S else None
