"""Streams that were closed for longer than their writers want them kept."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import RunId
from penstock.engine import streams
from penstock.engine.house import House
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.outlook import Due
from penstock.ports.store import Tx


def expired_streams(house: House) -> Sweeper[tuple[RunId, str]]:
    return Sweeper("expired_streams", house, _find, streams.forget, awaits=Due.STREAM)


async def _find(house: House, limit: int) -> Sequence[tuple[RunId, str]]:
    async def operation(tx: Tx) -> Sequence[tuple[RunId, str]]:
        return await tx.streams.expired(tx.now_ms, limit)

    return await house.store.read(operation)
