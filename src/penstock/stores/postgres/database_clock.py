"""The database's time is everybody's time. Between two looks at it, it is reckoned by our own steady clock.

Asking for it at the beginning of every operation is a journey of its own. So it is asked for once a second while there
is something to do, and the time that has passed since then is added. Wall clocks of servers play no part in it: where
they differ, and where one is set, nothing changes.

An answer is as old as its way to us was long. Of several answers the one that came fastest is the best; so a later one
does not turn time back, unless it says that the database's clock was set. The better one is given up little by little,
for two clocks never run quite alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

NOW_MS = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
GOOD_FOR_S = 1.0
GIVEN_UP_MS_PER_S = 1.0
"""More than clocks drift apart, and less than anybody notices."""
WAS_SET_MS = 1000.0
"""Whoever is told a time that is earlier by so much believes it: no answer is that long on its way."""


class TimeSource(Protocol):
    """A connection that can be asked for the time."""

    async def fetchval(self, query: str) -> Any: ...


class DatabaseClock:
    """What time it is at the database."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._ahead_ms: float | None = None
        """By how much the database's clock is ahead of the steady one."""
        self._heard_at_s = 0.0

    async def now_ms(self, teller: TimeSource) -> int:
        """Reckoned if it was asked for a moment ago, else asked for."""
        now_s = self._steady()
        if self._ahead_ms is None or now_s - self._heard_at_s > GOOD_FOR_S:
            self._hear(await teller.fetchval(NOW_MS))
            now_s = self._heard_at_s
        assert self._ahead_ms is not None
        return int(self._ahead_ms + now_s * 1000)

    def forget(self) -> None:
        """Whoever has connected anew may be talking to another database."""
        self._ahead_ms = None

    def _hear(self, moment_ms: int) -> None:
        now_s = self._steady()
        told_ms = moment_ms - now_s * 1000
        if self._ahead_ms is not None and self._ahead_ms - told_ms < WAS_SET_MS:
            kept_ms = self._ahead_ms - (now_s - self._heard_at_s) * GIVEN_UP_MS_PER_S
            told_ms = max(told_ms, kept_ms)
        self._ahead_ms, self._heard_at_s = told_ms, now_s
