"""Applies expired activity timeouts."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import ActivityId
from penstock.engine.activities import activity_reports
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.ports.tables.next_due import Due


def overdue_activities(ctx: EngineContext) -> Sweeper[ActivityId]:
    """Prompt, so that no task is granted after its schedule-to-start timeout."""
    return Sweeper(
        "overdue_activities",
        ctx,
        _find,
        activity_reports.time_out,
        awaits=Due.ACTIVITY,
        prompt=True,
        patient=True,
    )


async def _find(ctx: EngineContext, limit: int) -> Sequence[ActivityId]:
    return await ctx.store.read(lambda tx: tx.activities.overdue(tx.now_ms, limit))
