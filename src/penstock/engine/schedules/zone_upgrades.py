"""Zone data by version: schedules of older data are recomputed, and a server with older data says so."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from penstock.engine.context import EngineContext
from penstock.engine.schedules import zones
from penstock.engine.schedules.locked_schedule import LockedSchedule
from penstock.ports.store import Tx

log = structlog.get_logger("penstock.schedules")


async def newest(ctx: EngineContext) -> str | None:
    """The newest zone data in use, if this server's are older; it then leaves those schedules to other servers."""
    return await ctx.store.read(lambda tx: tx.schedules.newer_zone_data(zones.VERSION))


async def find(ctx: EngineContext, limit: int) -> Sequence[str]:
    """Schedules of older zone data. Logs if this server's are older than those in use."""
    found = await newest(ctx)
    if found is not None and ctx.upkeep.newer_zone_data != found:
        log.warning(
            "zone data are outdated: schedules in time zones are left to other servers; upgrade tzdata here",
            zone_data_version=zones.VERSION,
            newest_zone_data_version=found,
        )
    ctx.upkeep.newer_zone_data = found
    return await ctx.store.read(lambda tx: tx.schedules.of_older_zone_data(zones.VERSION, limit))


async def recompute(ctx: EngineContext, schedule_key: str) -> bool:
    """Compute the next moment of a schedule from this server's zone data; False if another server has."""

    async def operation(tx: Tx) -> bool:
        record = await tx.schedules.lock(schedule_key)
        if record is None or not record.is_active or not zones.is_older(record):
            return False
        schedule = LockedSchedule(ctx, tx, record)
        schedule.apply_zone_data()
        schedule.save()
        return True

    return await ctx.store.transact(operation, key=schedule_key)
