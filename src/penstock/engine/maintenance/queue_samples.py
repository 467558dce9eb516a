"""Takes samples of queues for charts, once per step over all servers."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.series.samples import FINE
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.visibility import queue_series, start_reports


def queue_samples(ctx: EngineContext) -> Sweeper[int]:
    return Sweeper("queue_samples", ctx, _find, queue_series.take_samples, pause_s=float(FINE.step_s))


async def _find(ctx: EngineContext, _limit: int) -> Sequence[int]:
    await start_reports.judge_overdue(ctx)
    step = await queue_series.next_step(ctx)
    return () if step is None else (step,)
