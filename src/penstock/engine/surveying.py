"""A namespace in numbers, for whoever operates it. Each is exact up to a bound, and says when it is beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from penstock.core.model import QueueStats, TaskKind, Worker
from penstock.core.upkeep import ClosedRuns, Failing, OpenRuns
from penstock.engine import repairing
from penstock.engine.house import House
from penstock.ports.store import Tx

COUNTED_MAX: Final = 10_000
OVERDUE_MAX: Final = 1_000


class Numbers(Struct, frozen=True):
    now_ms: int
    open_runs: OpenRuns
    closed_runs: ClosedRuns
    workflow_tasks: QueueStats
    activity_tasks: QueueStats
    overdue_activities: int
    stranded_runs: int
    workers: Sequence[Worker]


class Trouble(Struct, frozen=True):
    now_ms: int
    failing: Sequence[Failing]
    truncated: bool


async def numbers(house: House, namespace: str) -> Numbers:
    stranded = await repairing.candidates(house, namespace, OVERDUE_MAX)

    async def operation(tx: Tx) -> Numbers:
        totals = {kind: QueueStats() for kind in TaskKind}
        for queue in await tx.queues.list(namespace):
            stats = await tx.queues.stats(queue.queue_id, tx.now_ms)
            totals[queue.kind] = _sum(totals[queue.kind], stats)
        return Numbers(
            tx.now_ms,
            await tx.survey.open_runs(namespace, COUNTED_MAX),
            await tx.survey.closed_runs(namespace, COUNTED_MAX),
            totals[TaskKind.WORKFLOW],
            totals[TaskKind.ACTIVITY],
            len(await tx.survey.overdue_activities(namespace, tx.now_ms, OVERDUE_MAX)),
            len(stranded.runs),
            await tx.workers.list(namespace, None),
        )

    return await house.store.read(operation, long=True)


async def trouble(house: House, namespace: str) -> Trouble:
    """Workflow tasks that fail again and again, by type."""

    async def operation(tx: Tx) -> Trouble:
        failing = await tx.survey.failing(namespace, COUNTED_MAX)
        return Trouble(tx.now_ms, failing, sum(each.runs for each in failing) >= COUNTED_MAX)

    return await house.store.read(operation, long=True)


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
