"""What a schedule does next, and when: missed moments, a fire, or a buffered fire that may start.

The next moment follows from the cursor, the latest nominal moment that was dealt with, and never from the clock. A
schedule is due again at once while it is behind; one step deals with one fire, or with a batch of missed moments.
"""

from __future__ import annotations

from datetime import tzinfo
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.schedules.overlap import SkipReason
from penstock.core.schedules.record import FireKey, FireKind, FireRecord, ScheduleRecord, ScheduleStatus
from penstock.core.schedules.spec import ScheduleSpec, fires_at_ms, moments, next_moment

MISSED_AT_ONCE: Final = 1_000
"""Missed moments that one step counts."""


class MissedMoments(Struct, frozen=True):
    """Moments that passed longer ago than the catch-up window."""

    first_ms: int
    last_ms: int
    count: int


class DueFire(Struct, frozen=True):
    """The fire of a nominal moment is due."""

    nominal_ms: int


class BufferedFire(Struct, frozen=True):
    """No run is open: the first buffered fire may start."""


DueStep = MissedMoments | DueFire | BufferedFire


def next_step(record: ScheduleRecord, spec: ScheduleSpec, zone: tzinfo, now_ms: int) -> DueStep | None:
    """What a schedule does now; None if nothing is due."""
    if _may_start_buffered(record):
        return BufferedFire()
    if (
        not record.is_active
        or record.nominal_at_ms is None
        or _fires_at(record, spec, zone, record.nominal_at_ms) > now_ms
    ):
        return None
    return _missed(record, spec, zone, record.nominal_at_ms, now_ms) or DueFire(record.nominal_at_ms)


def _missed(
    record: ScheduleRecord, spec: ScheduleSpec, zone: tzinfo, first_ms: int, now_ms: int
) -> MissedMoments | None:
    """The moments from `first_ms` on that are older than the catch-up window; None if there are none."""
    oldest_ms = now_ms - record.policies.catchup_window_s * 1000
    last_ms, count = first_ms, 0
    for nominal_ms in chain([first_ms], moments(spec, zone, first_ms)):
        is_older = nominal_ms + spec.jitter_ms < oldest_ms
        if count == MISSED_AT_ONCE or not (is_older or _fires_at(record, spec, zone, nominal_ms) < oldest_ms):
            break
        last_ms, count = nominal_ms, count + 1
    return MissedMoments(first_ms, last_ms, count) if count else None


def recomputed(record: ScheduleRecord, spec: ScheduleSpec, zone: tzinfo, zone_version: str) -> ScheduleRecord:
    """The schedule with its next moment from other zone data: the first one after all that were dealt with."""
    return after_moment(record, spec, zone, record.cursor_at_ms, zone_version)


def after_moment(
    record: ScheduleRecord, spec: ScheduleSpec, zone: tzinfo, cursor_ms: int, zone_version: str
) -> ScheduleRecord:
    """The schedule once everything up to `cursor_ms` is dealt with; `with_due` must follow."""
    nominal_ms = next_moment(spec, zone, cursor_ms)
    return replace(record, cursor_at_ms=cursor_ms, nominal_at_ms=nominal_ms, zone_version=zone_version)


def with_due(record: ScheduleRecord, spec: ScheduleSpec, zone: tzinfo, now_ms: int) -> ScheduleRecord:
    """The schedule with the time at which it has something to do."""
    due_ms: int | None = None
    if _may_start_buffered(record):
        due_ms = now_ms
    elif record.is_active and record.nominal_at_ms is not None:
        due_ms = _fires_at(record, spec, zone, record.nominal_at_ms)
    return replace(record, due_at_ms=due_ms)


def with_due_kept(record: ScheduleRecord, now_ms: int) -> ScheduleRecord:
    """The schedule with the due time that it has, unless it is not active or a buffered fire may start."""
    if _may_start_buffered(record):
        return replace(record, due_at_ms=now_ms)
    return record if record.is_active else replace(record, due_at_ms=None)


def exhausted(record: ScheduleRecord) -> ScheduleRecord:
    """The schedule, deleted if it has started as many runs as it may."""
    if record.progress.remaining == 0 and record.status is not ScheduleStatus.DELETED:
        return replace(record, status=ScheduleStatus.DELETED)
    return record


def too_late(
    record: ScheduleRecord, spec: ScheduleSpec, zone: tzinfo, fire: FireKey, now_ms: int
) -> SkipReason | None:
    """Why a fire may no longer start; None if it may. Its jitter makes no fire late, and a backfill is never late."""
    start_by_s = record.policies.start_by_s
    if start_by_s is None or fire.kind is FireKind.BACKFILL:
        return None
    is_scheduled = fire.kind is FireKind.SCHEDULED
    due_ms = _fires_at(record, spec, zone, fire.nominal_at_ms) if is_scheduled else fire.nominal_at_ms
    return SkipReason.START_BY_PASSED if now_ms > due_ms + start_by_s * 1000 else None


def resumed_cursor(record: ScheduleRecord, spec: ScheduleSpec, zone: tzinfo, now_ms: int) -> int:
    """Up to where a schedule that is resumed has dealt with its moments.

    That is now, except for a moment that has passed and whose fire lies ahead, delayed by jitter: it was not missed.
    """
    latest: int | None = None
    for latest in moments(spec, zone, max(record.cursor_at_ms, now_ms - spec.jitter_ms), now_ms):  # noqa: B007
        pass
    is_ahead = latest is not None and _fires_at(record, spec, zone, latest) > now_ms
    return latest - 1 if is_ahead and latest is not None else now_ms


def in_order(fires: list[FireRecord]) -> list[FireRecord]:
    return sorted(fires, key=lambda fire: (fire.nominal_at_ms, fire.kind))


def _may_start_buffered(record: ScheduleRecord) -> bool:
    """Whether a buffered fire may start now: any of an active schedule, and those by hand of a paused one."""
    progress = record.progress
    by_status = {
        ScheduleStatus.ACTIVE: progress.buffered,
        ScheduleStatus.PAUSED: progress.buffered_by_hand,
    }
    return progress.open_runs == 0 and by_status.get(record.status, 0) > 0


def _fires_at(record: ScheduleRecord, spec: ScheduleSpec, zone: tzinfo, nominal_ms: int) -> int:
    return fires_at_ms(spec, zone, record.schedule_key, nominal_ms)
