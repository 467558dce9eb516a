"""A specification in words, and what its author may not have meant: clock changes and frequent fires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.schedules.cron import Calendar
from penstock.core.schedules.spec import Interval, ScheduleSpec, TooManyLooks, all_moments, moments
from penstock.core.schedules.wall_clock import UTC, Gap, Repeat, wall_time

DAY_MS: Final = 86_400_000
FREQUENT: Final = 288
"""From this many fires a day on, a preview says how many they are: every five minutes."""
COUNTED_MAX: Final = 1_440
CLOCK_CHANGES_DAYS: Final = 400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


class SpecWarningReason(StrEnum):
    NONEXISTENT_TIME = "nonexistent_time"
    REPEATED_TIME = "repeated_time"
    FREQUENT_FIRES = "frequent_fires"
    SHARED_MINUTE = "shared_minute"
    NEVER_FIRES = "never_fires"
    SKIPS_NOTHING = "skips_nothing"
    NO_WORKER = "no_worker"


class SpecWarning(Struct, frozen=True):
    reason: SpecWarningReason
    message: str


def in_words(spec: ScheduleSpec) -> Sequence[str]:
    """A sentence for each expression, interval and calendar."""
    words = [each.in_words() for each in spec.crons]
    words += [_interval_in_words(each) for each in spec.intervals]
    words += [f"At times that match {_calendar_in_words(each)}" for each in spec.calendars]
    words += [f"Not at times that match {_calendar_in_words(each)}" for each in spec.skip]
    return words


def spec_warnings(spec: ScheduleSpec, zone: tzinfo, now_ms: int) -> Sequence[SpecWarning]:
    """What the author of a specification should know before it is saved."""
    first = next(moments(spec, zone, now_ms), None)
    if first is None:
        return [SpecWarning(SpecWarningReason.NEVER_FIRES, "It has no moment from now on.")]
    found = list(islice(_clock_changes(spec, zone, now_ms), 4))
    found += _skips_nothing(spec, zone, now_ms)
    a_day, is_all = _fires_a_day(spec, zone, first)
    if a_day >= FREQUENT:
        count = f"{a_day:,}" if is_all else f"more than {a_day - 1:,}"
        found.append(SpecWarning(SpecWarningReason.FREQUENT_FIRES, f"It fires {count} times a day."))
    return found


def _skips_nothing(spec: ScheduleSpec, zone: tzinfo, now_ms: int) -> Sequence[SpecWarning]:
    """Calendars in `skip` that match no moment of the next year, usually because they name a day and no hour."""
    left = [each for each in spec.skip if not each.year]
    if left:
        coming = all_moments(replace(spec, skip=()), zone, now_ms, now_ms + CLOCK_CHANGES_DAYS * DAY_MS)
        try:
            for at_ms in coming:
                wall = wall_time(_EPOCH + timedelta(milliseconds=at_ms), zone)
                left = [each for each in left if not each.matches(wall)]
                if not left:
                    break
        except TooManyLooks:
            return []
    return [
        SpecWarning(
            SpecWarningReason.SKIPS_NOTHING,
            f"No moment of the next year is skipped by {_calendar_in_words(each)}. "
            "A whole day has the hours 0 to 23 and the minutes 0 to 59.",
        )
        for each in left
    ]


def _fires_a_day(spec: ScheduleSpec, zone: tzinfo, first: int) -> tuple[int, bool]:
    """The moments of the day from `first` on, and whether these are all."""
    count = 0
    try:
        for _ in all_moments(spec, zone, first - 1, first - 1 + DAY_MS):
            count += 1
            if count > COUNTED_MAX:
                return count, False
    except TooManyLooks:
        return count, False
    return count, True


def shared_minute(others: int, at_ms: int) -> SpecWarning:
    at = (_EPOCH + timedelta(milliseconds=at_ms)).strftime("%H:%M UTC")
    plural = "another schedule fires" if others == 1 else f"{others:,} other schedules fire"
    return SpecWarning(
        SpecWarningReason.SHARED_MINUTE, f"At its next moment, {at}, {plural} in the same minute."
    )


def _clock_changes(spec: ScheduleSpec, zone: tzinfo, now_ms: int) -> Iterator[SpecWarning]:
    """Times of day that do not exist, or happen twice, at a clock change of the next year."""
    fixed = [each for each in spec.wall_clocks if not each.counts_real_time]
    if not fixed:
        return
    now = _EPOCH + timedelta(milliseconds=now_ms - now_ms % 3_600_000)
    for before, after in _changes(zone, now):
        # wall-clock times from the smaller to the greater of the two are skipped, or happen twice
        is_gap = after > before
        low, high = sorted((before, after))
        for source in fixed:
            for wall in source.after(low - _SECOND):
                if wall >= high:
                    break
                yield _gap(spec, wall, after) if is_gap else _repeat(spec, wall)


def _changes(zone: tzinfo, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Clock changes, as the wall-clock times that each leaves and continues with."""
    for day in range(CLOCK_CHANGES_DAYS):
        instant = now + timedelta(days=day)
        if _offset(instant, zone) == _offset(instant + timedelta(days=1), zone):
            continue
        low, high = 0, 86_400
        while high - low > 1:
            middle = (low + high) // 2
            if _offset(instant + middle * _SECOND, zone) == _offset(instant, zone):
                low = middle
            else:
                high = middle
        change = instant + high * _SECOND
        after = wall_time(change, zone)
        yield after - (_offset(change, zone) - _offset(instant, zone)), after


def _gap(spec: ScheduleSpec, wall: datetime, after: datetime) -> SpecWarning:
    then = f"it fires at {after:%H:%M} instead" if spec.gap is Gap.SHIFT else "it does not fire"
    return SpecWarning(
        SpecWarningReason.NONEXISTENT_TIME,
        f"{wall:%H:%M} does not exist on {wall:%Y-%m-%d} in {spec.time_zone}: {then}.",
    )


def _repeat(spec: ScheduleSpec, wall: datetime) -> SpecWarning:
    which = "both times" if spec.repeat is Repeat.BOTH else f"the {spec.repeat.value} time"
    return SpecWarning(
        SpecWarningReason.REPEATED_TIME,
        f"{wall:%H:%M} happens twice on {wall:%Y-%m-%d} in {spec.time_zone}: it fires {which}.",
    )


def _offset(instant: datetime, zone: tzinfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _interval_in_words(interval: Interval) -> str:
    offset = f", {_duration(interval.offset_ms)} after" if interval.offset_ms else ""
    return f"Every {_duration(interval.every_ms)}{offset}"


def _duration(ms: int) -> str:
    for size, name in ((DAY_MS, "day"), (3_600_000, "hour"), (60_000, "minute")):
        if ms % size == 0:
            return f"{ms // size} {name}{'s' if ms != size else ''}"
    return f"{ms // 1000} second{'s' if ms != 1000 else ''}"


def _calendar_in_words(calendar: Calendar) -> str:
    fields = {name: getattr(calendar, name) for name in Calendar.__struct_fields__}
    shown = {
        name: ", ".join(_range(each.start, each.end, each.step) for each in ranges)
        for name, ranges in fields.items()
    }
    return "; ".join(f"{name.replace('_', ' ')} {text}" for name, text in shown.items() if text)


def _range(start: int, end: int, step: int) -> str:
    return str(start) if start == end else f"{start}-{end}" + (f"/{step}" if step > 1 else "")
