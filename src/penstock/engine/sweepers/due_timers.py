"""Timers whose moment has come."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine import timers
from penstock.engine.house import House
from penstock.engine.recording import DUE_BELL
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.store import Tx


def due_timers(house: House) -> Sweeper[str]:
    return Sweeper("due_timers", house, _find, timers.fire, next_due_ms=_next, bell=DUE_BELL)


async def _find(house: House, limit: int) -> Sequence[str]:
    async def operation(tx: Tx) -> Sequence[str]:
        return await tx.timers.due(tx.now_ms, limit)

    return await house.store.read(operation)


async def _next(house: House) -> int | None:
    async def operation(tx: Tx) -> int | None:
        due_at_ms = await tx.timers.next_due_at_ms()
        return None if due_at_ms is None else due_at_ms - tx.now_ms

    return await house.store.read(operation)
