"""A sweeper: finds due items of one kind, handles each, and skips those that fail with exponential backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

import structlog
from msgspec import Struct

from penstock.engine.context import EngineContext
from penstock.engine.maintenance.throttle import Throttle
from penstock.errors import PenstockError
from penstock.ports.tables.next_due import Due
from penstock.ports.wakeups import Topic

K = TypeVar("K", bound=Hashable)
BATCH = 256
TICK_S = 0.5
SLOW_TICK_S = 3.0
"""For sweepers that only delete what is no longer needed."""
LAZY_TICK_S = 15.0
"""For sweepers that rarely find something."""
STUCK_S_MAX = 60.0
STUCK_MAX = 10 * BATCH
log = structlog.get_logger("penstock.sweeper")


class _Stuck(Struct, frozen=True):
    times: int
    until: float


class Sweeper(Generic[K]):
    """Handles due items of one kind.

    It is run when something that it `awaits` is due and when its `topic` is notified; if it awaits nothing, whenever
    its pause is over.
    """

    def __init__(
        self,
        name: str,
        ctx: EngineContext,
        find: Callable[[EngineContext, int], Awaitable[Sequence[K]]],
        handle: Callable[[EngineContext, K], Awaitable[bool]],
        *,
        awaits: Due | None = None,
        topic: Topic | None = None,
        prompt: bool = False,
        patient: bool = False,
        pause_s: Callable[[], float] | float = LAZY_TICK_S,
        throttle: Throttle | None = None,
    ) -> None:
        self.name = name
        self.awaits = awaits
        self.topic = topic
        self.prompt = prompt
        """Whether it is run at the exact due time rather than at the next tick."""
        self._ctx = ctx
        self._find = find
        self._handle = handle
        self._pause_s = pause_s
        self._patient = patient
        """Whether it pauses during the grace period after a stall, so that workers can report first."""
        self._throttle = throttle
        """Divides what is due into portions; without one, all of it is handled at once."""
        self._in_grace = False
        self._stuck: dict[K, _Stuck] = {}
        """Items that failed, with their backoff: they must not block the items after them."""

    @property
    def pause_s(self) -> float | None:
        """The pause after a sweep; None: until it is woken."""
        if self.awaits is not None:
            return None
        pause_s = self._pause_s() if callable(self._pause_s) else self._pause_s
        return max(pause_s, TICK_S) if self._stuck else pause_s

    async def try_sweep(self) -> int:
        """Sweep once; log a failure and return 0."""
        try:
            return await self.sweep()
        except PenstockError as error:
            log.warning("sweep failed; trying again", sweeper=self.name, reason=error.reason.value)
        except Exception:
            log.exception("sweep failed; trying again", sweeper=self.name)
        return 0

    async def sweep(self) -> int:
        """Handle what is due; returns the number of items, or 0 if none of them could be handled yet."""
        found = await self._find(self._ctx, BATCH + len(self._stuck))
        if self._patient and self._in_grace_period():
            return 0
        due = self._not_stuck(found)
        if self._throttle is None:
            results = await self._handle_all(due)
        else:
            results = [
                outcome
                async for portion in self._throttle.portions(due)
                for outcome in await self._handle_all(portion)
            ]
        return 0 if all(outcome is False for outcome in results) else len(due)

    async def _handle_all(self, due: Sequence[K]) -> Sequence[bool | BaseException]:
        results = await asyncio.gather(
            *(self._handle(self._ctx, each) for each in due), return_exceptions=True
        )
        for each, outcome in zip(due, results, strict=True):
            self._note(each, outcome)
        return results

    def _not_stuck(self, found: Sequence[K]) -> list[K]:
        now = asyncio.get_running_loop().time()
        self._stuck = {each: self._stuck[each] for each in found if each in self._stuck}
        return [each for each in found if each not in self._stuck or self._stuck[each].until <= now]

    def _note(self, each: K, outcome: bool | BaseException) -> None:
        if not isinstance(outcome, BaseException):
            self._stuck.pop(each, None)
            return
        times = self._stuck[each].times + 1 if each in self._stuck else 1
        log.warning("an item failed; retrying later", sweeper=self.name, times=times, error=repr(outcome))
        if each in self._stuck or len(self._stuck) < STUCK_MAX:
            pause = min(STUCK_S_MAX, TICK_S * 2 ** min(times, 10))
            self._stuck[each] = _Stuck(times, asyncio.get_running_loop().time() + pause)

    def _in_grace_period(self) -> bool:
        stall_detector = self._ctx.stall_detector
        stall_detector.record_read()
        lease_grace_ms = stall_detector.lease_grace_ms
        if lease_grace_ms and not self._in_grace:
            log.warning(
                "stalled; letting workers report before reclaiming", sweeper=self.name, ms=lease_grace_ms
            )
        self._in_grace = lease_grace_ms > 0
        return self._in_grace
