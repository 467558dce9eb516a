"""Time skipping: when everything is idle and a result is awaited, the clock advances to the next due time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial

from penstock.testing.due_events import ActivityAttempt, DueEvents
from penstock.testing.request_tracker import RequestTracker, ResultWait
from penstock.testing.skippable_clock import SkippableClock, release

IDLE_TURNS = 50
"""Event loop iterations without activity after which nothing is in progress within the process."""
STALL_SECONDS = 5.0
"""Time after which a log line says what holds the clock."""
log = logging.getLogger("penstock.testing")

Explain = Callable[[ResultWait, int], Awaitable[Exception]]
"""Makes the error of a wait in vain. The number is how often time was skipped for it, or 0."""


class TimeSkipper:
    """Advances one clock while a result is awaited or a test sleeps. Otherwise time stands still."""

    def __init__(
        self,
        clock: SkippableClock,
        agenda: DueEvents,
        traffic: RequestTracker,
        *,
        patience: timedelta,
        skips_max: int,
    ) -> None:
        self._clock, self._due_events, self._tracker = clock, agenda, traffic
        self._patience_s = patience.total_seconds()
        self._skips_max = skips_max
        self._skips: dict[str, int] = {}
        """Number of skips for each current wait."""
        self._locks = 0
        self._sleeps: set[asyncio.Future[None]] = set()
        self._sleeping: set[ActivityAttempt] = set()
        self._logged_stall = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Advance the clock only for sleeps while the block runs."""
        self._locks += 1
        try:
            yield
        finally:
            self._locks -= 1
            self._tracker.note_activity()

    async def sleep(self, span: timedelta) -> None:
        """Let time pass, and let everything that becomes due happen."""
        with self._alarm(span) as over:
            self._sleeps.add(over)
            self._tracker.note_activity()
            try:
                await over
            finally:
                self._sleeps.discard(over)
        await self.wait_idle()

    async def sleep_in(self, attempt: ActivityAttempt, span: timedelta) -> None:
        """Let an activity wait by the clock, which neither holds nor advances it."""
        with self._alarm(span) as over:
            self._sleeping.add(attempt)
            self._tracker.note_activity()
            try:
                await over
            finally:
                self._sleeping.discard(attempt)
                self._tracker.note_activity()

    @contextlib.contextmanager
    def _alarm(self, span: timedelta) -> Iterator[asyncio.Future[None]]:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ends_at_ms = self._clock.now_ms() + math.ceil(span / timedelta(milliseconds=1))
        alarm = self._clock.at(ends_at_ms, partial(release, over))
        try:
            yield over
        finally:
            alarm.cancel()

    async def run(self, explain: Explain) -> None:
        """Skip time until cancelled."""
        while True:
            moves = self._tracker.moves
            if not self._is_wanted:
                await self._tracker.active_since(moves, 3600)
                continue
            try:
                await self.wait_idle()
                if self._is_wanted:
                    await self._skip(explain)
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # also what ends a test from outside and was raised here
                self._break(error)

    @property
    def _is_wanted(self) -> bool:
        waits = self._tracker.waits if not self._locks else ()
        return bool(waits) or any(not each.done() for each in self._sleeps)

    async def wait_idle(self) -> None:
        """Wait until everything is idle: no request, task, lease or delivery is in progress."""
        while True:
            moves = self._tracker.moves
            for _ in range(IDLE_TURNS):
                await asyncio.sleep(0)
            if await self._due_events.deliver() or self._tracker.moves != moves:
                continue
            if not self._tracker.busy and not await self._due_events.is_working(self._sleeping):
                self._logged_stall = False
                return
            if not await self._tracker.active_since(moves, STALL_SECONDS):
                self._log_stall()

    async def _skip(self, explain: Explain) -> None:
        moves = self._tracker.moves
        moment = await self._next_ms()
        if moment is None:
            if self._patience_s and await self._tracker.active_since(moves, self._patience_s):
                return
            await self._give_up(explain, 0)
            return
        waits = {wait.path for wait in self._tracker.waits}
        self._skips = {path: self._skips.get(path, 0) + 1 for path in waits}
        if max(self._skips.values(), default=0) > self._skips_max:
            await self._give_up(explain, self._skips_max)
            return
        self._clock.move_to(moment)
        await self._due_events.keep_alive()
        await self._due_events.fire_due()
        self._clock.fire_due_alarms()

    async def _next_ms(self) -> int | None:
        found = [await self._due_events.next_due_ms(), self._clock.next_alarm_ms()]
        return min((each for each in found if each is not None), default=None)

    async def _give_up(self, explain: Explain, skips: int) -> None:
        for wait in [each for each in self._tracker.waits if self._skips.get(each.path, 0) >= skips]:
            error = await explain(wait, skips)
            if wait in self._tracker.waits and not wait.given_up.done():
                wait.given_up.set_exception(error)
                self._tracker.waits.discard(wait)

    def _break(self, error: BaseException) -> None:
        """Fail all waiters, because time can no longer advance."""
        for each in [*self._sleeps, *(wait.given_up for wait in self._tracker.waits)]:
            if not each.done():
                each.set_exception(error)

    def _log_stall(self) -> None:
        if not self._logged_stall:
            self._logged_stall = True
            log.warning(
                "Time skipping is blocked: an activity or a request has been running for %g seconds. "
                "To let an activity take long in a test, use `env.sleep` in it.",
                STALL_SECONDS,
            )
