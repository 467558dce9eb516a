"""Takes samples of all queues with work, and reads them back as series."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.scheduling.backlog import dispatchable, oldest_wait_ms, share_asked, share_got
from penstock.core.series.samples import (
    COARSE,
    FINE,
    GateUse,
    KeyShare,
    QueueSample,
    SeriesResolution,
    grown,
    merged,
    meters_from,
    minute_of,
    resolution_for,
)
from penstock.engine.context import EngineContext
from penstock.engine.limits import policies
from penstock.engine.visibility.task_queues import gates_of
from penstock.ports.store import Tx

QUEUES_MAX = 200
"""Queues of which samples are taken."""
KEYS_MAX = 8
GATES_MAX = 8


class _Reading(Struct, frozen=True):
    queue_id: QueueId
    sample: QueueSample


async def take_samples(ctx: EngineContext, at_ms: int) -> bool:
    """Sample every queue with work for one step; False if another server has done so.

    Everything is read outside the transaction that writes, so that no lock of dispatch is held and nothing waits.
    """
    readings = await ctx.store.read(lambda tx: _readings(tx, at_ms), long=True)

    async def operation(tx: Tx) -> bool:
        if not await tx.series.advance(at_ms):
            return False
        queue_ids = [each.queue_id for each in readings]
        previous = await tx.series.latest(queue_ids, FINE)
        coarse = await tx.series.at(queue_ids, COARSE, COARSE.slot(at_ms))
        for reading, before, wide in zip(readings, previous, coarse, strict=True):
            sample = grown(reading.sample, before)
            tx.series.save(reading.queue_id, FINE, sample)
            tx.series.save(reading.queue_id, COARSE, merged(wide, sample, COARSE))
        return True

    return await ctx.store.transact(operation, key="series")


async def next_step(ctx: EngineContext) -> int | None:
    """The current step, unless it has been sampled."""

    async def operation(tx: Tx) -> int | None:
        at_ms = FINE.begin_ms(tx.now_ms)
        return at_ms if await tx.series.sampled_at() < at_ms else None

    return await ctx.store.read(operation)


async def _readings(tx: Tx, at_ms: int) -> Sequence[_Reading]:
    minute = minute_of(tx.now_ms)
    found: list[_Reading] = []
    for each in await tx.series.active_queues(minute, QUEUES_MAX):
        queue = await policies.find_queue(tx, each.namespace, each.name, each.kind)
        found.append(_Reading(each.queue_id, await _sample(tx, queue, at_ms)))
    return found


async def _sample(tx: Tx, queue: Queue, at_ms: int) -> QueueSample:
    stats = await tx.queues.stats(queue.queue_id, tx.now_ms)
    gates = await gates_of(tx, queue, stats)
    return QueueSample(
        at_ms,
        ready=stats.ready,
        running=stats.running,
        delayed=stats.delayed,
        dispatchable=dispatchable(stats, gates),
        oldest_wait_ms=oldest_wait_ms(stats, tx.now_ms),
        meters=tuple(await tx.series.meters(queue.queue_id, meters_from(at_ms))),
        gates=tuple(
            GateUse(gate.kind.value, gate.scope, gate.used, gate.most, gate.is_closed)
            for gate in gates[:GATES_MAX]
        ),
        keys=await _shares(tx, queue) if stats.ready else (),
    )


async def _shares(tx: Tx, queue: Queue) -> tuple[KeyShare, ...]:
    backlog = await tx.queues.backlog(queue.queue_id, tx.now_ms, KEYS_MAX)
    levels = {each.level: each for each in backlog.levels}
    return tuple(
        KeyShare(
            part.lane.key,
            part.lane.level,
            part.lane.count,
            round(share_asked(part.lane, levels[part.lane.level]), 4),
            share_got(part, levels[part.lane.level], tx.now_ms),
        )
        for part in backlog.lanes
        if part.lane.level in levels
    )


class QueueSeries(Struct, frozen=True):
    """The samples of a queue in an interval."""

    now_ms: int
    from_ms: int
    to_ms: int
    resolution: SeriesResolution
    samples: Sequence[QueueSample]


async def read(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, from_ms: int | None, to_ms: int | None
) -> QueueSeries:
    """The samples of a queue, from an hour ago until now by default, in the finest resolution that reaches back.

    A queue without samples, or that was never used, has an empty series.
    """

    async def operation(tx: Tx) -> QueueSeries:
        begin_ms = tx.now_ms - FINE.length_ms if from_ms is None else from_ms
        end_ms = tx.now_ms if to_ms is None else to_ms
        resolution = resolution_for(begin_ms, tx.now_ms)
        oldest_ms = max(begin_ms, tx.now_ms - resolution.length_ms)
        queue = await policies.find_queue(tx, namespace, name, kind)
        samples = await tx.series.between(queue.queue_id, resolution, oldest_ms, end_ms)
        return QueueSeries(tx.now_ms, begin_ms, end_ms, resolution, samples)

    return await ctx.store.read(operation)
