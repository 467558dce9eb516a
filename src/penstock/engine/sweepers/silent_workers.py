"""Workers that were not heard for a long time: their registrations go, and what they held waits again."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine import workers
from penstock.engine.house import House
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.errors import NotFound
from penstock.ports.store import Tx

KEPT_MS = 7 * 24 * 3_600_000
"""A week: an SDK that finds its registration gone does not register again, so nobody may be forgotten early."""


def silent_workers(house: House) -> Sweeper[tuple[str, str]]:
    return Sweeper("silent_workers", house, _find, _mend)


async def _find(house: House, limit: int) -> Sequence[tuple[str, str]]:
    async def operation(tx: Tx) -> Sequence[tuple[str, str]]:
        return await tx.workers.silent(tx.now_ms - KEPT_MS, limit)

    return await house.store.read(operation)


async def _mend(house: House, name: tuple[str, str]) -> bool:
    try:
        await workers.deregister(house, *name)
    except NotFound:
        return False
    return True
