"""Deletes streams past their retention."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import RunId
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.messaging import streams
from penstock.ports.tables.next_due import Due


def expired_streams(ctx: EngineContext) -> Sweeper[tuple[RunId, str]]:
    return Sweeper("expired_streams", ctx, _find, streams.forget, awaits=Due.STREAM)


async def _find(ctx: EngineContext, limit: int) -> Sequence[tuple[RunId, str]]:
    return await ctx.store.read(lambda tx: tx.streams.expired(tx.now_ms, limit))
