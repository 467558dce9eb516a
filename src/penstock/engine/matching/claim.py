"""Serve the open polls of a queue in one transaction: load, plan, record.

All rules are in `core.scheduling.claim`; this module only does I/O. `one-live-lease` and `cap-never-exceeded` hold
because decision and lease share one commit. Claims do not deadlock because the plan asks for rows in one order.

A commit whose reply is lost may have taken effect. Its leases are known here and nowhere else, so they are passed to
the caller to be handed back; those that were not committed match no row then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.model import QueueId
from penstock.core.scheduling.claim import plan_claim
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.core.scheduling.leases import Sightings
from penstock.core.scheduling.polls import ClaimResult, Granted, Leased, Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching.record import record_plan
from penstock.engine.matching.snapshot import load, load_snapshot
from penstock.errors import Reason, Unavailable
from penstock.ports.store import TransactionClass, Tx


async def claim(
    ctx: EngineContext,
    queue_id: QueueId,
    polls: Sequence[Poll],
    worker_filter: WorkerFilter | None,
    on_unknown_outcome: Callable[[tuple[Leased, ...]], None] | None = None,
    seen: Sightings | None = None,
) -> list[ClaimResult]:
    """Answer the polls, in order of arrival. All are of one queue and kind, and all prefetch or none does.

    Args:
        worker_filter: The filter that these workers are known to share; polls of workers with another one get a
            `Retry` that tells theirs. None: that of the first poll.
        on_unknown_outcome: Receives the leases of a commit that may or may not have taken effect, before the error
            `outcome_unknown` is raised.
        seen: What this server saw of the queue before, recorded with the tasks that are granted.
    """
    results: list[ClaimResult] = []

    async def operation(tx: Tx) -> list[ClaimResult]:
        planning = plan_claim(await load_snapshot(ctx, tx, queue_id, polls, worker_filter))
        rows: Any = None
        while True:
            try:
                need = planning.send(rows)
            except StopIteration as planned:
                results[:] = await record_plan(ctx, tx, planned.value, seen)
                return results
            rows = await load(tx, queue_id, need)

    try:
        return await ctx.store.transact(operation, key=f"queue:{queue_id}", tx_class=TransactionClass.CLAIM)
    except Unavailable as error:
        if error.reason is Reason.OUTCOME_UNKNOWN and on_unknown_outcome is not None:
            granted = (result for result in results if isinstance(result, Granted))
            on_unknown_outcome(tuple(leased for result in granted for leased in result.leased))
        raise
