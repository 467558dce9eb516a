"""Rows of keys that run nothing, owe nothing and have no settings: forgetting them changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import QueueId
from penstock.engine.house import House
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.store import Tx


def idle_keys(house: House) -> Sweeper[tuple[QueueId, str]]:
    return Sweeper("idle_keys", house, _find, _mend)


async def _find(house: House, limit: int) -> Sequence[tuple[QueueId, str]]:
    async def operation(tx: Tx) -> Sequence[tuple[QueueId, str]]:
        return await tx.policies.idle_keys(tx.now_ms, limit)

    return await house.store.read(operation)


async def _mend(house: House, key: tuple[QueueId, str]) -> bool:
    async def operation(tx: Tx) -> bool:
        if await tx.queues.lock(key[0]) is not None:
            tx.policies.drop_key(*key)
        return True

    return await house.store.transact(operation, key=f"key:{key[0]}:{key[1]}")
