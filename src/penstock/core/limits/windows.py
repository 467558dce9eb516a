"""Counts per minute, in calendar minutes or in a sliding window.

Counts are kept by the second in the row that they limit, so that a restart or another server does not start at zero.
For calendar minutes one count per minute is enough, stored at its last second; the previous minute is kept as well, so
that a change to a sliding window is exact at once. After a clock step backwards, counts that lie in the future are
treated as counted now: they expire a minute later, not when that future comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

MINUTE_MS = 60_000
SECOND_MS = 1_000
PER_MINUTE_MAX = 1_000_000_000


class Window(StrEnum):
    """`minute`: the limit holds in every calendar minute, so up to twice the limit around the turn of a minute.
    `sliding`: the limit holds in any sixty seconds."""

    MINUTE = "minute"
    SLIDING = "sliding"


Counts = tuple[tuple[int, int], ...]
"""(second, amount), oldest first."""

NOTHING: Counts = ()


def used(window: Window, counts: Counts, now_ms: int) -> int:
    """The amount that counts against the limit now."""
    if not counts:
        return 0
    return sum(amount for _, amount in _live(window, counts, now_ms))


def left(window: Window, most: int, counts: Counts, now_ms: int) -> int:
    return max(0, most - used(window, counts, now_ms))


def spent(window: Window, counts: Counts, now_ms: int, amount: int) -> Counts:
    """The counts with `amount` added; expired counts are dropped."""
    second = now_ms // SECOND_MS
    if not counts:
        return ((second, amount),) if amount else counts
    if len(counts) == 1 and counts[0][0] == second:
        return ((second, counts[0][1] + amount),)
    now_ms = _not_before(counts, now_ms)
    seconds = dict(_live(Window.SLIDING, counts, now_ms))
    second = now_ms // SECOND_MS
    seconds[second] = seconds.get(second, 0) + amount
    return _ordered(_by_minute(seconds) if window is Window.MINUTE else seconds)


def _by_minute(seconds: dict[int, int]) -> dict[int, int]:
    """One count for each calendar minute, at its last used second."""
    last = {_minute(second): second for second in sorted(seconds) if seconds[second]}
    return {
        second: sum(count for each, count in seconds.items() if _minute(each) == minute)
        for minute, second in last.items()
    }


def returned(window: Window, counts: Counts, at_ms: int, amount: int) -> Counts:
    """The counts with `amount` of what was counted at `at_ms` returned; expired counts are not affected."""
    second = at_ms // SECOND_MS
    after = []
    for each, count in counts:
        freed = min(amount, count) if _is_one(window, each, second) else 0
        amount -= freed
        after.append((each, count - freed))
    return tuple(after)


def _is_one(window: Window, second: int, other: int) -> bool:
    return second == other or (window is Window.MINUTE and _minute(second) == _minute(other))


def _minute(second: int) -> int:
    return second * SECOND_MS // MINUTE_MS


def is_ahead(counts: Counts, now_ms: int) -> bool:
    """Whether there are counts in the future: the clock stepped backwards."""
    return any(second * SECOND_MS > now_ms + MINUTE_MS for second, _ in counts)


def _not_before(counts: Counts, now_ms: int) -> int:
    """Now, or the newest count if that is less than a minute ahead.

    An operation that waited for the row's lock read its clock before, and must not count before others.
    """
    newest_ms = max((second * SECOND_MS for second, _ in counts), default=0)
    return newest_ms if now_ms < newest_ms <= now_ms + MINUTE_MS else now_ms


def opens_at_ms(window: Window, most: int, counts: Counts, now_ms: int, amount: int = 1) -> int | None:
    """When `amount` more is allowed; None: never, because it exceeds the limit."""
    if amount > most:
        return None
    now_ms = _not_before(counts, now_ms)
    live = _live(window, counts, now_ms)
    taken = sum(count for _, count in live)
    if taken + amount <= most:
        return now_ms
    for second, count in live:
        taken -= count
        if taken + amount <= most:
            return _leaves_at_ms(window, second)
    return now_ms


def _live(window: Window, counts: Counts, now_ms: int) -> Counts:
    """The counts that have not expired."""
    now_ms = _not_before(counts, now_ms)
    latest = now_ms // SECOND_MS
    live: dict[int, int] = {}
    for second, count in counts:
        if _leaves_at_ms(window, second) > now_ms:
            live[min(second, latest)] = live.get(min(second, latest), 0) + count
    return _ordered(live)


def _leaves_at_ms(window: Window, second: int) -> int:
    """When a count expires: at the end of its calendar minute, or a minute after its second."""
    if window is Window.MINUTE:
        return (_minute(second) + 1) * MINUTE_MS
    return (second + 1) * SECOND_MS + MINUTE_MS


def _ordered(seconds: dict[int, int]) -> Counts:
    return tuple(sorted((second, count) for second, count in seconds.items() if count))


def written(counts: Counts) -> str | None:
    """The stored text; None if there are no counts."""
    return " ".join(f"{second}:{count}" for second, count in counts) or None


def read(text: str | None) -> Counts:
    if not text:
        return NOTHING
    return tuple(_pair(word.split(":")) for word in text.split(" "))


def _pair(words: Iterable[str]) -> tuple[int, int]:
    second, count = words
    return int(second), int(count)
