"""Why a schedule has not fired: what it waits for, and why its latest fires started nothing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from penstock.core.schedules.overlap import SkipReason
from penstock.core.schedules.record import ScheduleRecord, ScheduleStatus
from penstock.core.timestamps import iso


class ScheduleWait(StrEnum):
    """What a schedule waits for."""

    NEXT_MOMENT = "next_moment"
    PAUSED = "paused"
    DUE = "due"
    OPEN_RUNS = "open_runs"
    NO_MOMENT = "no_moment"
    NEWER_ZONE_DATA = "newer_zone_data"


class ScheduleExplanation(Struct, frozen=True):
    wait: ScheduleWait
    sentences: Sequence[str]


_SKIPPED = {
    SkipReason.OVERLAP: "a run that it started was still open and its overlap policy is {overlap}",
    SkipReason.BUFFER_FULL: "a run was still open and no more fires may wait",
    SkipReason.MISSED_CATCHUP_WINDOW: "no server was there within its catch-up window of {window} s",
    SkipReason.START_BY_PASSED: "it could not start within {start_by} s of its moment",
    SkipReason.START_REFUSED: "the start was refused: see the schedule's history",
    SkipReason.SCHEDULE_DELETED: "the schedule was deleted",
}


def explain_schedule(record: ScheduleRecord, now_ms: int, zone_version: str) -> ScheduleExplanation:
    """What the schedule waits for, then what its fires did, as a server with these zone data knows it."""
    wait, first = _wait(record, now_ms, zone_version)
    return ScheduleExplanation(wait, [first, *_buffered(record), *_skipped(record)])


def _wait(record: ScheduleRecord, now_ms: int, zone_version: str) -> tuple[ScheduleWait, str]:
    if record.status is ScheduleStatus.PAUSED:
        since = f" since {iso(at_ms)}" if (at_ms := record.progress.paused_at_ms) is not None else ""
        note = f": {record.note}" if record.note else ""
        return ScheduleWait.PAUSED, f"It is paused{since}{note}."
    if record.zone_version > zone_version:
        return (
            ScheduleWait.NEWER_ZONE_DATA,
            f"This server does not fire it: its moments come from zone data {record.zone_version}, and this server has "
            f"{zone_version}. A server with newer data fires it. {_next(record)}",
        )
    if record.due_at_ms is not None and record.due_at_ms <= now_ms:
        return (
            ScheduleWait.DUE,
            f"It is due since {iso(record.due_at_ms)}, and fires as soon as a server gets to it.",
        )
    if record.nominal_at_ms is None:
        return ScheduleWait.NO_MOMENT, _next(record)
    if record.progress.buffered:
        return ScheduleWait.OPEN_RUNS, _next(record)
    return ScheduleWait.NEXT_MOMENT, _next(record)


def _next(record: ScheduleRecord) -> str:
    if record.nominal_at_ms is None:
        return "Its specification has no moment any more."
    nominal = iso(record.nominal_at_ms)
    late = record.due_at_ms is not None and record.due_at_ms != record.nominal_at_ms
    jitter = f", with jitter at {iso(record.due_at_ms)}" if late and record.due_at_ms is not None else ""
    return f"Its next fire is at {nominal}{jitter}."


def _buffered(record: ScheduleRecord) -> Sequence[str]:
    waiting, open_runs = record.progress.buffered, record.progress.open_runs
    by_hand = record.progress.buffered_by_hand
    if not waiting:
        return []
    if record.is_active or by_hand == waiting:
        return [f"Buffered fires: {waiting}. They start when its open runs ({open_runs}) have closed."]
    found = [f"Buffered fires: {waiting}. They start after it is resumed."]
    if by_hand:
        found.append(f"Those by hand ({by_hand}) start when its open runs ({open_runs}) have closed.")
    return found


def _skipped(record: ScheduleRecord) -> Sequence[str]:
    progress, policies = record.progress, record.policies
    if progress.last_skip_reason is None or progress.last_skipped_at_ms is None:
        return []
    why = _SKIPPED[SkipReason(progress.last_skip_reason)].format(
        overlap=policies.overlap.value, window=policies.catchup_window_s, start_by=policies.start_by_s
    )
    return [
        f"Its latest skip, at {iso(progress.last_skipped_at_ms)}: {why}. Skipped so far: {progress.skipped}."
    ]
