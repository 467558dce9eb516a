"""Fires that a person asks for: a trigger now, or a backfill of the moments of a period."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from penstock.core.schedules.overlap import Overlap
from penstock.core.schedules.record import BACKFILL_MAX, FireKey, FireKind, FireRecord, FireState
from penstock.core.schedules.spec import moments
from penstock.engine.context import EngineContext
from penstock.engine.schedules.lifecycle import not_found, on_schedule
from penstock.engine.schedules.locked_schedule import LockedSchedule
from penstock.engine.schedules.zones import timing_of
from penstock.errors import InvalidInput, Reason
from penstock.ports.store import Transaction, Tx

AT_ONCE: Final = 100
"""Fires of a backfill that are submitted together; each is its own transaction."""


class TriggerResult(Struct, frozen=True):
    fire: FireRecord
    buffer_depth: int


class BackfillResult(Struct, frozen=True):
    moments_ms: Sequence[int]
    fires: Sequence[FireRecord | Exception] = ()
    """The outcome of each moment; none after a dry run."""


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
        return BackfillResult(found)
    outcomes: list[FireRecord | Exception] = []
    for first in range(0, len(found), AT_ONCE):
        batch = found[first : first + AT_ONCE]
        fires = [_backfill_one(ctx, namespace, schedule_id, at_ms, overlap) for at_ms in batch]
        outcomes += [*await ctx.store.transact_all(fires)]
    return BackfillResult(found, outcomes)


async def _moments(
    ctx: EngineContext, namespace: str, schedule_id: str, start_ms: int, end_ms: int
) -> Sequence[int]:
    record = await ctx.store.read(lambda tx: tx.schedules.by_id(namespace, schedule_id))
    if record is None:
        raise not_found(schedule_id)
    timing = timing_of(record)
    found: list[int] = []
    for at_ms in moments(timing.spec, timing.zone, start_ms - 1, end_ms - 1):
        if len(found) == BACKFILL_MAX:
            problem = f"has more than {BACKFILL_MAX} fires"
            raise InvalidInput(
                Reason.BACKFILL_TOO_LARGE,
                f"The period {problem}. Backfill it in parts.",
                errors={"end_time": [problem]},
                validation_errors={"end_time": [problem]},
            )
        found.append(at_ms)
    return found


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
