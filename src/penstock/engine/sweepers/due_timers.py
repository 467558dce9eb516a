"""Timers whose moment has come."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine import timers
from penstock.engine.house import House
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.outlook import Due
from penstock.ports.store import Tx


def due_timers(house: House) -> Sweeper[str]:
    return Sweeper("due_timers", house, _find, timers.fire, awaits=Due.TIMER, prompt=True)


async def _find(house: House, limit: int) -> Sequence[str]:
    async def operation(tx: Tx) -> Sequence[str]:
        return await tx.timers.due(tx.now_ms, limit)

    return await house.store.read(operation)
