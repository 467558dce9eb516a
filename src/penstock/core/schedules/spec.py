"""When a schedule fires: its specification, and the nominal moments that follow from it.

A specification is the union of cron expressions, calendars and intervals, less the calendars in `skip`, between
`start_at_ms` and `end_at_ms`. Its *nominal moments* are a function of the specification and the zone data alone. The
next moment is always computed from the previous nominal moment, never from the clock: a fire that is late does not
lose the ones that follow.

Jitter delays a fire by a hash of schedule and nominal moment, so that another server computes the same delay, and by
less than the distance to the next nominal moment, so that fires keep their order. Code sees the nominal moment.

The moments are a merge of sorted sequences, one for each expression, calendar and interval: a source is evaluated
again only after its own moment has passed. Evaluating one scans the days up to its next match, years for a leap day,
so each search has a budget of days and moments (`LOOKS_MAX`). Without it, one request with 64 rare expressions and a
`skip` that excludes them would occupy a server for minutes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Final

from msgspec import Struct

from penstock.core.schedules.cron import HORIZON_YEARS, Calendar, Cron, WallClock
from penstock.core.schedules.wall_clock import UTC, Gap, Repeat, next_instant, wall_time

EXPRESSIONS_MAX: Final = 64
"""Cron expressions, calendars, intervals and skipped calendars, each."""
SKIPPED_MAX: Final = 3_000
"""After this many moments in a row that `skip` excludes (a weekend of minutes), there are taken to be no more."""
LOOKS_MAX: Final = 20_000
"""The budget of one list, and of one search for a moment that `skip` does not exclude: a fraction of a second of CPU.
An evaluation of an expression, a calendar or an interval costs one, and one more for each `DAYS_PER_LOOK` scanned."""
DAYS_PER_LOOK: Final = 32
_DAYS_SCANNED_MAX: Final = HORIZON_YEARS * 366
_SKIPS_PER_LOOK: Final = 16
JITTER_MS_MAX: Final = 3_600_000
INTERVAL_MS_MIN: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS: Final = 0
"""The year 1970, and so no moment before it: arithmetic with time zones ends at the year 1."""
_LAST_MS: Final = 221_845_392_000_000
"""The year 9000, and so no moment after it: arithmetic with time zones ends at the year 9999."""


class TooManyLooks(Exception):
    """A list of moments was not completed: its expressions are too many or too rare, or `skip` excludes too many."""


class Interval(Struct, frozen=True):
    """Every `every_ms` since the epoch, moved by `offset_ms`. Clock changes do not affect it."""

    every_ms: int
    offset_ms: int = 0

    def after(self, at_ms: int) -> int:
        return (at_ms - self.offset_ms) // self.every_ms * self.every_ms + self.every_ms + self.offset_ms


class ScheduleSpec(Struct, frozen=True, kw_only=True):
    """The moments at which a schedule fires."""

    crons: tuple[Cron, ...] = ()
    calendars: tuple[Calendar, ...] = ()
    intervals: tuple[Interval, ...] = ()
    skip: tuple[Calendar, ...] = ()
    start_at_ms: int | None = None
    """No moment before this one."""
    end_at_ms: int | None = None
    """No moment after this one."""
    jitter_ms: int = 0
    time_zone: str = "UTC"
    gap: Gap = Gap.SHIFT
    repeat: Repeat = Repeat.FIRST

    @property
    def wall_clocks(self) -> tuple[WallClock, ...]:
        return (*self.crons, *self.calendars)


def next_moment(spec: ScheduleSpec, zone: tzinfo, after_ms: int) -> int | None:
    """The first nominal moment after `after_ms`; None if there is none."""
    return _Merge(spec, zone).after(after_ms)


def moments(spec: ScheduleSpec, zone: tzinfo, after_ms: int, until_ms: int | None = None) -> Iterator[int]:
    """The nominal moments after `after_ms`, ascending, up to and including `until_ms`.

    They end early after `LOOKS_MAX`: for those who show some of the moments.
    """
    with contextlib.suppress(TooManyLooks):
        yield from all_moments(spec, zone, after_ms, until_ms)


def all_moments(
    spec: ScheduleSpec, zone: tzinfo, after_ms: int, until_ms: int | None = None, looks_max: int = LOOKS_MAX
) -> Iterator[int]:
    """The same, for those who need every one: raises `TooManyLooks` instead of ending early."""
    merge = _Merge(spec, zone)
    while (at_ms := merge.after(after_ms)) is not None and (until_ms is None or at_ms <= until_ms):
        yield at_ms
        after_ms = at_ms
        if merge.looks > looks_max:
            raise TooManyLooks


class _Merge:
    """The moments of a specification in order, for ascending questions, and what finding them has cost."""

    def __init__(self, spec: ScheduleSpec, zone: tzinfo) -> None:
        self._spec, self._zone = spec, zone
        sources: tuple[WallClock | Interval, ...] = (*spec.wall_clocks, *spec.intervals)
        self._sources = tuple(dict.fromkeys(sources))
        self._found: list[int | None] = [-1] * len(self._sources)
        self._cost_of_skip = 1 + len(spec.skip) // _SKIPS_PER_LOOK
        self.looks = 0

    def after(self, after_ms: int) -> int | None:
        """The first nominal moment after `after_ms`; None also if `skip` leaves none within the budget."""
        after_ms = max(after_ms, FIRST_MS - 1)
        if self._spec.start_at_ms is not None:
            after_ms = max(after_ms, self._spec.start_at_ms - 1)
        looks_max = self.looks + LOOKS_MAX
        for _ in range(SKIPPED_MAX):
            found = self._candidate(after_ms) if after_ms < _LAST_MS else None
            if found is None or (self._spec.end_at_ms is not None and found > self._spec.end_at_ms):
                return None
            if not _is_skipped(self._spec, self._zone, found):
                return found
            self.looks += self._cost_of_skip
            if self.looks > looks_max:
                return None
            after_ms = found
        return None

    def _candidate(self, after_ms: int) -> int | None:
        """The first moment of any source, whether `skip` excludes it or not."""
        for number, source in enumerate(self._sources):
            known = self._found[number]
            if known is not None and known <= after_ms:
                self._found[number] = found = self._evaluated(source, after_ms)
                self.looks += 1 + _days(after_ms, found) // DAYS_PER_LOOK
        return min((each for each in self._found if each is not None), default=None)

    def _evaluated(self, source: WallClock | Interval, after_ms: int) -> int | None:
        if isinstance(source, Interval):
            return source.after(after_ms)
        after = _EPOCH + timedelta(milliseconds=after_ms)
        found = next_instant(source, self._zone, after, self._spec.gap, self._spec.repeat)
        return None if found is None else (found - _EPOCH) // timedelta(milliseconds=1)


def _days(from_ms: int, to_ms: int | None) -> int:
    """The days that were scanned for a moment; up to the horizon where there is none."""
    return _DAYS_SCANNED_MAX if to_ms is None else min((to_ms - from_ms) // 86_400_000, _DAYS_SCANNED_MAX)


def fires_at_ms(spec: ScheduleSpec, zone: tzinfo, schedule_id: str, nominal_ms: int) -> int:
    """When the fire of a nominal moment is due, with its jitter."""
    if not spec.jitter_ms:
        return nominal_ms
    following = next_moment(spec, zone, nominal_ms)
    room_ms = spec.jitter_ms if following is None else min(spec.jitter_ms, following - nominal_ms)
    digest = hashlib.blake2b(f"{schedule_id}\n{nominal_ms}".encode(), digest_size=8).digest()
    return nominal_ms + int.from_bytes(digest) % room_ms


def _is_skipped(spec: ScheduleSpec, zone: tzinfo, at_ms: int) -> bool:
    if not spec.skip:
        return False
    wall = wall_time(_EPOCH + timedelta(milliseconds=at_ms), zone).replace(microsecond=0)
    return any(each.matches(wall) for each in spec.skip)
