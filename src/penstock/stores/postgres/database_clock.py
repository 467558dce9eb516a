"""The database's clock, read once a second and extrapolated in between.

All servers use the database's time, so that their wall clocks do not matter: servers may differ, and a step of one
changes nothing. Reading it at the start of every operation would be a round trip of its own. So `DatabaseClock` reads
it at most once per `MAX_AGE_S` while there is work, and adds the time that has passed on the local monotonic clock.

A reading is as old as its way back to us took. Of several readings the one that arrived fastest is the best (as in
Cristian's algorithm, 1989), so a later and slower one does not turn time back, unless it differs by so much that the
database's clock must have been stepped. The best reading is given up gradually (`DRIFT_MS_PER_S`), because two clocks
never run at exactly the same rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

NOW_MS = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
MAX_AGE_S = 1.0
DRIFT_MS_PER_S = 1.0
"""More than clocks drift apart, and too little to be noticed."""
STEP_MS = 1000.0
"""A reading that is earlier by this much is a step of the database's clock: no answer takes that long."""


class TimeSource(Protocol):
    """A connection that can execute a query for a single value."""

    async def fetchval(self, query: str) -> Any: ...


class DatabaseClock:
    """The current time of the database."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._offset_ms: float | None = None
        """By how much the database's clock is ahead of the monotonic one."""
        self._read_at_s = 0.0

    async def now_ms(self, source: TimeSource) -> int:
        """The time, extrapolated from the last reading; read from `source` if that is too old."""
        now_s = self._monotonic()
        if self._offset_ms is None or now_s - self._read_at_s > MAX_AGE_S:
            self._record(await source.fetchval(NOW_MS))
            now_s = self._read_at_s
        assert self._offset_ms is not None
        return int(self._offset_ms + now_s * 1000)

    def forget(self) -> None:
        """Discard the readings: a new connection may lead to another database."""
        self._offset_ms = None

    def _record(self, reading_ms: int) -> None:
        now_s = self._monotonic()
        offset_ms = reading_ms - now_s * 1000
        if self._offset_ms is not None and self._offset_ms - offset_ms < STEP_MS:
            best_ms = self._offset_ms - (now_s - self._read_at_s) * DRIFT_MS_PER_S
            offset_ms = max(offset_ms, best_ms)
        self._offset_ms, self._read_at_s = offset_ms, now_s
