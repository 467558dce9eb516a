"""The common beat of all sweepers: look for what is due, do it, sleep until something may be due again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

import structlog
from msgspec import Struct

from penstock.engine.house import House
from penstock.errors import PenstockError
from penstock.ports.wakeups import Bell

K = TypeVar("K", bound=Hashable)
BATCH = 256
BEAT_S = 0.5
SLOW_BEAT_S = 3.0
"""Of duties that nobody waits for: they only take away what is not needed any more."""
STUCK_S_MAX = 60.0
STUCK_MAX = 10 * BATCH
log = structlog.get_logger("penstock.sweeper")


class _Stuck(Struct, frozen=True):
    times: int
    until: float


class Sweeper(Generic[K]):
    """Runs one duty until it is stopped; a duty that fails is tried again at the next beat."""

    def __init__(
        self,
        name: str,
        house: House,
        find: Callable[[House, int], Awaitable[Sequence[K]]],
        mend: Callable[[House, K], Awaitable[bool]],
        *,
        next_due_ms: Callable[[House], Awaitable[int | None]] | None = None,
        bell: Bell | None = None,
        patient: bool = False,
        beat_s: float | None = None,
    ) -> None:
        self.name = name
        self._house = house
        self._find = find
        self._mend = mend
        self._next_due_ms = next_due_ms
        self._bell = bell
        self._beat_s = beat_s
        self._patient = patient
        """Whether it takes nothing back right after a standstill: workers are heard first."""
        self._listening = False
        self._changed = asyncio.Event()
        self._stuck: dict[K, _Stuck] = {}
        """What could not be mended, so that it is stepped over for a while: it must not hold up what comes after."""

    async def run(self) -> None:
        silence = self._house.wakeups.listen(self._bell, self._changed.set) if self._bell else None
        try:
            while True:
                self._changed.clear()
                full = await self.sweep_safely()
                if not full:
                    await self._rest()
        finally:
            if silence is not None:
                silence()

    async def sweep_safely(self) -> bool:
        try:
            return await self.sweep() >= BATCH
        except PenstockError as error:
            log.warning("sweep failed; trying again", sweeper=self.name, reason=error.reason.value)
        except Exception:
            log.exception("sweep failed; trying again", sweeper=self.name)
        return False

    async def sweep(self) -> int:
        """Do what is due now; returns how much was found, or 0 if none of it could be done yet."""
        found = await self._find(self._house, BATCH + len(self._stuck))
        if self._patient and self._must_listen_first():
            return 0
        due = self._not_stuck(found)
        results = await asyncio.gather(
            *(self._mend(self._house, each) for each in due), return_exceptions=True
        )
        for each, outcome in zip(due, results, strict=True):
            self._note(each, outcome)
        return 0 if all(outcome is False for outcome in results) else len(due)

    def _not_stuck(self, found: Sequence[K]) -> list[K]:
        now = asyncio.get_running_loop().time()
        self._stuck = {each: self._stuck[each] for each in found if each in self._stuck}
        return [each for each in found if each not in self._stuck or self._stuck[each].until <= now]

    def _note(self, each: K, outcome: bool | BaseException) -> None:
        if not isinstance(outcome, BaseException):
            self._stuck.pop(each, None)
            return
        times = self._stuck[each].times + 1 if each in self._stuck else 1
        log.warning("could not mend one", sweeper=self.name, times=times, error=repr(outcome))
        if each in self._stuck or len(self._stuck) < STUCK_MAX:
            pause = min(STUCK_S_MAX, BEAT_S * 2 ** min(times, 10))
            self._stuck[each] = _Stuck(times, asyncio.get_running_loop().time() + pause)

    def _must_listen_first(self) -> bool:
        standstill = self._house.standstill
        standstill.looked()
        excused_ms = standstill.excused_ms
        if excused_ms and not self._listening:
            log.warning("stood still; hearing workers before taking back", sweeper=self.name, ms=excused_ms)
        self._listening = excused_ms > 0
        return self._listening

    async def _rest(self) -> None:
        """Until the next beat, or until what is known to be due next.

        Beats of all sweepers fall together, so that what they look for can be looked for together.
        """
        beat = BEAT_S if self._beat_s is None else self._beat_s
        left_ms = None if self._next_due_ms is None else await self._until_next_ms()
        pause = beat - asyncio.get_running_loop().time() % beat if beat else 0.0
        if left_ms is not None:
            pause = min(pause, max(0.0, left_ms / 1000))
        if self._stuck:
            pause = beat  # what is due cannot be mended: it must not be looked at all the time
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause + 0.001):
                await self._changed.wait()

    async def _until_next_ms(self) -> int | None:
        assert self._next_due_ms is not None
        try:
            return await self._next_due_ms(self._house)
        except Exception as error:
            log.warning("cannot see what is due next", sweeper=self.name, error=repr(error))
            return None
