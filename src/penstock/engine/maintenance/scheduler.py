"""Schedules all sweepers with one read per tick, which returns the next due time of every kind of item.

The read is repeated at every tick, so that changes without a notification (by another server, or a clock change) are
seen as early as if every sweeper polled by itself. An idle server runs one query per tick instead of fifteen.
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
from penstock.ports.store import Tx
from penstock.ports.tables.next_due import Due

LOOKAHEAD_MS = 2_000
"""How far the read looks ahead: beyond the next tick, even if that is late."""
log = structlog.get_logger("penstock.sweeper")


class SweeperScheduler:
    """Runs sweepers until it is cancelled."""

    def __init__(self, ctx: EngineContext, sweepers: Sequence[Sweeper[Any]]) -> None:
        self._ctx = ctx
        self._calls = {each: asyncio.Event() for each in sweepers}
        self._read_now = asyncio.Event()
        """Set to read before the next tick, because something new may be due soon."""
        self._alarms: list[asyncio.TimerHandle] = []

    async def run(self) -> None:
        with contextlib.ExitStack() as hearing:
            hearing.callback(self._ctx.wakeups.listen(DUE_TOPIC, self._read_now.set))
            hearing.callback(self._cancel_alarms)
            for sweeper, call in self._calls.items():
                if sweeper.topic is not None:
                    hearing.callback(self._ctx.wakeups.listen(sweeper.topic, call.set))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_due_times(), name="watch")
                for sweeper, call in self._calls.items():
                    group.create_task(self._run_sweeper(sweeper, call), name=sweeper.name)

    async def _run_sweeper(self, sweeper: Sweeper[Any], call: asyncio.Event) -> None:
        """Sweep whenever woken, and repeat while a sweep finds a full batch."""
        while True:
            call.clear()
            done = await sweeper.try_sweep()
            if done >= BATCH:
                continue
            if done and sweeper.prompt:
                self._read_now.set()
            pause_s = sweeper.pause_s
            await _wait(call, None if pause_s is None else until_tick_s(pause_s))

    async def _watch_due_times(self) -> None:
        while True:
            self._read_now.clear()
            await self._read_due_times()
            await _wait(self._read_now, until_tick_s(TICK_S))

    async def _read_due_times(self) -> None:
        async def operation(tx: Tx) -> tuple[int, Mapping[Due, int]]:
            return tx.now_ms, await tx.next_due.until(tx.now_ms + LOOKAHEAD_MS)

        try:
            now_ms, moments = await self._ctx.store.read(operation)
        except PenstockError as error:
            log.warning("cannot read what is due; retrying", reason=error.reason.value)
            return
        except Exception:
            log.exception("cannot read what is due; retrying")
            return
        self._ctx.stall_detector.record_read()
        self._set_alarms(now_ms, moments)

    def _set_alarms(self, now_ms: int, moments: Mapping[Due, int]) -> None:
        """Wake each sweeper for which something is due; prompt ones also at future due times."""
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


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, at most `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
