"""A clock that stands still until it is advanced, and its alarms."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class ClockAlarm:
    """Fires once, or never if it is cancelled before."""

    def __init__(self, at_ms: int, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self._callback: Callable[[], None] | None = callback
        self.besides: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._callback is not None

    def ring(self) -> None:
        callback = self._callback
        self.cancel()
        if callback is not None:
            callback()

    def cancel(self) -> None:
        self._callback = None
        if self.besides is not None:
            self.besides.cancel()


class SkippableClock:
    """The time of a server and of the activities timed by it."""

    def __init__(self, start: datetime) -> None:
        self._now_ms = ms_of(start)
        self._alarms: list[tuple[int, int, ClockAlarm]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return self._now_ms

    def now(self) -> datetime:
        return _EPOCH + self._now_ms * _MS

    def move_to(self, at_ms: int) -> None:
        """Advance the clock. It never goes back. `fire_due_alarms` then fires what is due."""
        self._now_ms = max(self._now_ms, at_ms)

    def at(self, at_ms: int, callback: Callable[[], None]) -> ClockAlarm:
        """Call `callback` when the clock reaches this time."""
        alarm = ClockAlarm(at_ms, callback)
        heapq.heappush(self._alarms, (at_ms, next(self._numbers), alarm))
        return alarm

    def call_later(self, seconds: float, callback: Callable[[], None]) -> ClockAlarm:
        """Call `callback` after this time by this clock or by the real one, whichever comes first.

        Activities are timed by it. One that takes long without sleeping on this clock is timed out as well.
        """
        alarm = self.at(self._now_ms + math.ceil(seconds * 1000), callback)
        alarm.besides = asyncio.get_running_loop().call_later(seconds, alarm.ring)
        return alarm

    async def sleep(self, seconds: float) -> None:
        """Sleep, with the same rule as `call_later`."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        alarm = self.call_later(seconds, partial(release, over))
        try:
            await over
        finally:
            alarm.cancel()

    def next_alarm_ms(self) -> int | None:
        while self._alarms and not self._alarms[0][2].is_set:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def fire_due_alarms(self) -> None:
        """Fire due alarms in order of their times."""
        while (at_ms := self.next_alarm_ms()) is not None and at_ms <= self._now_ms:
            heapq.heappop(self._alarms)[2].ring()


def ms_of(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // _MS


def release(over: asyncio.Future[None]) -> None:
    """Resolve a waiter, unless it is done already."""
    if not over.done():
        over.set_result(None)
