"""Windows: how much went in the last minute, by the calendar or sliding, exactly, whatever the clock does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.core.limits.windows import (
    MINUTE_MS,
    NOTHING,
    SECOND_MS,
    Counts,
    Window,
    is_ahead,
    left,
    opens_at_ms,
    read,
    returned,
    spent,
    used,
    written,
)
from tests.support.effort import times

START_MS = 1_790_000_000_000
"""Twenty seconds into a calendar minute."""
TURN_MS = (START_MS // MINUTE_MS + 1) * MINUTE_MS
"""When the next one begins."""
ENTRIES_MAX = 61

kinds = st.sampled_from(list(Window))
limits = st.integers(1, 12)
steps = st.one_of(
    st.sampled_from([0, 0, 1, 499, 999, 1000, 1001, 19_999, 20_000, 59_000, 59_999, 60_000, 60_001, 61_000]),
    st.integers(0, 90_000),
)

asks = st.lists(st.tuples(steps, st.integers(0, 8)), max_size=40)
"""How long after the one before somebody asks, and for how many."""
jumps = st.one_of(steps, steps.map(lambda ms: -ms), st.integers(-(10**9), -1))
jumpy_asks = st.lists(st.tuples(jumps, st.integers(0, 8)), max_size=40)


@dataclass
class Meter:
    """A limit with what it has let go."""

    window: Window
    most: int
    now_ms: int = START_MS
    counts: Counts = NOTHING
    went: list[int] = field(default_factory=list)

    def left(self) -> int:
        return left(self.window, self.most, self.counts, self.now_ms)

    def ask(self, amount: int) -> int:
        given_ = min(amount, self.left())
        self.counts = spent(self.window, self.counts, self.now_ms, given_)
        self.went += [self.now_ms] * given_
        return given_

    def run(self, script: Sequence[tuple[int, int]]) -> None:
        for ms, amount in script:
            self.now_ms += ms
            self.ask(amount)

    def in_the_window(self) -> int:
        """By its definition: in this calendar minute, or in the sixty seconds up to now."""
        if self.window is Window.MINUTE:
            return sum(at_ms // MINUTE_MS == self.now_ms // MINUTE_MS for at_ms in self.went)
        return sum(at_ms > self.now_ms - MINUTE_MS for at_ms in self.went)

    def opens_at_ms(self, amount: int = 1) -> int | None:
        return opens_at_ms(self.window, self.most, self.counts, self.now_ms, amount)


def most_in_a_calendar_minute(went: Sequence[int]) -> int:
    return max(Counter(at_ms // MINUTE_MS for at_ms in went).values(), default=0)


def most_in_sixty_seconds(went: Sequence[int]) -> int:
    """Two fingers over the moments: no interval [t, t + 60 s) holds more than this."""
    most = first = 0
    for last, at_ms in enumerate(went):
        while went[first] <= at_ms - MINUTE_MS:
            first += 1
        most = max(most, last - first + 1)
    return most


# ── The bound ───────────────────────────────────────────────────────────────────────────────────────────


@given(most=limits, script=asks)
def test_no_calendar_minute_holds_more_than_the_limit(most: int, script: list[tuple[int, int]]):
    meter = Meter(Window.MINUTE, most)
    meter.run(script)
    assert most_in_a_calendar_minute(meter.went) <= most


@given(most=limits, script=asks)
def test_no_sixty_seconds_wherever_they_begin_hold_more_than_a_sliding_limit(
    most: int, script: list[tuple[int, int]]
):
    meter = Meter(Window.SLIDING, most)
    meter.run(script)
    assert most_in_sixty_seconds(meter.went) <= most


@given(most=limits, script=asks)
def test_what_the_calendar_minute_allows_may_go(most: int, script: list[tuple[int, int]]):
    """The limit is not only kept, it is also reached."""
    meter = Meter(Window.MINUTE, most)
    for ms, amount in script:
        meter.now_ms += ms
        assert meter.left() == most - meter.in_the_window()
        meter.ask(amount)


@given(most=limits, script=asks)
def test_a_sliding_limit_is_at_most_a_second_stricter_than_its_law(most: int, script: list[tuple[int, int]]):
    """What went more than 61 seconds ago is never in the way."""
    meter = Meter(Window.SLIDING, most)
    for ms, amount in script:
        meter.now_ms += ms
        recent = sum(at_ms > meter.now_ms - MINUTE_MS - SECOND_MS for at_ms in meter.went)
        assert meter.left() >= most - recent
        meter.ask(amount)


def test_around_the_turn_of_a_minute_the_calendar_allows_twice_the_limit_and_the_sliding_window_does_not():
    by_calendar, sliding = (Meter(window, 10, TURN_MS - 1) for window in (Window.MINUTE, Window.SLIDING))
    assert [by_calendar.ask(10), sliding.ask(10)] == [10, 10]
    by_calendar.now_ms = sliding.now_ms = TURN_MS
    assert [by_calendar.ask(10), sliding.ask(10)] == [10, 0]


@given(window=kinds, script=asks)
def test_a_limit_of_zero_lets_nothing_go_ever(window: Window, script: list[tuple[int, int]]):
    meter = Meter(window, 0)
    meter.run(script)
    assert not meter.went
    assert meter.opens_at_ms() is None


@given(window=kinds, most=limits, before=asks, lowered=limits, after=asks)
def test_a_limit_that_is_lowered_counts_what_went_before(
    window: Window, most: int, before: list[tuple[int, int]], lowered: int, after: list[tuple[int, int]]
):
    meter = Meter(window, most)
    meter.run(before)
    meter.most = lowered
    for ms, amount in after:
        meter.now_ms += ms
        if meter.ask(amount):
            assert meter.in_the_window() <= lowered


# ── When it opens ───────────────────────────────────────────────────────────────────────────────────────


@given(window=kinds, most=limits, script=asks, amount=limits)
def test_it_opens_at_the_moment_it_says_and_not_a_millisecond_before(
    window: Window, most: int, script: list[tuple[int, int]], amount: int
):
    assume(amount <= most)
    meter = Meter(window, most)
    meter.run(script)
    at_ms = meter.opens_at_ms(amount)
    assert at_ms is not None
    assert left(window, most, meter.counts, at_ms) >= amount
    if at_ms > meter.now_ms:
        assert left(window, most, meter.counts, at_ms - 1) < amount


@given(window=kinds, most=limits, script=asks, more=st.integers(1, 5))
def test_more_than_the_limit_never_goes_at_once(
    window: Window, most: int, script: list[tuple[int, int]], more: int
):
    meter = Meter(window, most)
    meter.run(script)
    assert meter.opens_at_ms(most + more) is None


# ── Clocks that are set ─────────────────────────────────────────────────────────────────────────────────


@given(window=kinds, most=limits, script=jumpy_asks, back_ms=st.integers(0, 10**9))
def test_a_clock_that_was_set_back_never_closes_for_longer_than_two_minutes_and_a_second(
    window: Window, most: int, script: list[tuple[int, int]], back_ms: int
):
    meter = Meter(window, most)
    meter.run(script)
    meter.now_ms -= back_ms
    at_ms = meter.opens_at_ms(most)
    assert at_ms is not None
    assert at_ms <= meter.now_ms + 2 * MINUTE_MS + SECOND_MS
    meter.ask(0)
    assert meter.opens_at_ms(most) == at_ms
    assert left(window, most, meter.counts, at_ms) == most


@given(window=kinds, most=limits, script=jumpy_asks, back_ms=st.integers(1, 10**9))
def test_a_clock_that_was_set_back_gives_nothing_twice(
    window: Window, most: int, script: list[tuple[int, int]], back_ms: int
):
    """What is full stays full at the first look after it, whatever moment the clock shows."""
    meter = Meter(window, most)
    meter.run(script)
    meter.ask(most)
    meter.now_ms -= back_ms
    assert meter.ask(most) == 0


@given(window=kinds, most=limits, script=jumpy_asks)
def test_whatever_the_clock_does_no_more_goes_at_one_moment_than_the_limit(
    window: Window, most: int, script: list[tuple[int, int]]
):
    meter = Meter(window, most)
    for ms, amount in script:
        meter.now_ms += ms
        assert meter.ask(amount) + meter.left() <= most


@given(window=kinds, most=limits, script=jumpy_asks)
def test_once_it_is_recorded_nothing_stands_in_the_future(
    window: Window, most: int, script: list[tuple[int, int]]
):
    meter = Meter(window, most)
    meter.run(script)
    meter.ask(0)
    assert not is_ahead(meter.counts, meter.now_ms)


def test_what_went_in_what_is_the_far_future_now_is_seen():
    counts = spent(Window.SLIDING, NOTHING, START_MS, 1)
    assert not is_ahead(counts, START_MS - SECOND_MS)
    assert is_ahead(counts, START_MS - MINUTE_MS - SECOND_MS)


def test_who_looked_at_the_clock_before_it_waited_does_not_date_back_what_others_did():
    counts = spent(Window.MINUTE, NOTHING, TURN_MS + 100, 5)
    counts = spent(Window.MINUTE, counts, TURN_MS - 100, 1)
    assert used(Window.MINUTE, counts, TURN_MS + 200) == 6


# ── Another window ──────────────────────────────────────────────────────────────────────────────────────


@given(
    most=limits,
    start_ms=st.sampled_from([TURN_MS - 1, TURN_MS - 500, TURN_MS - 30_000, TURN_MS]),
    script=st.lists(
        st.tuples(kinds, st.sampled_from([0, 1, 500, 1_000, 29_000, 30_000, 59_000, 60_000]), limits),
        max_size=12,
    ),
)
@settings(max_examples=times(100))
def test_whoever_changes_to_a_sliding_window_is_strict_from_the_first_moment(
    most: int, start_ms: int, script: list[tuple[Window, int, int]]
):
    meter = Meter(Window.MINUTE, most, start_ms)
    for window, ms, amount in script:
        meter.window = window
        meter.now_ms += ms
        if meter.ask(amount) and window is Window.SLIDING:
            assert meter.in_the_window() <= most


@given(most=limits, script=st.lists(st.tuples(kinds, steps, st.integers(0, 8)), max_size=30))
def test_a_calendar_minute_is_never_exceeded_by_going_to_and_fro(
    most: int, script: list[tuple[Window, int, int]]
):
    meter = Meter(Window.MINUTE, most)
    for window, ms, amount in script:
        meter.window = window
        meter.now_ms += ms
        meter.ask(amount)
    assert most_in_a_calendar_minute(meter.went) <= most


def test_what_went_before_the_turn_of_the_minute_counts_when_the_window_begins_to_slide():
    meter = Meter(Window.MINUTE, 10, TURN_MS - 1)
    meter.ask(10)
    meter.now_ms = TURN_MS
    meter.ask(1)
    meter.window = Window.SLIDING
    assert meter.left() == 0
    assert meter.opens_at_ms() == TURN_MS + MINUTE_MS


# ── What is given back ──────────────────────────────────────────────────────────────────────────────────


@given(window=kinds, most=limits, script=asks, at=st.integers(0, 10**6), amount=st.integers(0, 20))
def test_giving_back_frees_no_more_than_is_given_back_and_leaves_nothing_below_zero(
    window: Window, most: int, script: list[tuple[int, int]], at: int, amount: int
):
    meter = Meter(Window.SLIDING if at % 2 else window, most)
    meter.run(script)
    before = used(window, meter.counts, meter.now_ms)
    at_ms = meter.went[at % len(meter.went)] if meter.went else meter.now_ms
    after = returned(window, meter.counts, at_ms, amount)
    freed = before - used(window, after, meter.now_ms)
    taken_then = [each for each in meter.went if _together(window, each, at_ms)]
    assert 0 <= freed <= min(amount, len(taken_then))
    assert all(count >= 0 for _, count in after)


def _together(window: Window, one_ms: int, other_ms: int) -> bool:
    unit_ms = MINUTE_MS if window is Window.MINUTE else SECOND_MS
    return one_ms // unit_ms == other_ms // unit_ms


@given(window=kinds, amount=limits, back=limits, later_ms=st.integers(0, 200_000))
def test_what_is_given_back_while_it_counts_may_go_again_and_later_changes_nothing(
    window: Window, amount: int, back: int, later_ms: int
):
    counts = spent(window, NOTHING, START_MS, amount)
    now_ms = START_MS + later_ms
    before = used(window, counts, now_ms)
    after = used(window, returned(window, counts, START_MS, back), now_ms)
    assert after == (max(0, amount - back) if before else 0)


def test_what_is_given_back_is_given_back_once_though_seconds_of_a_minute_are_counted_apart():
    counts = spent(Window.SLIDING, NOTHING, START_MS, 5)
    counts = spent(Window.SLIDING, counts, START_MS + SECOND_MS, 5)
    after = returned(Window.MINUTE, counts, START_MS, 3)
    assert used(Window.MINUTE, after, START_MS + SECOND_MS) == 7


# ── What is kept ────────────────────────────────────────────────────────────────────────────────────────


@given(window=kinds, most=limits, script=jumpy_asks)
def test_counts_stay_small_sorted_and_the_same_after_they_were_written_and_read(
    window: Window, most: int, script: list[tuple[int, int]]
):
    meter = Meter(window, most)
    for ms, amount in script:
        meter.now_ms += ms
        meter.ask(amount)
        assert len(meter.counts) <= (2 if window is Window.MINUTE else ENTRIES_MAX)
        assert meter.counts == tuple(sorted(meter.counts))
        assert read(written(meter.counts)) == meter.counts


@pytest.mark.parametrize("window", list(Window))
def test_a_busy_minute_is_kept_in_no_more_than_an_entry_a_second(window: Window):
    meter = Meter(window, 10**6)
    meter.run([(100, 1)] * 2000)
    assert len(meter.counts) <= ENTRIES_MAX


def test_nothing_is_written_as_nothing():
    assert written(NOTHING) is None
    assert read(None) == read("") == NOTHING


@given(window=kinds, most=limits, script=asks, rest_ms=st.integers(MINUTE_MS + SECOND_MS, 10**9))
def test_after_a_rest_nothing_is_left_of_what_went(
    window: Window, most: int, script: list[tuple[int, int]], rest_ms: int
):
    meter = Meter(window, most)
    meter.run(script)
    meter.run([(rest_ms, 0)])
    assert meter.counts == NOTHING
