"""Fires that a person asks for: a trigger now, or a backfill of the moments of a period."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from penstock.core.model import TaskKind
from penstock.core.schedules.effects import BackfillPlan, QueueLoad, in_sentences, plan_backfill
from penstock.core.schedules.overlap import Overlap
from penstock.core.schedules.record import (
    BACKFILL_MAX,
    FireKey,
    FireKind,
    FireRecord,
    FireState,
    ScheduleRecord,
)
from penstock.core.schedules.spec import TooManyLooks, all_moments
from penstock.core.scheduling.backlog import last_minute
from penstock.engine.context import EngineContext
from penstock.engine.limits.policies import find_queue
from penstock.engine.schedules.actions import decode
from penstock.engine.schedules.lifecycle import not_found, on_schedule
from penstock.engine.schedules.locked_schedule import LockedSchedule
from penstock.engine.schedules.zones import Timing, timing_of
from penstock.errors import InvalidInput, Reason
from penstock.ports.store import Transaction, Tx

LOOKS_MAX: Final = 1_000_000
"""Evaluations of expressions for one backfill."""
AT_ONCE: Final = 100
"""Fires of a backfill that are submitted together; each is its own transaction."""


class TriggerResult(Struct, frozen=True):
    fire: FireRecord
    buffer_depth: int


class BackfillEffect(Struct, frozen=True):
    """What a backfill would do."""

    plan: BackfillPlan
    load: QueueLoad
    sentences: Sequence[str]


class BackfillResult(Struct, frozen=True):
    moments_ms: Sequence[int]
    fires: Sequence[FireRecord | Exception] = ()
    """The outcome of each moment; none after a dry run."""
    effect: BackfillEffect | None = None
    """What was predicted by a dry run."""


async def trigger(
    ctx: EngineContext, namespace: str, schedule_id: str, overlap: Overlap | None
) -> TriggerResult:
    """Fire a schedule now, also if it is paused. The moment of the trigger is the fire's nominal moment."""

    async def act(tx: Tx, schedule: LockedSchedule) -> TriggerResult:
        record = schedule.record
        at_ms = max(tx.now_ms, record.progress.last_manual_at_ms + 1)
        schedule.advance(last_manual_at_ms=at_ms)
        key = FireKey(record.schedule_key, at_ms, FireKind.MANUAL)
        fire = await schedule.fire(key, overlap or record.policies.overlap)
        schedule.save()
        return TriggerResult(fire, schedule.record.progress.buffered)

    return await on_schedule(ctx, namespace, schedule_id, act)


async def backfill(
    ctx: EngineContext,
    namespace: str,
    schedule_id: str,
    start_ms: int,
    end_ms: int,
    overlap: Overlap | None,
    *,
    dry_run: bool,
) -> BackfillResult:
    """Fire a schedule for each of its moments from `start_ms` to before `end_ms`.

    A moment that was backfilled before is not started again: a backfill may be repeated after a failure.
    """
    found = await _moments(ctx, namespace, schedule_id, start_ms, end_ms)
    if dry_run:
        return BackfillResult(found, effect=await _effect(ctx, namespace, schedule_id, found, overlap))
    outcomes: list[FireRecord | Exception] = []
    for first in range(0, len(found), AT_ONCE):
        batch = found[first : first + AT_ONCE]
        fires = [_backfill_one(ctx, namespace, schedule_id, at_ms, overlap) for at_ms in batch]
        outcomes += [*await ctx.store.transact_all(fires)]
    return BackfillResult(found, outcomes)


async def _effect(
    ctx: EngineContext, namespace: str, schedule_id: str, found: Sequence[int], overlap: Overlap | None
) -> BackfillEffect:
    """Predict what a backfill does to the schedule's runs and to the queue."""

    async def operation(tx: Tx) -> BackfillEffect:
        record = await tx.schedules.by_id(namespace, schedule_id)
        if record is None:
            raise not_found(schedule_id)
        policy = overlap or record.policies.overlap
        repeated = 0
        if found:
            repeated = await tx.schedules.count_backfilled(record.schedule_key, found[0], found[-1])
        plan = plan_backfill(
            policy,
            len(found),
            open_runs=record.progress.open_runs,
            buffered=record.progress.buffered,
            remaining=record.progress.remaining,
            repeated=min(repeated, len(found)),
        )
        load = await _load(tx, record)
        return BackfillEffect(plan, load, in_sentences(plan, policy, load))

    return await ctx.store.read(operation)


async def _load(tx: Tx, record: ScheduleRecord) -> QueueLoad:
    """The queue of a schedule's action, as far as a new task sees it."""
    action = decode(record.action)
    kind = TaskKind.WORKFLOW if action.command is None else TaskKind.ACTIVITY
    queue = await find_queue(tx, record.namespace, action.start.task_queue, kind)
    priority = action.start.priority
    backlog = await tx.queues.backlog(queue.queue_id, tx.now_ms, 0)
    rate = queue.rules.queue_rate
    return QueueLoad(
        task_queue=queue.name,
        waiting=sum(each.count for each in backlog.levels if each.level <= priority.level),
        dispatched=sum(last_minute(each, tx.now_ms) for each in backlog.levels),
        rate_per_s=None if rate is None else rate.micro / 1_000_000,
        paused=bool(queue.paused) or queue.rules.paused,
    )


async def _moments(
    ctx: EngineContext, namespace: str, schedule_id: str, start_ms: int, end_ms: int
) -> Sequence[int]:
    record = await ctx.store.read(lambda tx: tx.schedules.by_id(namespace, schedule_id))
    if record is None:
        raise not_found(schedule_id)
    timing = timing_of(record)
    # in a thread: many expressions over a long period take seconds
    return await asyncio.to_thread(_moments_of, timing, start_ms, end_ms)


def _moments_of(timing: Timing, start_ms: int, end_ms: int) -> Sequence[int]:
    found: list[int] = []
    try:
        for at_ms in all_moments(timing.spec, timing.zone, start_ms - 1, end_ms - 1, LOOKS_MAX):
            if len(found) == BACKFILL_MAX:
                raise _too_large(f"has more than {BACKFILL_MAX} fires")
            found.append(at_ms)
    except TooManyLooks:
        raise _too_large(
            "has too many moments to look at, for the expressions of the schedule and what skip excludes"
        ) from None
    return found


def _too_large(problem: str) -> InvalidInput:
    return InvalidInput(
        Reason.BACKFILL_TOO_LARGE,
        f"The period {problem}. Backfill it in parts.",
        errors={"end_time": [problem]},
        validation_errors={"end_time": [problem]},
    )


def _backfill_one(
    ctx: EngineContext, namespace: str, schedule_id: str, at_ms: int, overlap: Overlap | None
) -> Transaction[FireRecord]:
    async def operation(tx: Tx) -> FireRecord:
        found = await tx.schedules.by_id(namespace, schedule_id)
        record = None if found is None else await tx.schedules.lock(found.schedule_key)
        if record is None:
            raise not_found(schedule_id)
        key = FireKey(record.schedule_key, at_ms, FireKind.BACKFILL)
        before = await tx.schedules.fire(key)
        if before is not None and before.state is not FireState.SKIPPED:
            return before
        schedule = LockedSchedule(ctx, tx, record)
        fire = await schedule.fire(key, overlap or record.policies.overlap, before)
        schedule.save()
        return fire

    return Transaction(operation, f"schedule:{namespace}:{schedule_id}")
