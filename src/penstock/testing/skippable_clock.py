"""A clock that stands still until it is moved, and the alarms that are set on it."""

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
    """Rings once, or never if it was cancelled before."""

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
    """The time of a server and of the activities that are timed by it."""

    def __init__(self, start: datetime) -> None:
        self._now_ms = ms_of(start)
        self._alarms: list[tuple[int, int, ClockAlarm]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return self._now_ms

    def now(self) -> datetime:
        return _EPOCH + self._now_ms * _MS

    def move_to(self, at_ms: int) -> None:
        """Time never goes back. What became due is rung by `fire_due_alarms`."""
        self._now_ms = max(self._now_ms, at_ms)

    def at(self, at_ms: int, callback: Callable[[], None]) -> ClockAlarm:
        """Call when the clock says so, and no sooner."""
        alarm = ClockAlarm(at_ms, callback)
        heapq.heappush(self._alarms, (at_ms, next(self._numbers), alarm))
        return alarm

    def call_later(self, seconds: float, callback: Callable[[], None]) -> ClockAlarm:
        """Call after so long by this clock, or by the machine's: whatever comes first.

        It is what activities are timed by. One that takes long without sleeping here is held to its time, too.
        """
        alarm = self.at(self._now_ms + math.ceil(seconds * 1000), callback)
        alarm.besides = asyncio.get_running_loop().call_later(seconds, alarm.ring)
        return alarm

    async def sleep(self, seconds: float) -> None:
        """As `call_later`."""
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
        """Ring what is due, in the order of its moments."""
        while (at_ms := self.next_alarm_ms()) is not None and at_ms <= self._now_ms:
            heapq.heappop(self._alarms)[2].ring()


def ms_of(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // _MS


def release(over: asyncio.Future[None]) -> None:
    """Let go whoever waits, unless they have gone already."""
    if not over.done():
        over.set_result(None)
