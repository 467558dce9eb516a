"""Bounds the size of a timeline: steps of one type become one lane, and many spans become few.

Up to `LANES_MAX` lanes each step has its own. Above, steps of one type are folded into one lane that says how many they
are, their median duration and how many failed. A lane with more spans than its share is drawn in buckets of time: each
bucket shows what most of its steps did then, counted with a difference array, so that the work is linear in the number
of spans, however they overlap. Shares are given smallest lane first, so that short lanes are never cut for long ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from msgspec.structs import replace

from penstock.core.timeline.values import LaneKind, Span, SpanState, Tick, TimelineLane, WaitCause

LANES_MAX = 400
SPANS_MAX = 1_500
TICKS_MAX = 400
_FAILED = ("failed", "timed_out")
_State = tuple[SpanState, WaitCause | None]


def fold(lanes: Sequence[TimelineLane], width: int) -> list[TimelineLane]:
    """At most `LANES_MAX` lanes with `SPANS_MAX` spans and `TICKS_MAX` ticks.

    Args:
        lanes: every lane of a run, in order.
        width: the number of buckets that a lane is drawn with at most, such as the pixels of the picture.
    """
    kept = list(lanes) if len(lanes) <= LANES_MAX else _by_type(lanes)
    spans = _shares([len(lane.spans) for lane in kept], SPANS_MAX)
    ticks = _shares([len(lane.ticks) for lane in kept], TICKS_MAX)
    return [
        replace(
            lane, spans=_drawn(lane.spans, min(most, width)), ticks=tuple(_sampled(lane.ticks, ticks_most))
        )
        for lane, most, ticks_most in zip(kept, spans, ticks, strict=True)
    ]


def _by_type(lanes: Sequence[TimelineLane]) -> list[TimelineLane]:
    """One lane for each type; types beyond the most frequent ones share one lane."""
    types: dict[tuple[LaneKind, str], list[TimelineLane]] = {}
    for lane in lanes:
        types.setdefault((lane.kind, lane.label), []).append(lane)
    if len(types) > LANES_MAX:
        frequent = sorted(types.values(), key=len, reverse=True)
        rest = [lane for group in frequent[LANES_MAX - 1 :] for lane in group]
        groups = [*frequent[: LANES_MAX - 1], [replace(lane, label="other types") for lane in rest]]
        groups.sort(key=lambda group: min(lane.from_ms for lane in group))
    else:
        groups = list(types.values())
    return [_folded(group) if len(group) > 1 else group[0] for group in groups]


def _folded(group: Sequence[TimelineLane]) -> TimelineLane:
    lengths = sorted(lane.to_ms - lane.from_ms for lane in group if not lane.is_open)
    return TimelineLane(
        group[0].kind,
        group[0].label,
        tuple(span for lane in group for span in lane.spans),
        ticks=tuple(tick for lane in group for tick in lane.ticks),
        is_open=any(lane.is_open for lane in group),
        folded=len(group),
        p50_ms=lengths[(len(lengths) - 1) // 2] if lengths else None,
        failed=sum(lane.outcome in _FAILED for lane in group),
    )


def _shares(sizes: Sequence[int], total: int) -> list[int]:
    """How many each may keep: all of it for the small ones, and equal shares of what is left for the others."""
    shares = [0] * len(sizes)
    left = total
    by_size = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for done, index in enumerate(by_size):
        shares[index] = min(sizes[index], left // (len(sizes) - done))
        left -= shares[index]
    return shares


def _drawn(spans: Sequence[Span], most: int) -> tuple[Span, ...]:
    if len(spans) <= most:
        return tuple(spans)
    begin, end = min(span.from_ms for span in spans), max(span.to_ms for span in spans)
    length = max(1, end - begin)
    buckets = min(most, length)
    counts: dict[_State, list[int]] = {}
    for span in spans:
        shown = (span.state, span.cause)
        changes = counts.get(shown)
        if changes is None:
            changes = counts[shown] = [0] * (buckets + 2)
        first = (span.from_ms - begin) * buckets // length
        last = -((begin - span.to_ms) * buckets // length)
        changes[first if first < buckets else buckets - 1] += 1
        changes[first + 1 if last <= first else last] -= 1
    levels = {state: list(accumulate(changes)) for state, changes in counts.items()}
    found: list[Span] = []
    for bucket in range(buckets):
        state = _most_common(levels, bucket)
        if state is None:
            continue
        from_ms = begin + (end - begin) * bucket // buckets
        to_ms = begin + (end - begin) * (bucket + 1) // buckets
        last_span = found[-1] if found else None
        if (
            last_span is not None
            and (last_span.state, last_span.cause) == state
            and last_span.to_ms == from_ms
        ):
            found[-1] = replace(last_span, to_ms=to_ms)
        else:
            found.append(Span(from_ms, to_ms, *state))
    return tuple(found)


def _most_common(levels: Mapping[_State, Sequence[int]], bucket: int) -> _State | None:
    state = max(levels, key=lambda each: levels[each][bucket])
    return state if levels[state][bucket] > 0 else None


def _sampled(ticks: Sequence[Tick], most: int) -> Sequence[Tick]:
    if len(ticks) <= most:
        return ticks
    return [ticks[index * len(ticks) // most] for index in range(most)]
