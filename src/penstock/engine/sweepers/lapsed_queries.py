"""Questions whose caller or worker has gone."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine import desk
from penstock.engine.house import House
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.outlook import Due
from penstock.ports.store import Tx


def lapsed_queries(house: House) -> Sweeper[str]:
    return Sweeper("lapsed_queries", house, _find, desk.mend, awaits=Due.QUERY)


async def _find(house: House, limit: int) -> Sequence[str]:
    async def operation(tx: Tx) -> Sequence[str]:
        return await tx.queries.lapsed(tx.now_ms, limit)

    return await house.store.read(operation)
