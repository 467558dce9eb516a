"""Skipping time: when all is at rest and somebody waits, the clock goes to where something is due."""

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
"""Turns of the event loop in which nothing begins or ends: then nothing is on its way inside of the process."""
STALL_SECONDS = 5.0
"""After so long a test is told what holds its clock."""
log = logging.getLogger("penstock.testing")

Explain = Callable[[ResultWait, int], Awaitable[Exception]]
"""Makes the error of a wait that is in vain; the number is how often time was skipped for it in vain, or 0."""


class TimeSkipper:
    """Moves one clock. Time passes while a result is waited for, or a test sleeps; else it stands still."""

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
        """How often time was skipped for each wait that goes on."""
        self._locks = 0
        self._sleeps: set[asyncio.Future[None]] = set()
        self._sleeping: set[ActivityAttempt] = set()
        self._logged_stall = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only sleeps move the clock, as long as the block lasts."""
        self._locks += 1
        try:
            yield
        finally:
            self._locks -= 1
            self._tracker.note_activity()

    async def sleep(self, span: timedelta) -> None:
        """Have time pass, and what becomes due in it happen."""
        with self._alarm(span) as over:
            self._sleeps.add(over)
            self._tracker.note_activity()
            try:
                await over
            finally:
                self._sleeps.discard(over)
        await self.rest()

    async def sleep_in(self, attempt: ActivityAttempt, span: timedelta) -> None:
        """Have an activity wait by the clock: it does not hold it meanwhile, nor does it move it."""
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
        """Skip for ever."""
        while True:
            moves = self._tracker.moves
            if not self._is_wanted:
                await self._tracker.active_since(moves, 3600)
                continue
            try:
                await self.rest()
                if self._is_wanted:
                    await self._skip(explain)
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # also what ends a test from outside, and struck here
                self._break(error)

    @property
    def _is_wanted(self) -> bool:
        asked = self._tracker.waits if not self._locks else ()
        return bool(asked) or any(not each.done() for each in self._sleeps)

    async def rest(self) -> None:
        """Wait until all is at rest: nothing is asked, answered, leased or being delivered."""
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
        await self._due_events.keep_company()
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
        """Time cannot pass: tell all who wait for it, so that none waits for ever."""
        for each in [*self._sleeps, *(wait.given_up for wait in self._tracker.waits)]:
            if not each.done():
                each.set_exception(error)

    def _log_stall(self) -> None:
        if not self._logged_stall:
            self._logged_stall = True
            log.warning(
                "Time stands still: an activity or a call has been running for %g seconds, and holds the clock. "
                "An activity that is to take long in a test sleeps by `env.sleep`.",
                STALL_SECONDS,
            )
