"""The specification of a schedule as its owner writes it, and back: JSON, with ISO 8601 durations and instants.

The stored text is what was written, so that a description shows `@daily` and not its expansion. `read_spec` checks all
of it and names each field that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from penstock.core import json_text
from penstock.core.schedules.cron import FIELDS, Calendar, Cron, InvalidExpression, Range
from penstock.core.schedules.spec import (
    EXPRESSIONS_MAX,
    INTERVAL_MS_MIN,
    Interval,
    ScheduleSpec,
)
from penstock.core.schedules.wall_clock import Gap, Repeat
from penstock.core.timestamps import instant

T = TypeVar("T")
DURATION_MAX: Final = 64
INTERVAL_MS_MAX: Final = 10 * 365 * 86_400_000
_DURATION = re.compile(
    r"P(?:(?P<years>\d{1,9})Y)?(?:(?P<months>\d{1,9})M)?(?:(?P<weeks>\d{1,9})W)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9})S)?)?",
    re.ASCII,
)
_UNITS_MS: Final = {
    "weeks": 604_800_000,
    "days": 86_400_000,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1_000,
}


class InvalidSpec(ValueError):
    """What is wrong with a specification: problems by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{field} {problem}" for field, problem in problems.items()))
        self.problems = problems


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration of weeks, days, hours, minutes and seconds.

    Raises `InvalidExpression`, also for years and months, which have no fixed length.
    """
    found = _DURATION.fullmatch(text) if len(text) <= DURATION_MAX else None
    if found is None or not any(found.groupdict().values()) or text.endswith("T"):
        raise InvalidExpression("is not an ISO 8601 duration such as PT30M, PT12H or P1D")
    if found["years"] or found["months"]:
        raise InvalidExpression(
            "has years or months, which have no fixed length: use a cron expression (0 0 1 * * is once a month)"
        )
    return sum(int(found[unit] or 0) * ms for unit, ms in _UNITS_MS.items())


@lru_cache(maxsize=1024)
def stored_spec(text: str, jitter_ms: int) -> ScheduleSpec:
    """The specification of a stored schedule."""
    return read_spec(json_text.read(text), jitter_ms)


def read_spec(document: Mapping[str, Any], jitter_ms: int = 0) -> ScheduleSpec:
    """Check a specification; raises `InvalidSpec` with a problem for each field that is wrong.

    The time zone is not looked up: the core has no zone data.
    """
    problems: dict[str, str] = {}
    crons = _each(document, "cron_expressions", Cron.parse, problems)
    intervals = _each(document, "intervals", _interval, problems)
    calendars = _each(document, "calendars", _calendar, problems)
    skip = _each(document, "skip", _calendar, problems)
    start_at_ms = _instant(document, "start_at", problems)
    end_at_ms = _instant(document, "end_at", problems)
    if not problems and not (crons or intervals or calendars):
        problems["cron_expressions"] = "is empty, and so are intervals and calendars: it would never fire"
    if start_at_ms is not None and end_at_ms is not None and end_at_ms <= start_at_ms:
        problems["end_at"] = "is not after start_at"
    if problems:
        raise InvalidSpec(problems)
    return ScheduleSpec(
        crons=crons,
        calendars=calendars,
        intervals=intervals,
        skip=skip,
        start_at_ms=start_at_ms,
        end_at_ms=end_at_ms,
        jitter_ms=jitter_ms,
        time_zone=document.get("timezone") or "UTC",
        gap=Gap(document.get("gap") or Gap.SHIFT),
        repeat=Repeat(document.get("repeat") or Repeat.FIRST),
    )


def _each(
    document: Mapping[str, Any], name: str, read: Callable[[Any], T], problems: dict[str, str]
) -> tuple[T, ...]:
    given: Sequence[Any] = document.get(name) or ()
    if len(given) > EXPRESSIONS_MAX:
        problems[name] = f"has {len(given)} entries, at most {EXPRESSIONS_MAX}"
        return ()
    found: list[T] = []
    for index, each in enumerate(given):
        try:
            found.append(read(each))
        except InvalidExpression as error:
            problems[f"{name}.{index}"] = str(error)
    return tuple(found)


def _interval(document: Mapping[str, Any]) -> Interval:
    every_ms = duration_ms(document["every"])
    offset_ms = duration_ms(document["offset"]) if document.get("offset") else 0
    if not INTERVAL_MS_MIN <= every_ms <= INTERVAL_MS_MAX:
        raise InvalidExpression("is every less than a second, or every more than ten years")
    if offset_ms >= every_ms:
        raise InvalidExpression("has an offset that is not less than the interval")
    return Interval(every_ms, offset_ms)


def _calendar(document: Mapping[str, Any]) -> Calendar:
    fields = {name: tuple(map(_range, document[name])) for name in FIELDS if document.get(name) is not None}
    calendar = Calendar(**fields)
    calendar.check()
    return calendar


def _range(document: int | Mapping[str, Any]) -> Range:
    if isinstance(document, int):
        return Range(document, document)
    start: int = document["start"]
    end, step = document.get("end"), document.get("step")
    return Range(start, start if end is None else end, 1 if step is None else step)


def _instant(document: Mapping[str, Any], name: str, problems: dict[str, str]) -> int | None:
    text = document.get(name)
    if text is None:
        return None
    at_ms = instant(text)
    if at_ms is None:
        problems[name] = "is not an ISO 8601 instant such as 2026-01-31T12:00:00Z"
    return at_ms
