"""Firing: what a due schedule does, one step per transaction, and what follows when a run that it started closes.

Any number of servers may find the same schedule due. Each step locks the schedule, looks again whether it is due, and
writes the fire, its run, its event and the next moment together (`one-fire-per-moment`). There is no leader.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.core.model import OutboxMessage, RunStatus
from penstock.core.schedules.due import BufferedFire, DueFire, MissedMoments, next_step, too_late
from penstock.core.schedules.overlap import BUFFER_MAX, SkipReason
from penstock.core.schedules.record import (
    FireKey,
    FireKind,
    FireState,
    ScheduleEventType,
    ScheduleRecord,
    ScheduleStatus,
)
from penstock.core.timestamps import iso
from penstock.engine.context import EngineContext
from penstock.engine.runs.fire_closed import FireClosed, fire_closed_of
from penstock.engine.schedules.locked_schedule import LockedSchedule
from penstock.engine.schedules.zones import Timing, is_newer, timing_of
from penstock.ports.store import Tx

STEPS_MAX: Final = 20
"""Steps of one schedule before others have their turn: it stays due, and is found again."""


async def fire_due(ctx: EngineContext, schedule_key: str) -> bool:
    """Carry out what is due for a schedule; False if another server has done it."""

    async def operation(tx: Tx) -> tuple[int, bool] | None:
        """The number of runs that a step has started, and whether more is due; None if nothing was."""
        record = await tx.schedules.lock(schedule_key)
        if record is None or record.due_at_ms is None or record.due_at_ms > tx.now_ms or is_newer(record):
            return None
        after = await _step(ctx, tx, record)
        more = after.due_at_ms is not None and after.due_at_ms <= tx.now_ms
        return after.progress.fires - record.progress.fires, more

    for steps in range(STEPS_MAX):
        done = await ctx.store.transact(operation, key=schedule_key)
        if done is None:
            return steps > 0
        started, more = done
        ctx.upkeep.fires_started += started
        ctx.upkeep.fires_not_started += not started
        if not more:
            break
    return True


async def _step(ctx: EngineContext, tx: Tx, record: ScheduleRecord) -> ScheduleRecord:
    schedule, timing = LockedSchedule(ctx, tx, record), timing_of(record)
    schedule.apply_zone_data()
    match next_step(schedule.record, timing.spec, timing.zone, tx.now_ms):
        case MissedMoments() as missed:
            _record_missed(schedule, missed)
        case DueFire(nominal_ms=nominal_ms):
            key = FireKey(record.schedule_key, nominal_ms, FireKind.SCHEDULED)
            late = too_late(record, timing.spec, timing.zone, key, tx.now_ms)
            if late is None:
                await schedule.fire(key, record.policies.overlap)
            else:
                schedule.skip(key, late)
            schedule.move_cursor(nominal_ms)
        case BufferedFire():
            await _start_buffered(tx, schedule, timing)
        case None:
            pass
    schedule.save()
    return schedule.record


def _record_missed(schedule: LockedSchedule, missed: MissedMoments) -> None:
    """Count moments outside the catch-up window, with one event for all of them."""
    progress = schedule.record.progress
    schedule.advance(missed=progress.missed + missed.count)
    schedule.count_skipped(SkipReason.MISSED_CATCHUP_WINDOW, missed.count)
    schedule.append(
        ScheduleEventType.TRIGGER_SKIPPED,
        {
            "trigger": FireKind.SCHEDULED.value,
            "reason": SkipReason.MISSED_CATCHUP_WINDOW.value,
            "count": missed.count,
            "fire_time": iso(missed.first_ms),
            "last_fire_time": iso(missed.last_ms),
        },
    )
    schedule.move_cursor(missed.last_ms)


async def _start_buffered(tx: Tx, schedule: LockedSchedule, timing: Timing) -> None:
    """Start the first buffered fire that may start, or drop it if it is too late."""
    record = schedule.record
    waiting = await tx.schedules.fires(
        record.schedule_key, FireState.BUFFERED, 1 if record.is_active else BUFFER_MAX
    )
    found = [each for each in waiting if record.is_active or each.kind.is_by_hand][:1]
    if not found:
        schedule.advance(buffered=len(waiting), buffered_by_hand=0)
    for fire in found:
        schedule.count_buffered(fire.kind, -1)
        late = too_late(record, timing.spec, timing.zone, fire.key, tx.now_ms)
        if late is None:
            await schedule.start(fire.key, fire)
        else:
            schedule.skip(fire.key, late, fire)


async def run_closed(ctx: EngineContext, message: OutboxMessage) -> bool:
    """Record that a run of a schedule has closed: a buffered fire may start, a failure may pause the schedule."""
    closed = fire_closed_of(message)

    async def operation(tx: Tx) -> bool:
        record = await tx.schedules.lock(closed.fire.schedule_key)
        if await tx.outbox.get(message.message_id) is None:
            return False
        tx.outbox.delete(message.message_id)
        fire = await tx.schedules.fire(closed.fire)
        if record is None or fire is None or fire.state is not FireState.STARTED:
            return True
        tx.schedules.save_fire(replace(fire, state=FireState.CLOSED, reason=closed.closed_reason))
        schedule = LockedSchedule(ctx, tx, record)
        schedule.advance(open_runs=max(0, record.progress.open_runs - 1))
        if closed.status is RunStatus.FAILED:
            _note_failure(schedule, closed, message.workflow_id, tx.now_ms)
        elif closed.status is RunStatus.COMPLETED:
            schedule.advance(failed_at_ms=None)
        schedule.save()
        return True

    return await ctx.store.transact(operation, key=closed.fire.schedule_key)


def _note_failure(schedule: LockedSchedule, closed: FireClosed, workflow_id: str, now_ms: int) -> None:
    """Count a failed run, and pause the schedule if its policy says so."""
    record = schedule.record
    schedule.advance(failures=record.progress.failures + 1, failed_at_ms=now_ms)
    if not record.policies.pause_on_failure or not record.is_active:
        return
    note = f"paused because {workflow_id} {closed.closed_reason.replace('_', ' ')}"
    schedule.change(status=ScheduleStatus.PAUSED, note=note, updated_at_ms=now_ms)
    schedule.advance(paused_at_ms=now_ms)
    schedule.append(
        ScheduleEventType.PAUSED,
        {"reason": "run_failed", "note": note, "workflow_id": workflow_id},
    )
