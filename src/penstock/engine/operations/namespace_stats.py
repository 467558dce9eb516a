"""Statistics of a namespace for operators. Counts are exact up to a bound, and marked when they exceed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from penstock.core.model import QueueStats, TaskKind, WorkerRecord
from penstock.core.operations.run_counts import ClosedRuns, FailingType, OpenRuns
from penstock.engine.context import EngineContext
from penstock.engine.workflows import run_repair
from penstock.ports.gather import gather
from penstock.ports.store import Tx

COUNTED_MAX: Final = 10_000
OVERDUE_MAX: Final = 1_000


class NamespaceCounts(Struct, frozen=True):
    """Runs, tasks and workers of a namespace."""

    now_ms: int
    open_runs: OpenRuns
    closed_runs: ClosedRuns
    workflow_tasks: QueueStats
    activity_tasks: QueueStats
    overdue_activities: int
    stranded_runs: int
    workers: Sequence[WorkerRecord]


class NamespaceHealth(Struct, frozen=True):
    """Workflow types whose tasks fail repeatedly."""

    now_ms: int
    failing: Sequence[FailingType]
    truncated: bool


async def stats(ctx: EngineContext, namespace: str) -> NamespaceCounts:
    stranded = await run_repair.candidates(ctx, namespace, OVERDUE_MAX)

    async def operation(tx: Tx) -> NamespaceCounts:
        (open_runs, closed_runs), totals, (overdue, workers) = await gather(
            gather(
                tx.namespace_stats.open_runs(namespace, COUNTED_MAX),
                tx.namespace_stats.closed_runs(namespace, COUNTED_MAX),
            ),
            _totals(tx, namespace),
            gather(
                tx.namespace_stats.overdue_activities(namespace, tx.now_ms, OVERDUE_MAX),
                tx.workers.list(namespace, None),
            ),
        )
        return NamespaceCounts(
            tx.now_ms,
            open_runs,
            closed_runs,
            totals[TaskKind.WORKFLOW],
            totals[TaskKind.ACTIVITY],
            len(overdue),
            len(stranded.runs),
            workers,
        )

    return await ctx.store.read(operation, long=True)


async def _totals(tx: Tx, namespace: str) -> dict[TaskKind, QueueStats]:
    totals = {kind: QueueStats() for kind in TaskKind}
    queues = await tx.queues.list(namespace)
    found = await gather(*(tx.queues.stats(queue.queue_id, tx.now_ms) for queue in queues))
    for queue, stats in zip(queues, found, strict=True):
        totals[queue.kind] = _sum(totals[queue.kind], stats)
    return totals


async def health(ctx: EngineContext, namespace: str) -> NamespaceHealth:
    """Workflow tasks that fail repeatedly, by workflow type."""

    async def operation(tx: Tx) -> NamespaceHealth:
        failing = await tx.namespace_stats.failing(namespace, COUNTED_MAX)
        return NamespaceHealth(tx.now_ms, failing, sum(each.runs for each in failing) >= COUNTED_MAX)

    return await ctx.store.read(operation, long=True)


def _sum(one: QueueStats, other: QueueStats) -> QueueStats:
    return QueueStats(
        one.ready + other.ready,
        one.leased + other.leased,
        one.delayed + other.delayed,
        one.expired + other.expired,
        one.added_last_minute + other.added_last_minute,
        one.dispatched_last_minute + other.dispatched_last_minute,
        claimed=one.claimed + other.claimed,
    )
