"""The clock that measures activity timeouts; the test environment replaces it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class ActivityClock(Protocol):
    def now(self) -> datetime:
        """Return an aware datetime."""

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerAlarm:
        """Call `callback` in the running event loop after `seconds`."""


class TimerAlarm(Protocol):
    def cancel(self) -> None: ...


class MachineClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerAlarm:
        return asyncio.get_running_loop().call_later(seconds, callback)
