"""Applies expired activity timeouts."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import ActivityId
from penstock.engine.activities import activity_reports
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.ports.next_due import Due
from penstock.ports.store import Tx


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
    async def operation(tx: Tx) -> Sequence[ActivityId]:
        return await tx.activities.overdue(tx.now_ms, limit)

    return await ctx.store.read(operation)
