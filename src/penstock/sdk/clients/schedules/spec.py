"""When a schedule fires: calendars, intervals and cron expressions in a time zone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

Json = dict[str, Any]
_SECOND: Final = timedelta(seconds=1)
_WEEKS: Final = re.compile(r"P(\d+)W(.*)")


@dataclass(frozen=True, slots=True)
class ScheduleRange:
    """The numbers from `start` to `end`, both included, every `step`-th.

    Args:
        start: the first number.
        end: the last number; less than `start`, as by default, it is `start`.
        step: distance between two numbers; 0 is 1.
    """

    start: int
    end: int = 0
    step: int = 0

    def on_the_wire(self) -> int | Json:
        if self.end <= self.start:
            return self.start
        return {"start": self.start, "end": self.end} | ({"step": self.step} if self.step > 1 else {})

    @classmethod
    def read(cls, body: int | Mapping[str, Any]) -> ScheduleRange:
        """Read a range, or a single number."""
        if isinstance(body, int):
            return cls(body)
        return cls(body["start"], body.get("end") or 0, body.get("step") or 0)


_ZERO: Final = (ScheduleRange(0),)


@dataclass(slots=True)
class ScheduleCalendarSpec:
    """Times of day on days of the calendar. A time matches if all fields do.

    Args:
        second: seconds, 0 to 59.
        minute: minutes, 0 to 59.
        hour: hours, 0 to 23.
        day_of_month: days, 1 to 31.
        month: months, 1 to 12.
        year: years; none is every year.
        day_of_week: days of the week; 0 is Sunday, 6 is Saturday.
        comment: text for people.
    """

    second: Sequence[ScheduleRange] = _ZERO
    minute: Sequence[ScheduleRange] = _ZERO
    hour: Sequence[ScheduleRange] = _ZERO
    day_of_month: Sequence[ScheduleRange] = (ScheduleRange(1, 31),)
    month: Sequence[ScheduleRange] = (ScheduleRange(1, 12),)
    year: Sequence[ScheduleRange] = ()
    day_of_week: Sequence[ScheduleRange] = (ScheduleRange(0, 6),)
    comment: str | None = None

    def on_the_wire(self) -> Json:
        found: Json = {}
        for name, default in _CALENDAR_FIELDS.items():
            ranges = tuple(getattr(self, name))
            if ranges and ranges != default:
                found[name] = [each.on_the_wire() for each in ranges]
        return found if self.comment is None else found | {"comment": self.comment}

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> ScheduleCalendarSpec:
        """Read a calendar of a response."""
        given = {name: body[name] for name in _CALENDAR_FIELDS if body.get(name)}
        ranges: dict[str, Any] = {name: [ScheduleRange.read(each) for each in given[name]] for name in given}
        return cls(**ranges, comment=body.get("comment"))


_CALENDAR_FIELDS: Final[Mapping[str, object]] = {
    each.name: each.default for each in fields(ScheduleCalendarSpec) if each.name != "comment"
}


@dataclass(slots=True)
class ScheduleIntervalSpec:
    """A fixed distance since 1970-01-01 UTC. Clock changes do not affect it.

    Args:
        every: the distance, in whole seconds.
        offset: moves all moments, by less than `every`.
    """

    every: timedelta
    offset: timedelta | None = None

    def on_the_wire(self) -> Json:
        found: Json = {"every": _duration(self.every, "every")}
        return found if not self.offset else found | {"offset": _duration(self.offset, "offset")}

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> ScheduleIntervalSpec:
        """Read an interval of a response."""
        offset = body.get("offset")
        return cls(_read_duration(body["every"]), None if offset is None else _read_duration(offset))


@dataclass(slots=True)
class ScheduleSpec:
    """When a schedule fires: at the moments of all calendars, intervals and cron expressions, without `skip`.

    Args:
        calendars: times by calendar fields.
        intervals: fixed distances.
        cron_expressions: expressions of five fields, such as `30 2 * * MON`, or `@daily` and the like.
        skip: times at which it does not fire.
        start_at: no moment before this time.
        end_at: no moment after this time.
        jitter: delays each fire by up to this time, in whole seconds, at most an hour. The delay of a moment is
            always the same.
        time_zone_name: IANA name of the time zone of calendars and cron expressions; UTC unless given.
        gap: what happens to a time of day that a clock change leaves out: `shift` fires right after it (the
            default), `skip` does not fire.
        repeat: which occurrence of a time of day fires that a clock change repeats: `first` (the default), `last`
            or `both`.
    """

    calendars: Sequence[ScheduleCalendarSpec] = field(default_factory=list)
    intervals: Sequence[ScheduleIntervalSpec] = field(default_factory=list)
    cron_expressions: Sequence[str] = field(default_factory=list)
    skip: Sequence[ScheduleCalendarSpec] = field(default_factory=list)
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: timedelta | None = None
    time_zone_name: str | None = None
    gap: Literal["shift", "skip"] | None = None
    repeat: Literal["first", "last", "both"] | None = None

    def on_the_wire(self) -> Json:
        """The specification of a request. The jitter is a field of its own there."""
        if isinstance(self.cron_expressions, str):
            raise TypeError("cron_expressions is a list: cron_expressions=[…]")
        found: Json = {
            "calendars": [each.on_the_wire() for each in self.calendars],
            "intervals": [each.on_the_wire() for each in self.intervals],
            "cron_expressions": list(self.cron_expressions),
            "skip": [each.on_the_wire() for each in self.skip],
            "start_at": instant(self.start_at, "start_at"),
            "end_at": instant(self.end_at, "end_at"),
            "timezone": self.time_zone_name,
            "gap": self.gap,
            "repeat": self.repeat,
        }
        return {name: value for name, value in found.items() if value}

    @property
    def jitter_seconds(self) -> int:
        return 0 if self.jitter is None else whole_seconds(self.jitter, "jitter")

    @classmethod
    def read(cls, body: Mapping[str, Any], jitter_seconds: int | None = None) -> ScheduleSpec:
        """Read the specification of a response."""
        return cls(
            calendars=[ScheduleCalendarSpec.read(each) for each in body.get("calendars") or ()],
            intervals=[ScheduleIntervalSpec.read(each) for each in body.get("intervals") or ()],
            cron_expressions=list(body.get("cron_expressions") or ()),
            skip=[ScheduleCalendarSpec.read(each) for each in body.get("skip") or ()],
            start_at=_read_instant(body.get("start_at")),
            end_at=_read_instant(body.get("end_at")),
            jitter=timedelta(seconds=jitter_seconds) if jitter_seconds else None,
            time_zone_name=body.get("timezone"),
            gap=body.get("gap"),
            repeat=body.get("repeat"),
        )


def instant(at: datetime | None, name: str) -> str | None:
    """A time as the server reads it; raises `ValueError` for one without a time zone."""
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise TypeError(f"{name} must be a datetime, not {type(at).__name__}")
    if at.tzinfo is None:
        raise ValueError(f"{name} has no time zone: write datetime(…, tzinfo=UTC)")
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def whole_seconds(span: timedelta, name: str) -> int:
    """A duration of whole seconds; raises if it is anything else."""
    if not isinstance(span, timedelta):
        raise TypeError(f"{name} must be a timedelta, not {type(span).__name__}")
    if span < timedelta(0) or span % _SECOND:
        raise ValueError(f"{name} must be whole seconds, not {span.total_seconds():g}")
    return span // _SECOND


def _duration(span: timedelta, name: str) -> str:
    """An ISO 8601 duration: PT30M, PT12H, P1D."""
    minutes, seconds = divmod(whole_seconds(span, name), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    time = "".join(
        f"{value}{unit}" for value, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if value
    )
    if not days and not time:
        return "PT0S"
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


def _read_duration(text: str) -> timedelta:
    weeks = _WEEKS.fullmatch(text)
    if weeks is None:
        return msgspec.convert(text, timedelta)
    rest = timedelta(0) if not weeks[2] else msgspec.convert(f"P{weeks[2]}", timedelta)
    return timedelta(weeks=int(weeks[1])) + rest


def _read_instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
