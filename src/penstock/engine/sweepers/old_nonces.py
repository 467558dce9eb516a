"""Nonces of signed requests whose window has passed."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.house import House
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.store import Tx


def old_nonces(house: House) -> Sweeper[int]:
    return Sweeper("old_nonces", house, _find, _mend)


async def _find(house: House, limit: int) -> Sequence[int]:
    async def operation(tx: Tx) -> Sequence[int]:
        return [tx.now_ms] if await tx.nonces.any_expired(tx.now_ms) else []

    return await house.store.read(operation)


async def _mend(house: House, before_ms: int) -> bool:
    async def operation(tx: Tx) -> bool:
        tx.nonces.forget(before_ms)
        return True

    return await house.store.transact(operation, key="nonces")
