"""What happens at appointed times: timers and schedules fire, change sets of limits are applied and end.

Schedules are also recomputed after an upgrade of zone data.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.engine.limits import change_sets
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.maintenance.throttle import Throttle
from penstock.engine.schedules import fires, zone_upgrades, zones
from penstock.engine.workflows import timers
from penstock.ports.tables.next_due import Due


def due_timers(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("due_timers", ctx, _find_timers, timers.fire, awaits=Due.TIMER, prompt=True)


def due_schedules(ctx: EngineContext) -> Sweeper[str]:
    """Fires due schedules, in portions: many may be due at the same moment."""
    upkeep = ctx.upkeep
    return Sweeper(
        "due_schedules",
        ctx,
        _find_schedules,
        fires.fire_due,
        awaits=Due.SCHEDULE,
        prompt=True,
        throttle=Throttle(ctx.store, lambda: upkeep.fires_started + upkeep.fires_not_started),
    )


def due_change_sets(ctx: EngineContext) -> Sweeper[str]:
    """Applies scheduled change sets, and ends those whose time is over."""
    return Sweeper(
        "due_change_sets",
        ctx,
        _find_change_sets,
        change_sets.act_when_due,
        awaits=Due.CHANGE_SET,
        prompt=True,
    )


def outdated_schedules(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("outdated_schedules", ctx, zone_upgrades.find, zone_upgrades.recompute)


async def _find_timers(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.timers.due(tx.now_ms, limit))


async def _find_schedules(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.schedules.due(tx.now_ms, zones.VERSION, limit))


async def _find_change_sets(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.change_sets.due(tx.now_ms, limit))
