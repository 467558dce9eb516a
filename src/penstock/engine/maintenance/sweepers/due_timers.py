"""Fires due timers and due schedules."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.schedules import fires
from penstock.engine.workflows import timers
from penstock.ports.tables.next_due import Due


def due_timers(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("due_timers", ctx, _find_timers, timers.fire, awaits=Due.TIMER, prompt=True)


def due_schedules(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("due_schedules", ctx, _find_schedules, fires.fire_due, awaits=Due.SCHEDULE, prompt=True)


async def _find_timers(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.timers.due(tx.now_ms, limit))


async def _find_schedules(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.schedules.due(tx.now_ms, limit))
