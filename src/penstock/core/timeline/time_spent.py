"""Where the time of a run went: for each moment, one of three parts, so that the parts add up to the whole.

A moment belongs to the first of these that applies:

1. *held back*: a workflow task or an activity was ready and not dispatched. Another limit, weight or fleet would have
   shortened it.
2. *running*: a workflow task, an activity, a child or an update was in progress.
3. *waiting by design*: only timers, backoffs, conditions and messages were awaited, or nothing at all.

The sweep visits the ends of all spans in order, and counts the open spans of each part and cause; so the work is
O(n log n) in the number of spans, and the parts are lengths of disjoint intervals whose union is the run.
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
    changes: list[tuple[int, int, WaitCause | None]] = []
    for lane in lanes:
        for span in lane.spans:
            begin, end = max(span.from_ms, from_ms), min(span.to_ms, to_ms)
            if begin < end:
                cause = None if span.state is SpanState.RUNNING else span.cause or WaitCause.UNKNOWN
                changes += ((begin, 1, cause), (end, -1, cause))
    changes.sort(key=lambda change: change[0])
    open_spans: dict[WaitCause | None, int] = dict.fromkeys((None, *_ORDER), 0)
    spent: Counter[WaitCause | None] = Counter()
    at_ms = from_ms
    for moment, step, cause in changes:
        if moment > at_ms:
            spent[_part(open_spans)] += moment - at_ms
            at_ms = moment
        open_spans[cause] += step
    spent[_part(open_spans)] += max(0, to_ms - at_ms)
    return TimeSpent(
        total_ms=max(0, to_ms - from_ms),
        held_back_ms=sum(ms for cause, ms in spent.items() if cause is not None and cause not in BY_DESIGN),
        running_ms=spent[None],
        by_design_ms=sum(ms for cause, ms in spent.items() if cause in BY_DESIGN),
        by_cause={cause: spent[cause] for cause in _ORDER if spent[cause]},
    )


def _part(open_spans: Mapping[WaitCause | None, int]) -> WaitCause | None:
    """The cause that a moment belongs to; None: something runs. Without any open span it is a wait for a message."""
    for cause in _PRECEDENCE:
        if open_spans[cause] > 0:
            return cause
    return WaitCause.SIGNAL
