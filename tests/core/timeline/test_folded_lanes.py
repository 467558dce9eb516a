"""Bounds of a timeline: lanes, spans and ticks, and where the time went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.timeline.folded_lanes import LANES_MAX, SPANS_MAX, TICKS_MAX, fold
from penstock.core.timeline.time_spent import time_spent
from penstock.core.timeline.values import BY_DESIGN, LaneKind, Span, SpanState, Tick, TimelineLane, WaitCause


@st.composite
def spans(draw: st.DrawFn) -> Span:
    begin = draw(st.integers(-50, 1_050))
    end = begin + draw(st.integers(0, 300))
    cause = draw(st.none() | st.sampled_from(list(WaitCause)))
    return Span(begin, end, SpanState.RUNNING if cause is None else SpanState.WAITING, cause)


LANES = st.lists(
    st.lists(spans(), max_size=5).map(lambda each: TimelineLane(LaneKind.ACTIVITY, "a", tuple(each)))
)


@given(lanes=LANES, length=st.integers(0, 1_000))
def test_the_parts_of_the_time_add_up_to_the_whole(lanes: list[TimelineLane], length: int) -> None:
    spent = time_spent(lanes, 0, length)
    assert spent.total_ms == length
    assert spent.held_back_ms + spent.running_ms + spent.by_design_ms == length
    assert sum(spent.by_cause.values()) == spent.held_back_ms + spent.by_design_ms


@given(lanes=LANES)
def test_each_moment_is_held_back_before_it_is_running_before_it_is_by_design(
    lanes: list[TimelineLane],
) -> None:
    held = running = 0
    for moment in range(200):
        live = [span for lane in lanes for span in lane.spans if span.from_ms <= moment < span.to_ms]
        if any(span.is_held_back for span in live):
            held += 1
        elif any(span.state is SpanState.RUNNING for span in live):
            running += 1
    spent = time_spent(lanes, 0, 200)
    assert (spent.held_back_ms, spent.running_ms) == (held, running)
    assert spent.by_design_ms == sum(ms for cause, ms in spent.by_cause.items() if cause in BY_DESIGN)


def a_lane(number: int, label: str, count: int = 2, outcome: str = "completed") -> TimelineLane:
    found = tuple(
        Span(number + each * 20, number + each * 20 + 20, SpanState.RUNNING, attempt=each)
        for each in range(count)
    )
    return TimelineLane(
        LaneKind.ACTIVITY, label, found, number, (Tick(number, "retry", number),), outcome=outcome
    )


def test_up_to_the_limit_every_step_has_its_own_lane() -> None:
    lanes = [a_lane(number, "compose") for number in range(LANES_MAX)]
    assert [lane.step for lane in fold(lanes, 1_200)] == list(range(LANES_MAX))


def test_above_the_limit_steps_of_one_type_are_one_lane() -> None:
    lanes = [
        a_lane(number, "compose", outcome="failed" if number < 3 else "completed") for number in range(12_304)
    ]
    [lane] = fold(lanes, 1_200)
    assert (lane.folded, lane.p50_ms, lane.failed) == (12_304, 40, 3)
    assert lane.spans == (Span(0, 12_343, SpanState.RUNNING),)


@pytest.mark.parametrize("types", [1, 50, 1_000])
@pytest.mark.parametrize("retries", [2, 40])
def test_no_timeline_is_larger_than_its_bounds(types: int, retries: int) -> None:
    lanes = [a_lane(number, f"type {number % types}", retries) for number in range(1_000)]
    folded = fold(lanes, 1_200)
    assert len(folded) <= LANES_MAX
    assert sum(len(lane.spans) for lane in folded) <= SPANS_MAX
    assert sum(len(lane.ticks) for lane in folded) <= TICKS_MAX
    assert sum(lane.folded or 1 for lane in folded) == 1_000


def test_a_long_lane_is_cut_and_short_ones_are_not() -> None:
    alternating = tuple(
        Span(
            at,
            at + 1,
            SpanState.RUNNING if at % 2 else SpanState.WAITING,
            None if at % 2 else WaitCause.UNKNOWN,
        )
        for at in range(9_000)
    )
    long = TimelineLane(LaneKind.WORKFLOW_TASK, "workflow tasks", alternating)
    short = [a_lane(number, "compose", 3) for number in range(100)]
    drawn, *others = fold([long, *short], 4_000)
    assert others == short
    assert 0 < len(drawn.spans) <= SPANS_MAX - 300
