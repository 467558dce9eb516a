"""Runs whose execution or run timeout has passed."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import RunId
from penstock.engine import closing
from penstock.engine.house import House
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.outlook import Due
from penstock.ports.store import Tx


def overdue_runs(house: House) -> Sweeper[RunId]:
    return Sweeper("overdue_runs", house, _find, closing.expire_run, awaits=Due.RUN)


async def _find(house: House, limit: int) -> Sequence[RunId]:
    async def operation(tx: Tx) -> Sequence[RunId]:
        return await tx.runs.overdue(tx.now_ms, limit)

    return await house.store.read(operation)
