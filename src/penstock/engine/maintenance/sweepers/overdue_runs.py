"""Closes runs whose execution or run timeout has expired."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import RunId
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.workflows import run_close
from penstock.ports.tables.next_due import Due


def overdue_runs(ctx: EngineContext) -> Sweeper[RunId]:
    return Sweeper("overdue_runs", ctx, _find, run_close.expire_run, awaits=Due.RUN)


async def _find(ctx: EngineContext, limit: int) -> Sequence[RunId]:
    return await ctx.store.read(lambda tx: tx.runs.overdue(tx.now_ms, limit))
