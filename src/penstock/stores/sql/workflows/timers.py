"""Timers in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.model import RunId, Timer, TimerState
from penstock.stores.sql.session import Repository, Row


class SqlTimers(Repository):
    async def get(self, timer_id: str) -> Timer | None:
        rows = await self._session.fetch("get_timer", timer_id)
        return _timer(rows[0]) if rows else None

    async def open_of(self, run_id: RunId) -> Sequence[Timer]:
        return [_timer(row) for row in await self._session.fetch("open_timers", run_id)]

    async def due(self, now_ms: int, limit: int) -> Sequence[str]:
        return [row[1] for row in await self._session.fetch("due_timers", now_ms, limit)]

    async def next_due_at_ms(self) -> int | None:
        rows = await self._session.fetch("next_timer")
        return None if rows[0][1] is None else int(rows[0][1])

    def insert(self, timer: Timer) -> None:
        self._session.record("insert_timer", *astuple(timer))

    def save(self, timer: Timer) -> None:
        self._session.record("save_timer", timer.timer_id, timer.state)


def _timer(row: Row) -> Timer:
    return Timer(row[1], row[2], row[3], row[4], row[5], row[6], TimerState(row[7]))
