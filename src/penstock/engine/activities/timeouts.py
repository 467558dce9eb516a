"""Enforcing activity timeouts on request: what the sweeper does, immediately and with a result per activity."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.model import ActivityId
from penstock.engine.activities import activity_reports
from penstock.engine.context import EngineContext
from penstock.errors import PenstockError
from penstock.ports.store import Tx


class TimedOut(Struct, frozen=True):
    """The result for one activity: `enforced`, `skipped` or `error`."""

    activity_id: str
    outcome: str
    has_retry: bool | None = None
    reason: str | None = None


async def overdue(ctx: EngineContext, namespace: str, limit: int) -> tuple[Sequence[ActivityId], bool]:
    """Up to `limit` activities with an expired timeout, and whether there are more."""

    found = await ctx.store.read(
        lambda tx: tx.namespace_stats.overdue_activities(namespace, tx.now_ms, limit + 1)
    )
    return found[:limit], len(found) > limit


async def time_out_all(
    ctx: EngineContext, namespace: str, limit: int, named: Sequence[str] | None = None
) -> list[TimedOut]:
    """Enforce the timeouts of the named activities, or of up to `limit` overdue ones."""
    ids = (await overdue(ctx, namespace, limit))[0] if named is None else named
    return [await _enforce(ctx, namespace, ActivityId(each)) for each in dict.fromkeys(ids)]


async def _enforce(ctx: EngineContext, namespace: str, activity_id: ActivityId) -> TimedOut:
    if not await _is_of(ctx, namespace, activity_id):
        return TimedOut(activity_id, "skipped", reason="activity_not_found")
    try:
        if not await activity_reports.time_out(ctx, activity_id):
            return TimedOut(activity_id, "skipped", reason="not_overdue")
    except PenstockError as error:
        return TimedOut(activity_id, "error", reason=error.message)
    return TimedOut(activity_id, "enforced", has_retry=await _is_open(ctx, activity_id))


async def _is_of(ctx: EngineContext, namespace: str, activity_id: ActivityId) -> bool:
    async def operation(tx: Tx) -> bool:
        activity = await tx.activities.get(activity_id)
        run = None if activity is None else await tx.runs.get(activity.run_id)
        return run is not None and run.namespace == namespace

    return await ctx.store.read(operation)


async def _is_open(ctx: EngineContext, activity_id: ActivityId) -> bool:
    async def operation(tx: Tx) -> bool:
        activity = await tx.activities.get(activity_id)
        return activity is not None and activity.status.is_open

    return await ctx.store.read(operation)
