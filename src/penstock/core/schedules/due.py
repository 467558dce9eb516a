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
from penstock.core.schedules.record import FireRecord, ScheduleRecord, ScheduleStatus
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
    """What an active schedule does now; None if nothing is due."""
    if not record.is_active:
        return None
    if _may_start_buffered(record):
        return BufferedFire()
    if record.nominal_at_ms is None or _fires_at(record, spec, zone, record.nominal_at_ms) > now_ms:
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
    if record.is_active:
        if _may_start_buffered(record):
            due_ms = now_ms
        elif record.nominal_at_ms is not None:
            due_ms = _fires_at(record, spec, zone, record.nominal_at_ms)
    return replace(record, due_at_ms=due_ms)


def with_due_kept(record: ScheduleRecord, now_ms: int) -> ScheduleRecord:
    """The schedule with the due time that it has, unless it is not active or a buffered fire may start."""
    if not record.is_active:
        return replace(record, due_at_ms=None)
    return replace(record, due_at_ms=now_ms) if _may_start_buffered(record) else record


def exhausted(record: ScheduleRecord) -> ScheduleRecord:
    """The schedule, deleted if it has started as many runs as it may."""
    if record.progress.remaining == 0 and record.status is not ScheduleStatus.DELETED:
        return replace(record, status=ScheduleStatus.DELETED)
    return record


def too_late(record: ScheduleRecord, nominal_ms: int, now_ms: int) -> SkipReason | None:
    """Why a fire may no longer start; None if it may."""
    start_by_s = record.policies.start_by_s
    if start_by_s is not None and now_ms > nominal_ms + start_by_s * 1000:
        return SkipReason.START_BY_PASSED
    return None


def in_order(fires: list[FireRecord]) -> list[FireRecord]:
    return sorted(fires, key=lambda fire: (fire.nominal_at_ms, fire.kind))


def _may_start_buffered(record: ScheduleRecord) -> bool:
    return record.progress.buffered > 0 and record.progress.open_runs == 0


def _fires_at(record: ScheduleRecord, spec: ScheduleSpec, zone: tzinfo, nominal_ms: int) -> int:
    return fires_at_ms(spec, zone, record.schedule_key, nominal_ms)
