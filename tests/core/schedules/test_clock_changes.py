"""When cron expressions fire over clock changes: compared with a scan by the minute and with a second library."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from crondst import CronDst

from penstock.core.schedules.cron import Cron
from penstock.core.schedules.wall_clock import Gap, Repeat, next_instant
from tests.support.effort import EFFORT

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIRST_YEAR, LAST_YEAR = 2020, 2040
EXPRESSIONS = (
    *(
        "30 2 * * *",
        "0 * * * *",
        "*/30 * * * *",
        "30 1-3 * * *",
        "0 0 * * *",
        "15,45 0-3 * * *",
        "59 23 * * *",
    ),
    *(
        "* 2 * * *",
        "0 */2 * * *",
        "30 0 * * SUN",
        "0 3 1 * *",
        "*/7 1 * * *",
        "5 2 * * 1-5",
        "45 23,0,1 * * *",
    ),
)
ZONES = [
    line
    for line in resources.files("tzdata").joinpath("zones").read_text().splitlines()
    if not line.startswith(("Etc/", "posix", "right"))
]


def packaged(name: str) -> ZoneInfo:
    """A zone from the packaged data, which every server uses, and not from the system's."""
    with resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def changes(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    """The days in which the offset changes, with the offsets before and after."""
    day = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
    while day.year < LAST_YEAR:
        before, after = (each.astimezone(zone).utcoffset() for each in (day, day + DAY))
        assert before is not None
        assert after is not None
        if before != after:
            yield day, before, after
        day += DAY


@cache
def distinct_changes() -> list[tuple[str, datetime]]:
    """One of each kind of clock change of all zones: what differs is its moment in the day and its size.

    With more than the usual effort, every change of every zone, once where zones share it.
    """
    kinds: dict[tuple[object, ...], tuple[str, datetime]] = {}
    for name in ZONES:
        zone = packaged(name)
        for day, before, after in changes(zone):
            moment = (day,) if EFFORT > 1 else (day.year % 4, day.month)
            kinds.setdefault((before, after, *moment), (name, day))
    return list(kinds.values())


class Fields:
    """A cron expression as sets of numbers: the definition that is scanned, written without the code under test."""

    def __init__(self, text: str) -> None:
        minute, hour, day, month, weekday = text.replace("SUN", "0").split()
        self.minute, self.hour = self._set(minute, 0, 59), self._set(hour, 0, 23)
        self.day, self.month = self._set(day, 1, 31), self._set(month, 1, 12)
        self.weekday = {number % 7 for number in self._set(weekday, 0, 7)}
        self.real_time = minute.startswith("*") or hour.startswith("*")

    @staticmethod
    def _set(text: str, least: int, most: int) -> set[int]:
        found: set[int] = set()
        for part in text.split(","):
            span, _, step = part.partition("/")
            low, _, high = (f"{least}-{most}" if span == "*" else span).partition("-")
            found.update(range(int(low), int(high or low) + 1, int(step or 1)))
        return found

    def match(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minute
            and wall.hour in self.hour
            and wall.day in self.day
            and wall.month in self.month
            and wall.isoweekday() % 7 in self.weekday
        )


def scanned(
    fields: Fields, zone: ZoneInfo, after: datetime, until: datetime, gap: Gap, repeat: Repeat
) -> list[datetime]:
    """Every minute is looked at: does its wall-clock time match, and is it the occurrence that the rule takes?"""
    found = []
    instant, previous = after, after.astimezone(zone).replace(tzinfo=None)
    while (instant := instant + MINUTE) < until:
        wall = instant.astimezone(zone)
        naive = wall.replace(tzinfo=None, fold=0)
        if fields.match(wall) and (fields.real_time or _takes(wall, zone, repeat)):
            found.append(instant)
        elif naive - previous > MINUTE and not fields.real_time and gap is Gap.SHIFT:
            left_out = int((naive - previous) / MINUTE)
            if any(fields.match(previous + n * MINUTE) for n in range(1, left_out)):
                found.append(instant)
        previous = naive
    return found


def _takes(wall: datetime, zone: ZoneInfo, repeat: Repeat) -> bool:
    first, last = (wall.replace(fold=fold).utcoffset() for fold in (0, 1))
    if first == last or repeat is Repeat.BOTH:
        return True
    return wall.fold == (repeat is Repeat.LAST)


def fired(
    text: str, zone: ZoneInfo, after: datetime, until: datetime, gap: Gap, repeat: Repeat
) -> list[datetime]:
    cron, found, instant = Cron.parse(text), [], after
    while (at := next_instant(cron, zone, instant, gap, repeat)) is not None and at < until:
        found.append(at)
        instant = at
    return found


@pytest.mark.parametrize("gap", Gap)
@pytest.mark.parametrize("repeat", Repeat)
def test_cron_fires_as_a_scan_by_the_minute_finds_at_every_kind_of_clock_change(gap: Gap, repeat: Repeat):
    dice = random.Random(f"{gap} {repeat}")
    for name, day in distinct_changes():
        zone, text = packaged(name), dice.choice(EXPRESSIONS)
        after, until = day - HOUR, day + DAY + 5 * HOUR
        expected = scanned(Fields(text), zone, after, until, gap, repeat)
        assert fired(text, zone, after, until, gap, repeat) == expected, (name, text, day)


def test_cron_fires_as_another_library_says_in_every_zone_for_twenty_years():
    """Only times of day that a clock change may move; the other library reads `*/n` of hours differently."""
    dice = random.Random(20)
    after, until = datetime(FIRST_YEAR, 1, 1, 12, tzinfo=UTC), datetime(LAST_YEAR, 1, 1, tzinfo=UTC)
    for name in ZONES:
        zone, text = (
            packaged(name),
            dice.choice(("30 2 1,15 * *", "30 1-3 * 3,4,10,11 0", "0 0 1 * *", "59 23 28 * *")),
        )
        others = (each.astimezone(UTC) for each in CronDst(text).iter(after.astimezone(zone)))
        expected = list(takewhile(lambda each: each < until, others))
        assert fired(text, zone, after, until, Gap.SHIFT, Repeat.FIRST) == expected, (name, text)


def test_the_hour_after_a_half_hour_repeat_fires():
    """Lord Howe sets its clock back from 02:00 to 01:30, so 02:00 comes half an hour later."""
    zone = packaged("Australia/Lord_Howe")
    after = datetime(2025, 4, 5, 14, 0, tzinfo=UTC)
    found = fired("0 */2 * * *", zone, after, after + 4 * HOUR, Gap.SHIFT, Repeat.FIRST)
    assert [each.astimezone(zone).isoformat() for each in found] == [
        "2025-04-06T02:00:00+10:30",
        "2025-04-06T04:00:00+10:30",
    ]
