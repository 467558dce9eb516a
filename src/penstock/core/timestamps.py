"""Conversions between milliseconds since the epoch and ISO 8601 text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

MINUTE_MS = 60_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)


@lru_cache(maxsize=1024)
def iso(at_ms: int) -> str:
    """ISO 8601 text with a zone, to the millisecond."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _second(at_s: int) -> str:
    """The text up to the second; cached, because many timestamps share a second."""
    return (_EPOCH + timedelta(seconds=at_s)).isoformat(timespec="seconds").removesuffix("+00:00")


def iso_or_none(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)


def earliest(*instants: int | None) -> int | None:
    """The earliest of the deadlines that are set."""
    first: int | None = None
    for each in instants:
        if each is not None and (first is None or each < first):
            first = each
    return first


def instant(text: str) -> int | None:
    """Milliseconds since the epoch of ISO 8601 text; without a zone it is UTC. None if it is not valid."""
    if len(text) > 40 or not _INSTANT.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(milliseconds=1)
