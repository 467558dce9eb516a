"""Cron expressions and calendars as sequences of wall-clock times.

Both name datetimes without a zone, so that this module knows nothing of clock changes; `wall_clock` turns them into
instants. Cron expressions are evaluated by `cronsim`, and have exactly five fields: with six, cronsim would read the
first one as seconds, and `* * * * * *` would fire every second by accident. Sub-minute schedules are intervals or
calendars, which say so.

A calendar is the structured form of Temporal: a list of ranges for each field, all of which must match. Its times are
counted out from the matching days, so that the next one costs the same however rare it is. Rejected: compiling it to a
cronsim expression with seconds, which looks at every second up to the next match.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol

from cronsim import CronSim, CronSimError
from msgspec import Struct

MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
EXPRESSION_MAX: Final = 256
HORIZON_YEARS: Final = 50
"""An expression without a match for this long never fires (cronsim gives up at the same distance)."""
YEAR_MIN, YEAR_MAX = 1970, 9000
_PROBE: Final = datetime(2024, 1, 1)  # noqa: DTZ001 (a wall-clock time)


class InvalidExpression(ValueError):
    """What is wrong with an expression, as a sentence for its author."""


class WallClock(Protocol):
    """A source of wall-clock times."""

    @property
    def counts_real_time(self) -> bool:
        """Whether it recurs hourly or within the hour (`*`, `*/n`), and so follows elapsed time over clock changes."""

    def after(self, wall: datetime) -> Iterator[datetime]:
        """The wall-clock times after `wall`, ascending, each to the second."""


class Cron(Struct, frozen=True):
    """A five-field cron expression, with macros expanded."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Check an expression; raises `InvalidExpression` with the field that is wrong."""
        words = " ".join(text.split())
        if len(words) > EXPRESSION_MAX:
            raise InvalidExpression(f"is longer than {EXPRESSION_MAX} characters")
        expression = MACROS.get(words.lower(), words)
        if expression.startswith("@"):
            raise InvalidExpression(f"has an unknown macro {words!r}; there are {', '.join(MACROS)}")
        if (fields := len(expression.split())) != 5:
            seconds = " Schedules with seconds are intervals or calendars." if fields == 6 else ""
            raise InvalidExpression(
                f"has {fields} fields, not five (minute, hour, day of month, month, day of week).{seconds}"
            )
        try:
            next(CronSim(expression, _PROBE))
        except CronSimError as error:
            raise InvalidExpression(f"has a {str(error).lower().replace('-', ' ')} field") from None
        except StopIteration:
            raise InvalidExpression(
                f"has no match in {HORIZON_YEARS} years, so it would never fire"
            ) from None
        return cls(expression)

    @property
    def counts_real_time(self) -> bool:
        minute, hour = self.text.split()[:2]
        return minute.startswith("*") or hour.startswith("*")

    def after(self, wall: datetime) -> Iterator[datetime]:
        return CronSim(self.text, wall)

    def in_words(self) -> str:
        """The expression in English."""
        return CronSim(self.text, _PROBE).explain()


class Range(Struct, frozen=True):
    """The numbers from `start` to `end`, every `step`-th."""

    start: int
    end: int
    step: int = 1

    def __contains__(self, number: int) -> bool:
        return self.start <= number <= self.end and (number - self.start) % self.step == 0

    def text(self) -> str:
        return f"{self.start}-{self.end}/{self.step}"


Ranges = tuple[Range, ...]
FIELDS: Final = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day_of_month": (1, 31),
    "month": (1, 12),
    "day_of_week": (0, 6),
    "year": (YEAR_MIN, YEAR_MAX),
}
"""The bounds of each field of a calendar. Sunday is 0."""


class Calendar(Struct, frozen=True, kw_only=True):
    """Ranges for each field; a wall-clock time matches if all of its fields do. No ranges: any value."""

    second: Ranges = (Range(0, 0),)
    minute: Ranges = (Range(0, 0),)
    hour: Ranges = (Range(0, 0),)
    day_of_month: Ranges = ()
    month: Ranges = ()
    day_of_week: Ranges = ()
    year: Ranges = ()

    def check(self) -> None:
        """Raise `InvalidExpression` for a range out of bounds, or if no wall-clock time ever matches."""
        for name, (least, most) in FIELDS.items():
            for each in getattr(self, name):
                if not least <= each.start <= each.end <= most or each.step < 1:
                    raise InvalidExpression(
                        f"has {name} {each.text()}: a range lies within {least} to {most}, from start to end, with a "
                        "step of at least 1"
                    )
        if next(self.after(_PROBE), None) is None:
            raise InvalidExpression(f"has no match in {HORIZON_YEARS} years, so it would never fire")

    @property
    def counts_real_time(self) -> bool:
        return _is_any(self.minute, "minute") or _is_any(self.hour, "hour")

    def matches(self, wall: datetime) -> bool:
        """Whether this wall-clock time, to the second, is one of the calendar's."""
        found = (wall.second, wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7, wall.year)
        return all(
            not (ranges := getattr(self, name)) or any(number in each for each in ranges)
            for name, number in zip(FIELDS, found, strict=True)
        )

    def after(self, wall: datetime) -> Iterator[datetime]:
        hours, minutes, seconds = (
            _numbers(getattr(self, name), name) for name in ("hour", "minute", "second")
        )
        for day in self._days_from(wall):
            is_first = day.date() == wall.date()
            for hour in hours:
                if is_first and hour < wall.hour:
                    continue
                for minute in minutes:
                    if is_first and (hour, minute) < (wall.hour, wall.minute):
                        continue
                    for second in seconds:
                        found = day.replace(hour=hour, minute=minute, second=second)
                        if not is_first or found > wall:
                            yield found

    def _days_from(self, wall: datetime) -> Iterator[datetime]:
        """The days that match, from that of `wall` on, each at midnight."""
        last = YEAR_MAX if self.year else min(wall.year + HORIZON_YEARS, YEAR_MAX)
        days = _numbers(self.day_of_month, "day_of_month")
        for year in range(wall.year, last + 1):
            if self.year and not any(year in each for each in self.year):
                continue
            for month in _numbers(self.month, "month"):
                if (year, month) < (wall.year, wall.month):
                    continue
                length = _days_of(year, month)
                for number in days:
                    if number > length or (year, month, number) < (wall.year, wall.month, wall.day):
                        continue
                    day = datetime(year, month, number)  # noqa: DTZ001 (a wall-clock time)
                    if not self.day_of_week or any(day.isoweekday() % 7 in each for each in self.day_of_week):
                        yield day


def _days_of(year: int, month: int) -> int:
    """The number of days of a month."""
    following = datetime(year + month // 12, month % 12 + 1, 1)  # noqa: DTZ001 (a wall-clock time)
    return (following - following.replace(year=year, month=month)).days


@lru_cache(maxsize=1024)
def _numbers(ranges: Ranges, name: str) -> tuple[int, ...]:
    """The numbers of a field, ascending; without ranges, all of them."""
    least, most = FIELDS[name]
    return tuple(
        number for number in range(least, most + 1) if not ranges or any(number in each for each in ranges)
    )


def _is_any(ranges: Ranges, name: str) -> bool:
    least, most = FIELDS[name]
    return not ranges or any((each.start, each.end) == (least, most) for each in ranges)
