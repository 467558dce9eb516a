"""Where the time of a run went: for each moment, one of three parts, so that the parts add up to the whole.

A moment belongs to the first of these that applies:

1. *held back*: a workflow task or an activity was ready and not dispatched. Another limit, weight or fleet would have
   shortened it.
2. *running*: a workflow task, an activity, a child or an update was in progress.
3. *waiting by design*: only timers, backoffs, conditions and messages were awaited, or nothing at all.

The sweep visits the ends of all spans in order, and counts the open spans of each part and cause; so the work is
O(n log n) in the number of spans, and the parts are lengths of disjoint intervals whose union is the run. An end is one
number, which sorts several times faster than a tuple; the order of ends at one moment does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from penstock.core.timeline.values import BY_DESIGN, SpanState, TimelineLane, WaitCause

_ORDER = tuple(WaitCause)
_PRECEDENCE: tuple[WaitCause | None, ...] = (
    *(cause for cause in _ORDER if cause not in BY_DESIGN),
    None,
    *(cause for cause in _ORDER if cause in BY_DESIGN),
)
"""Which of what goes on at a moment it belongs to; None: something runs."""
_NOTHING_OPEN = len(_PRECEDENCE)
"""Without any open span a moment is a wait for a message."""
_PLACES = {cause: place for place, cause in enumerate(_PRECEDENCE)}
_SHIFT = 6
_PLACE_MASK = (1 << _SHIFT) - 1
assert len(_PRECEDENCE) << 1 <= _PLACE_MASK, (
    "a change is one number: its moment, its place, and whether it opens"
)


class TimeSpent(Struct, frozen=True):
    """The three parts of the open time of a run, in milliseconds."""

    total_ms: int
    held_back_ms: int
    running_ms: int
    by_design_ms: int
    by_cause: Mapping[WaitCause, int]
    """The held back and by-design time by cause. Where causes overlap, the first in the order of `WaitCause` counts."""


def time_spent(lanes: Iterable[TimelineLane], from_ms: int, to_ms: int) -> TimeSpent:
    """The parts of the time from `from_ms` to `to_ms`."""
    changes = _changes(lanes, from_ms, to_ms)
    changes.sort()
    open_spans = [0] * len(_PRECEDENCE)
    spent_ms = [0] * (len(_PRECEDENCE) + 1)
    at_ms, first = from_ms, _NOTHING_OPEN
    for change in changes:
        moment, place = change >> _SHIFT, (change & _PLACE_MASK) >> 1
        if moment > at_ms:
            spent_ms[first] += moment - at_ms
            at_ms = moment
        if change & 1:
            open_spans[place] += 1
            if place < first:
                first = place
        else:
            open_spans[place] -= 1
            while first < _NOTHING_OPEN and open_spans[first] <= 0:
                first += 1
    spent_ms[first] += max(0, to_ms - at_ms)
    spent = Counter(dict(zip(_PRECEDENCE, spent_ms, strict=False)))
    spent[WaitCause.SIGNAL] += spent_ms[_NOTHING_OPEN]
    return TimeSpent(
        total_ms=max(0, to_ms - from_ms),
        held_back_ms=sum(ms for cause, ms in spent.items() if cause is not None and cause not in BY_DESIGN),
        running_ms=spent[None],
        by_design_ms=sum(ms for cause, ms in spent.items() if cause in BY_DESIGN),
        by_cause={cause: spent[cause] for cause in _ORDER if spent[cause]},
    )


def _changes(lanes: Iterable[TimelineLane], from_ms: int, to_ms: int) -> list[int]:
    """The ends of all spans within the given time."""
    changes: list[int] = []
    for lane in lanes:
        for span in lane.spans:
            begin, end = span.from_ms, span.to_ms
            if begin < from_ms:
                begin = from_ms
            if end > to_ms:
                end = to_ms
            if begin < end:
                place = _PLACES[None if span.state is SpanState.RUNNING else span.cause or WaitCause.UNKNOWN]
                changes += (begin << _SHIFT | place << 1 | 1, end << _SHIFT | place << 1)
    return changes
