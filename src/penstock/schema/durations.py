"""How long, as people write it in a file: `0:10:00`, `PT10M`, `1h30m` or a number of seconds."""

from __future__ import annotations

import re
from datetime import date, time, timedelta
from fractions import Fraction
from math import isfinite

LETTERS_MAX = 100
FORMS = "write H:MM:SS, ISO 8601 like PT10M, or units like 90s and 1h30m"
_CLOCK = re.compile(r"(?:(\d+) ?(?:d|day|days),? +)?(\d+):([0-5]\d):([0-5]\d)(?:\.(\d+))?", re.ASCII)
_ISO = re.compile(
    r"P(?=.)(?:(\d+)W)?(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_CALENDAR = re.compile(r"P[\dWD.]*\d+[MY].*", re.ASCII | re.IGNORECASE)
_UNIT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.ASCII)
_TWO_PARTS = re.compile(r"\d+:\d+", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_duration(value: object) -> timedelta:
    """Parse a duration, to the microsecond. Raises `ValueError` with the accepted forms."""
    try:
        return _parsed(value)
    except OverflowError:
        raise ValueError(f"{value!r} is longer than any duration") from None


def _parsed(value: object) -> timedelta:
    match value:
        case timedelta():
            return value
        case bool():
            raise ValueError(f"{str(value).lower()} is a boolean, not a duration; {FORMS}")
        case int():
            return timedelta(seconds=value)
        case float() if isfinite(value):
            return timedelta(microseconds=int(Fraction(str(value)) * 1_000_000))
        case time() | date():
            raise ValueError(f"{value} is a TOML time, not a duration; quote it")
        case str():
            return _from_text(value.strip())
        case _:
            raise ValueError(f"{value!r} is not a duration; {FORMS}")


def _from_text(text: str) -> timedelta:
    if len(text) > LETTERS_MAX:
        raise ValueError(f"{text[:20]!r}… is not a duration; {FORMS}")
    if found := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds, rest = found.groups(default="0")
        return _sum("0", days, hours, minutes, seconds, rest)
    if found := _ISO.fullmatch(text):
        return _sum(*found.groups(default="0"))
    compact = text.replace(" ", "")
    if compact and not _UNIT.sub("", compact):
        return _of_units(compact)
    raise ValueError(_refusal(text))


def _sum(weeks: str, days: str, hours: str, minutes: str, seconds: str, rest: str) -> timedelta:
    return timedelta(
        weeks=int(weeks),
        days=int(days),
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        microseconds=int(rest.ljust(6, "0")[:6]),
    )


def _of_units(text: str) -> timedelta:
    total = sum(Fraction(number) * _UNIT_MS[unit] for number, unit in _UNIT.findall(text))
    return timedelta(microseconds=int(total * 1000))


def _refusal(text: str) -> str:
    if _TWO_PARTS.fullmatch(text):
        return f"{text!r} is ambiguous, write H:MM:SS"
    if _CALENDAR.fullmatch(text):
        return f"{text!r} has months or years, whose length depends on the calendar; count days"
    if text.isdecimal():
        return f"{text!r} is a number in quotes; without quotes it means seconds"
    return f"{text!r} is not a duration; {FORMS}"
