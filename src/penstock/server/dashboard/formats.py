"""How values are written on pages: counts, durations, instants, and shares.

Durations have two units at most, counts have thousands separators, times are UTC and carry a date only if it is not
the day of the snapshot. A value that does not apply is an en dash; zero is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import pass_context
from jinja2.runtime import Context

from penstock.core.timestamps import instant

NOT_APPLICABLE: Final = "–"
_DAY_S: Final = 86_400


def count(value: object) -> str:
    """A whole number with thousands separators; a fraction with at most two digits."""
    if value is None:
        return NOT_APPLICABLE
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    return f"{int(value):,}" if isinstance(value, int | float) else str(value)


def duration(seconds: object) -> str:
    """A length of time in its two largest units: `3 h 30 min`, `14 min 2 s`, `1.4 s`, `40 ms`."""
    if not isinstance(seconds, int | float):
        return NOT_APPLICABLE
    s = max(0.0, float(seconds))
    if s < 1:
        return f"{round(s * 1000)} ms" if s else "0 s"
    if s < 10:
        return f"{s:.1f}".rstrip("0").rstrip(".") + " s"
    whole = round(s)
    for size, unit, less, small in (
        (_DAY_S, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def percent(share: object) -> str:
    """A share of one as a percentage with one digit."""
    return f"{share * 100:.1f}%" if isinstance(share, int | float) else NOT_APPLICABLE


def per_minute(per_second: object) -> str:
    """A rate a second as one a minute."""
    if not isinstance(per_second, int | float):
        return NOT_APPLICABLE
    rate = per_second * 60
    return count(round(rate)) if rate >= 100 or float(rate).is_integer() else f"{rate:.1f}"


def width(used: object, most: object) -> int:
    """How much of a bar is filled, from 0 to 100."""
    if not isinstance(used, int | float) or not isinstance(most, int | float) or most <= 0:
        return 0 if not used else 100
    return max(0, min(100, round(100 * used / most)))


def tone(used: object, most: object) -> str:
    """The tone of a bar: `full` at the limit, `near` from three quarters on."""
    filled = width(used, most)
    if isinstance(used, int | float) and isinstance(most, int | float) and used >= most:
        return "full"
    return "near" if filled >= 75 else ("" if filled else "idle")


def moment_ms(value: object) -> int | None:
    """The epoch milliseconds of an instant of the API."""
    return value if isinstance(value, int) else instant(value) if isinstance(value, str) else None


def clock(value: object, now_ms: int) -> str:
    """The time of an instant, to the second, with its date if that is not the day of `now_ms`."""
    at_ms = moment_ms(value)
    if at_ms is None:
        return NOT_APPLICABLE
    at, today = _utc(at_ms), _utc(now_ms)
    if at.date() == today.date():
        return at.strftime("%H:%M:%S")
    return at.strftime("%-d %b %H:%M") if at.year == today.year else at.strftime("%-d %b %Y")


def ago(value: object, now_ms: int) -> str:
    """How long ago, or in how long, an instant is."""
    at_ms = moment_ms(value)
    if at_ms is None:
        return NOT_APPLICABLE
    away_s = abs(now_ms - at_ms) // 1000
    return f"{duration(away_s)} ago" if at_ms <= now_ms else f"in {duration(away_s)}"


def lasted(run: Mapping[str, Any], now_ms: int) -> str:
    """How long a run has been open, or was."""
    from_ms, to_ms = moment_ms(run["started_at"]), moment_ms(run["closed_at"])
    return (
        NOT_APPLICABLE
        if from_ms is None
        else duration(((now_ms if to_ms is None else to_ms) - from_ms) / 1000)
    )


def until(value: object, now_ms: int) -> str:
    """The time until an instant; `0 s` if it has passed."""
    at_ms = moment_ms(value)
    return NOT_APPLICABLE if at_ms is None else duration(max(0, at_ms - now_ms) // 1000)


def as_of(now_ms: int) -> str:
    """The time of a snapshot, to the millisecond."""
    return _utc(now_ms).strftime("%H:%M:%S.") + f"{now_ms % 1000:03}"


def iso_text(value: object) -> str:
    """An instant for the attribute of `<time>`."""
    at_ms = moment_ms(value)
    return "" if at_ms is None else _utc(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(name: object) -> str:
    """A name as it is safe to look at: control and direction characters are written as escapes."""
    return "".join(
        char if char.isprintable() and char not in _DIRECTIONS else f"\\u{ord(char):04x}"
        for char in str(name)
    )


_DIRECTIONS: Final = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c")


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


@pass_context
def _clock(context: Context, value: object) -> str:
    return clock(value, context["now_ms"])


@pass_context
def _ago(context: Context, value: object) -> str:
    return ago(value, context["now_ms"])


@pass_context
def _until(context: Context, value: object) -> str:
    return until(value, context["now_ms"])


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "count": count,
    "duration": duration,
    "percent": percent,
    "per_minute": per_minute,
    "clock": _clock,
    "ago": _ago,
    "until": _until,
    "as_of": as_of,
    "iso": iso_text,
    "lasted": lasted,
    "shown": shown,
}
"""`count` replaces the built-in alias of `length`."""
