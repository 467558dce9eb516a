"""Deletes lanes without tasks whose tag is behind virtual time; a new lane would start at the same tag."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import QueueId
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import SLOW_TICK_S, Sweeper
from penstock.ports.store import Tx


def idle_lanes(ctx: EngineContext) -> Sweeper[tuple[QueueId, int, str]]:
    return Sweeper("idle_lanes", ctx, _find, _drop, pause_s=SLOW_TICK_S)


async def _find(ctx: EngineContext, limit: int) -> Sequence[tuple[QueueId, int, str]]:
    return await ctx.store.read(lambda tx: tx.queues.idle_lanes(limit))


async def _drop(ctx: EngineContext, lane: tuple[QueueId, int, str]) -> bool:
    async def operation(tx: Tx) -> bool:
        tx.queues.drop_lane(*lane)
        return True

    return await ctx.store.transact(operation, key=f"lane:{lane[0]}:{lane[1]}:{lane[2]}")
