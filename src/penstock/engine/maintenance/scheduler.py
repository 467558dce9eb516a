"""The common look of all duties: one read says what is due soon, and those whose work it is are called in time.

The look is repeated at every beat, so that a change that nobody rang for (by another server, by a changed clock) is
seen as soon as if every duty had looked by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import BATCH, TICK_S, Sweeper
from penstock.engine.runs.history_writer import DUE_TOPIC
from penstock.engine.runtime.ticks import until_tick_s
from penstock.errors import PenstockError
from penstock.ports.next_due import Due
from penstock.ports.store import Tx

SIGHT_MS = 2_000
"""How far a look sees: beyond the next beat, also when that is late."""
log = structlog.get_logger("penstock.sweeper")


class SweeperScheduler:
    """Has duties carried out until it is cancelled."""

    def __init__(self, ctx: EngineContext, sweepers: Sequence[Sweeper[Any]]) -> None:
        self._ctx = ctx
        self._calls = {each: asyncio.Event() for each in sweepers}
        self._asked = asyncio.Event()
        """Whether to look before the next beat: something new may be due soon."""
        self._alarms: list[asyncio.TimerHandle] = []

    async def run(self) -> None:
        with contextlib.ExitStack() as hearing:
            hearing.callback(self._ctx.wakeups.listen(DUE_TOPIC, self._asked.set))
            hearing.callback(self._cancel_alarms)
            for sweeper, call in self._calls.items():
                if sweeper.topic is not None:
                    hearing.callback(self._ctx.wakeups.listen(sweeper.topic, call.set))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look_forever(), name="watch")
                for sweeper, call in self._calls.items():
                    group.create_task(self._attend(sweeper, call), name=sweeper.name)

    async def _attend(self, sweeper: Sweeper[Any], call: asyncio.Event) -> None:
        """Carry out a duty whenever it is called, and go on as long as there is more than fits in one sweep."""
        while True:
            call.clear()
            done = await sweeper.try_sweep()
            if done >= BATCH:
                continue
            if done and sweeper.prompt:
                self._asked.set()
            pause_s = sweeper.pause_s
            await _within(call, None if pause_s is None else until_tick_s(pause_s))

    async def _look_forever(self) -> None:
        while True:
            self._asked.clear()
            await self._look()
            await _within(self._asked, until_tick_s(TICK_S))

    async def _look(self) -> None:
        async def operation(tx: Tx) -> tuple[int, Mapping[Due, int]]:
            return tx.now_ms, await tx.next_due.until(tx.now_ms + SIGHT_MS)

        try:
            now_ms, moments = await self._ctx.store.read(operation)
        except PenstockError as error:
            log.warning("cannot see what is due; trying again", reason=error.reason.value)
            return
        except Exception:
            log.exception("cannot see what is due; trying again")
            return
        self._ctx.stall_detector.looked()
        self._set_alarms(now_ms, moments)

    def _set_alarms(self, now_ms: int, moments: Mapping[Due, int]) -> None:
        """Call each duty for which something is due; prompt ones in time for what will be."""
        self._cancel_alarms()
        loop = asyncio.get_running_loop()
        for sweeper, call in self._calls.items():
            moment = None if sweeper.awaits is None else moments.get(sweeper.awaits)
            if moment is None:
                continue
            if moment <= now_ms:
                call.set()
            elif sweeper.prompt:
                self._alarms.append(loop.call_later((moment - now_ms) / 1000, call.set))

    def _cancel_alarms(self) -> None:
        for alarm in self._alarms:
            alarm.cancel()
        self._alarms.clear()


async def _within(event: asyncio.Event, seconds: float | None) -> None:
    """Until the event is set, or so much time has passed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
