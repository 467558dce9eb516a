"""Fires due timers."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.workflows import timers
from penstock.ports.tables.next_due import Due


def due_timers(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("due_timers", ctx, _find, timers.fire, awaits=Due.TIMER, prompt=True)


async def _find(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.timers.due(tx.now_ms, limit))
