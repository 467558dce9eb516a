"""Serve the open polls of a queue in one transaction: load, plan, record.

All rules are in `core.scheduling.claim`; this module only does I/O. `one-live-lease` and `cap-never-exceeded` hold
because decision and lease share one commit. Claims do not deadlock because the plan asks for rows in one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.model import QueueId
from penstock.core.scheduling.claim import plan_claim
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.core.scheduling.polls import ClaimResult, Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching.record import record_plan
from penstock.engine.matching.snapshot import load, load_snapshot
from penstock.ports.store import TransactionClass, Tx


async def claim(
    ctx: EngineContext, queue_id: QueueId, polls: Sequence[Poll], worker_filter: WorkerFilter | None
) -> list[ClaimResult]:
    """Answer the polls, in order of arrival. All are of one queue and kind, and all prefetch or none does.

    Args:
        worker_filter: The filter that these workers are known to share; polls of workers with another one get a
            `Retry` that tells theirs. None: that of the first poll.
    """

    async def operation(tx: Tx) -> list[ClaimResult]:
        planning = plan_claim(await load_snapshot(ctx, tx, queue_id, polls, worker_filter))
        rows: Any = None
        while True:
            try:
                need = planning.send(rows)
            except StopIteration as planned:
                return await record_plan(ctx, tx, planned.value)
            rows = await load(tx, queue_id, need)

    return await ctx.store.transact(operation, key=f"queue:{queue_id}", tx_class=TransactionClass.CLAIM)
