"""Formats instants and durations for people: "3 minutes ago", "in 20 seconds"."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86_400 * 365, "year"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def relative(stamp: object, now: datetime) -> str:
    """Format an ISO-8601 instant relative to `now`; other text is returned unchanged."""
    instant = parsed(stamp)
    if instant is None:
        return "-" if stamp in (None, "") else str(stamp)
    seconds = (now - instant).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    phrase = span(abs(seconds))
    return f"{phrase} ago" if seconds > 0 else f"in {phrase}"


def span(seconds: float) -> str:
    """Phrase a length of time in its largest fitting unit, rounded down."""
    for size, unit in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{round(seconds * 1000)} ms"


def length(seconds: float) -> str:
    """Phrase a measured length of time with the two units that matter, to the millisecond below a minute."""
    return f"{seconds:.3f} s" if seconds < 60 else setting(seconds)


def setting(seconds: float) -> str:
    """Format a configured duration: 30 s, 1 m 30 s, 2 h 05 m."""
    if seconds < 60:
        return f"{seconds:g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02} h"
    return f"{hours} h {minutes:02} m" if hours else f"{minutes} m {rest:02} s"


def parsed(stamp: object) -> datetime | None:
    """Read an ISO-8601 instant with its zone, or return None."""
    if not isinstance(stamp, str):
        return None
    try:
        instant = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
