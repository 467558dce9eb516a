"""From wall-clock times to instants: what a schedule does when the clocks change.

Theory of operation. A zone maps every instant to one wall-clock time, but not the other way round. When clocks go
forward, some wall-clock times do not exist (a gap); when they go back, some happen twice (a repeat). The rule, which
is that of Debian's cron by default:

* Times of day: `gap` decides whether a time in a gap is moved to the first instant after it (`shift`) or left out
  (`skip`); `repeat` decides whether a repeated time fires at its `first`, its `last` or `both` occurrences.
* Expressions that count elapsed time (`*` or `*/n` in minute or hour) fire at every instant whose wall-clock time
  matches: nothing in a gap, and both passes of a repeat. `*/30` stays every half hour of real time.

`next_instant` scans wall-clock times and maps each to its instants. Instants come in the order of their wall-clock
times except near a clock change, so the scan starts at the earliest wall-clock time that could still map to an instant
after the given one, and ends when later wall-clock times can only map to later instants. The offsets in force within
26 hours on each side bound both; far away from a clock change they are equal, and the scan is one step.

Rejected: asking `cronsim` for zoned datetimes. It implements the default rule only, and calendars would need a second
implementation. The result depends on the arguments alone, so that every server computes the same moments; hence
the zone is an argument, loaded from packaged zone data.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import Final

from penstock.core.schedules.cron import WallClock

UTC: Final = timezone.utc  # noqa: UP017 (datetime.UTC is the same object; the tests of purity list this name)
NEAR: Final = timedelta(hours=26)
"""No clock change moves the clock by more than a day and two hours."""
SECOND: Final = timedelta(seconds=1)


class Gap(StrEnum):
    """What happens to a time of day that a clock change leaves out."""

    SHIFT = "shift"
    SKIP = "skip"


class Repeat(StrEnum):
    """Which occurrences of a time of day fire that a clock change repeats."""

    FIRST = "first"
    LAST = "last"
    BOTH = "both"


def next_instant(
    source: WallClock, zone: tzinfo, after: datetime, gap: Gap = Gap.SHIFT, repeat: Repeat = Repeat.FIRST
) -> datetime | None:
    """The first instant after `after` (in UTC) at which `source` fires; None if there is none."""
    if source.counts_real_time:
        gap, repeat = Gap.SKIP, Repeat.BOTH
    offsets = [_offset(zone, each) for each in (after - NEAR, after, after + NEAR)]
    least, most = min(offsets), max(offsets)
    first: datetime | None = None
    for wall in source.after(_naive(after + least) - SECOND):
        if first is not None and (wall - most).replace(tzinfo=UTC) >= first:
            break
        found = [each for each in instants(wall, zone, gap, repeat) if each > after]
        if found and (first is None or found[0] < first):
            first = found[0]
        if found and wall > _naive(after + most + NEAR):
            break  # beyond the bounds of the offsets, instants are in the order of their wall-clock times
    return first


def instants(wall: datetime, zone: tzinfo, gap: Gap, repeat: Repeat) -> list[datetime]:
    """The instants of one wall-clock time: none, one or two, ascending, in UTC."""
    earlier, later = (wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    before, after = earlier.utcoffset(), later.utcoffset()
    assert before is not None
    assert after is not None
    if before == after:
        return [earlier.astimezone(UTC)]
    if before < after:
        return [_end_of_gap(zone, later.astimezone(UTC), earlier.astimezone(UTC))] if gap is Gap.SHIFT else []
    both = [earlier.astimezone(UTC), later.astimezone(UTC)]
    return {Repeat.FIRST: both[:1], Repeat.LAST: both[1:], Repeat.BOTH: both}[repeat]


def wall_time(instant: datetime, zone: tzinfo) -> datetime:
    """The wall-clock time of an instant, without its zone."""
    return instant.astimezone(zone).replace(tzinfo=None)


def _end_of_gap(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """The instant of the clock change between two instants, by bisection to the second."""
    offset = _offset(zone, before)
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, before + timedelta(seconds=middle)) == offset:
            low = middle
        else:
            high = middle
    return before + timedelta(seconds=high)


def _offset(zone: tzinfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _naive(instant: datetime) -> datetime:
    return instant.replace(tzinfo=None)
