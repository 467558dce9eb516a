"""When a schedule fires: its specification, and the nominal moments that follow from it.

A specification is the union of cron expressions, calendars and intervals, less the calendars in `skip`, between
`start_at_ms` and `end_at_ms`. Its *nominal moments* are a function of the specification and the zone data alone. The
next moment is always computed from the previous nominal moment, never from the clock: a fire that is late does not
lose the ones that follow.

Jitter delays a fire by a hash of schedule and nominal moment, so that another server computes the same delay, and by
less than the distance to the next nominal moment, so that fires keep their order. Code sees the nominal moment.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Final

from msgspec import Struct

from penstock.core.schedules.cron import Calendar, Cron, WallClock
from penstock.core.schedules.wall_clock import UTC, Gap, Repeat, next_instant, wall_time

EXPRESSIONS_MAX: Final = 64
"""Cron expressions, calendars, intervals and skipped calendars, each."""
SKIPPED_MAX: Final = 3_000
"""After this many moments in a row that `skip` excludes (a weekend of minutes), there are taken to be no more."""
LOOKS_MAX: Final = 20_000
"""Times that one list evaluates an expression, a calendar or an interval: less than a second of CPU."""
JITTER_MS_MAX: Final = 3_600_000
INTERVAL_MS_MIN: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS: Final = 0
"""The year 1970, and so no moment before it: arithmetic with time zones ends at the year 1."""
_LAST_MS: Final = 221_845_392_000_000
"""The year 9000, and so no moment after it: arithmetic with time zones ends at the year 9999."""


class TooManyLooks(Exception):
    """A list of moments was not completed: it has too many expressions, or `skip` excludes too many moments."""


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
    return _next(spec, zone, after_ms)[0]


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
    looks, sources = 0, len(spec.wall_clocks) + len(spec.intervals)
    while True:
        at_ms, looked = _next(spec, zone, after_ms)
        if at_ms is None or (until_ms is not None and at_ms > until_ms):
            return
        yield at_ms
        after_ms, looks = at_ms, looks + looked * sources
        if looks > looks_max:
            raise TooManyLooks


def _next(spec: ScheduleSpec, zone: tzinfo, after_ms: int) -> tuple[int | None, int]:
    """The first nominal moment after `after_ms`, and how many moments were looked at."""
    after_ms = max(after_ms, FIRST_MS - 1)
    if spec.start_at_ms is not None:
        after_ms = max(after_ms, spec.start_at_ms - 1)
    for looked in range(1, SKIPPED_MAX + 1):
        if after_ms >= _LAST_MS:
            return None, looked
        found = _candidate(spec, zone, after_ms)
        if found is None or (spec.end_at_ms is not None and found > spec.end_at_ms):
            return None, looked
        if not _is_skipped(spec, zone, found):
            return found, looked
        after_ms = found
    return None, SKIPPED_MAX


def fires_at_ms(spec: ScheduleSpec, zone: tzinfo, schedule_id: str, nominal_ms: int) -> int:
    """When the fire of a nominal moment is due, with its jitter."""
    if not spec.jitter_ms:
        return nominal_ms
    following = next_moment(spec, zone, nominal_ms)
    room_ms = spec.jitter_ms if following is None else min(spec.jitter_ms, following - nominal_ms)
    digest = hashlib.blake2b(f"{schedule_id}\n{nominal_ms}".encode(), digest_size=8).digest()
    return nominal_ms + int.from_bytes(digest) % room_ms


def _candidate(spec: ScheduleSpec, zone: tzinfo, after_ms: int) -> int | None:
    """The first moment of any expression or interval, whether `skip` excludes it or not."""
    after = _EPOCH + timedelta(milliseconds=after_ms)
    found = [next_instant(each, zone, after, spec.gap, spec.repeat) for each in spec.wall_clocks]
    due = [(each - _EPOCH) // timedelta(milliseconds=1) for each in found if each is not None]
    return min([*due, *(each.after(after_ms) for each in spec.intervals)], default=None)


def _is_skipped(spec: ScheduleSpec, zone: tzinfo, at_ms: int) -> bool:
    if not spec.skip:
        return False
    wall = wall_time(_EPOCH + timedelta(milliseconds=at_ms), zone).replace(microsecond=0)
    return any(each.matches(wall) for each in spec.skip)
