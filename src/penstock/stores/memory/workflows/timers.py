"""Timers; open ones by run and firing time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from penstock.core.model import RunId, Timer, TimerState
from penstock.stores.memory.immutable_columns import immutable_columns
from penstock.stores.memory.tables import MemoryRepository

_immutable_columns = immutable_columns(Timer, changing=("state",))


class MemoryTimers(MemoryRepository):
    async def get(self, timer_id: str) -> Timer | None:
        return self._tables.timers.get(timer_id)

    async def open_of(self, run_id: RunId) -> Sequence[Timer]:
        found = [self._tables.timers[timer_id] for timer_id in self._tables.timers_open.of(run_id)]
        return sorted(found, key=lambda timer: timer.step)

    async def due(self, now_ms: int, limit: int) -> Sequence[str]:
        due = [(at_ms, timer_id) for at_ms, timer_id in self._waiting() if at_ms <= now_ms]
        return [timer_id for _, timer_id in heapq.nsmallest(limit, due)]

    async def next_due_at_ms(self) -> int | None:
        return min((at_ms for at_ms, _ in self._waiting()), default=None)

    def insert(self, timer: Timer) -> None:
        def write() -> None:
            assert timer.timer_id not in self._tables.timers, f"timer {timer.timer_id} exists"
            self._put(timer)

        self._changes.record(write)

    def save(self, timer: Timer) -> None:
        def write() -> None:
            before = self._tables.timers[timer.timer_id]
            assert _immutable_columns(timer) == _immutable_columns(before), (
                "only the state of a timer changes"
            )
            self._put(timer)

        self._changes.save("timer", timer.timer_id, write)

    def _put(self, timer: Timer) -> None:
        self._changes.put(self._tables.timers, timer.timer_id, timer)
        if timer.state is TimerState.OPEN:
            self._changes.add(self._tables.timers_open, timer.run_id, timer.timer_id, timer.fire_at_ms)
        elif timer.timer_id in self._tables.timers_open.of(timer.run_id):
            self._changes.remove(self._tables.timers_open, timer.run_id, timer.timer_id)

    def _waiting(self) -> Iterator[tuple[int, str]]:
        for timers in self._tables.timers_open.groups.values():
            for timer_id, at_ms in timers.items():
                yield at_ms, timer_id
