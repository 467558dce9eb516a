"""Reclaims expired leases, at most one tick after their end."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import TaskId
from penstock.engine.activities import activity_reports
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.workflows import workflow_reports
from penstock.ports.tables.next_due import Due


def expired_leases(ctx: EngineContext) -> Sweeper[TaskId]:
    return Sweeper("expired_leases", ctx, _find, _reclaim, awaits=Due.LEASE, patient=True)


async def _find(ctx: EngineContext, limit: int) -> Sequence[TaskId]:
    return await ctx.store.read(lambda tx: tx.tasks.expired(tx.now_ms, limit))


async def _reclaim(ctx: EngineContext, task_id: TaskId) -> bool:
    return await workflow_reports.reclaim(ctx, task_id) or await activity_reports.reclaim(ctx, task_id)
