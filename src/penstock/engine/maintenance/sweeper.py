"""One duty: look for what is due, do it, and step over what cannot be done now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

import structlog
from msgspec import Struct

from penstock.engine.context import EngineContext
from penstock.errors import PenstockError
from penstock.ports.next_due import Due
from penstock.ports.wakeups import Topic

K = TypeVar("K", bound=Hashable)
BATCH = 256
TICK_S = 0.5
SLOW_TICK_S = 3.0
"""Of duties that nobody waits for: they only take away what is not needed any more."""
LAZY_TICK_S = 15.0
"""Of duties for which there is seldom anything to do."""
STUCK_S_MAX = 60.0
STUCK_MAX = 10 * BATCH
log = structlog.get_logger("penstock.sweeper")


class _Stuck(Struct, frozen=True):
    times: int
    until: float


class Sweeper(Generic[K]):
    """A duty; if it fails it is tried again.

    It is carried out when something that it `awaits` is due and when its `topic` rings; or, if it awaits nothing,
    whenever its pause is over.
    """

    def __init__(
        self,
        name: str,
        ctx: EngineContext,
        find: Callable[[EngineContext, int], Awaitable[Sequence[K]]],
        mend: Callable[[EngineContext, K], Awaitable[bool]],
        *,
        awaits: Due | None = None,
        topic: Topic | None = None,
        prompt: bool = False,
        patient: bool = False,
        pause_s: Callable[[], float] | float = LAZY_TICK_S,
    ) -> None:
        self.name = name
        self.awaits = awaits
        self.topic = topic
        self.prompt = prompt
        """Whether it is called at the very moment, and not at the next beat."""
        self._ctx = ctx
        self._find = find
        self._mend = mend
        self._pause_s = pause_s
        self._patient = patient
        """Whether it takes nothing back right after a standstill: workers are heard first."""
        self._listening = False
        self._stuck: dict[K, _Stuck] = {}
        """What could not be mended, so that it is stepped over for a while: it must not hold up what comes after."""

    @property
    def pause_s(self) -> float | None:
        """How long it rests when it has done what there was; None: until it is called."""
        if self.awaits is not None:
            return None
        pause_s = self._pause_s() if callable(self._pause_s) else self._pause_s
        return max(pause_s, TICK_S) if self._stuck else pause_s

    async def try_sweep(self) -> int:
        """Do what is due now; a failure counts as nothing found."""
        try:
            return await self.sweep()
        except PenstockError as error:
            log.warning("sweep failed; trying again", sweeper=self.name, reason=error.reason.value)
        except Exception:
            log.exception("sweep failed; trying again", sweeper=self.name)
        return 0

    async def sweep(self) -> int:
        """Do what is due now; returns how much was found, or 0 if none of it could be done yet."""
        found = await self._find(self._ctx, BATCH + len(self._stuck))
        if self._patient and self._in_grace_period():
            return 0
        due = self._not_stuck(found)
        results = await asyncio.gather(*(self._mend(self._ctx, each) for each in due), return_exceptions=True)
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
            pause = min(STUCK_S_MAX, TICK_S * 2 ** min(times, 10))
            self._stuck[each] = _Stuck(times, asyncio.get_running_loop().time() + pause)

    def _in_grace_period(self) -> bool:
        stall_detector = self._ctx.stall_detector
        stall_detector.looked()
        lease_grace_ms = stall_detector.lease_grace_ms
        if lease_grace_ms and not self._listening:
            log.warning(
                "stood still; hearing workers before taking back", sweeper=self.name, ms=lease_grace_ms
            )
        self._listening = lease_grace_ms > 0
        return self._listening
