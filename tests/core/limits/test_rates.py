"""Rates: in any time t no more than burst + rate * t, for every pair of dispatches, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.core.limits.rates import (
    CLOCK_SKEW_NS,
    MICRO,
    NANO_PER_MS,
    RATE_MAX_MICRO,
    Rate,
    available,
    open_at_ms,
    paid,
)
from tests.core.scheduling.queue_model import per_second
from tests.support.effort import times

rates = st.builds(
    Rate,
    st.one_of(
        st.integers(1, RATE_MAX_MICRO),
        st.sampled_from([per_second(each) for each in (0.1, 0.5, 1, 1.9, 2, 2.5, 3, 10, 77, 1000)]),
    ),
    st.one_of(st.integers(0, 10_000), st.sampled_from([0, 1, 999, 1000, 60_000])),
)
slow_rates = st.builds(
    Rate,
    st.one_of(
        st.integers(per_second(0.05), per_second(50)), st.sampled_from([per_second(2), per_second(2.5)])
    ),
    st.sampled_from([0, 300, 1000, 3000]),
)
moments = st.integers(10**9, 10**12)
asks = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 7, 40, 100, 333, 1000, 5000]), st.integers(1, 60)), max_size=25
)

"""How long after the one before somebody asks, and for how many."""


class Meter:
    """A rate with what it has let go."""

    def __init__(self, rate: Rate, now_ms: int, paid_until_ns: int = 0) -> None:
        self.rate = rate
        self.now_ms = now_ms
        self.paid_until_ns = paid_until_ns
        self.went: list[int] = []

    def ask(self, count: int) -> int:
        given = min(count, available(self.rate, self.paid_until_ns, self.now_ms))
        self.paid_until_ns = paid(self.rate, self.paid_until_ns, self.now_ms, given)
        self.went += [self.now_ms] * given
        return given

    def run(self, script: Sequence[tuple[int, int]]) -> None:
        for ms, count in script:
            self.now_ms += ms
            self.ask(count)


def most_in(rate: Rate, ms: int) -> int:
    """The bound in whole tasks: the burst, and one for each whole interval of the time."""
    return rate.burst + ms * NANO_PER_MS // rate.interval_ns


def check_every_window(went: Sequence[int], rate: Rate, more: int = 0) -> None:
    for first, since_ms in enumerate(went):
        for last in range(first, len(went)):
            assert last - first + 1 <= most_in(rate, went[last] - since_ms) + more


# ── The bound ───────────────────────────────────────────────────────────────────────────────────────────


@given(rate=slow_rates, script=asks, start=moments)
def test_no_window_between_any_two_dispatches_holds_more_than_its_bound(
    rate: Rate, script: list[tuple[int, int]], start: int
):
    meter = Meter(rate, start)
    meter.run(script)
    check_every_window(meter.went, rate)


@given(rate=slow_rates, script=asks, start=moments)
def test_whatever_the_bound_allows_may_go(rate: Rate, script: list[tuple[int, int]], start: int):
    """The rate is not only kept, it is also reached: one more is refused only if a window would overflow."""
    meter = Meter(rate, start)
    for ms, count in script:
        meter.now_ms += ms
        if meter.ask(count) < count:
            one_more = [*meter.went, meter.now_ms]
            assert any(
                len(one_more) - first > most_in(rate, meter.now_ms - since_ms)
                for first, since_ms in enumerate(one_more)
            )


@given(rate=rates, start=moments)
def test_a_rested_rate_gives_its_burst_at_once_and_no_more(rate: Rate, start: int):
    meter = Meter(rate, start)
    assert meter.ask(10**12) == rate.burst
    assert meter.ask(1) == 0


@given(rate=rates, start=moments, count=st.integers(1, 50))
def test_several_at_once_cost_what_they_cost_one_by_one(rate: Rate, start: int, count: int):
    together, apart = Meter(rate, start), Meter(rate, start)
    given_ = together.ask(count)
    assert sum(apart.ask(1) for _ in range(count)) == given_
    assert apart.paid_until_ns == together.paid_until_ns


@pytest.mark.parametrize(("count", "burst"), [(10, 10), (1, 1), (0.5, 1), (2.5, 3), (1000, 1000)])
def test_the_burst_is_what_a_second_gives_rounded_up_and_at_least_one(count: float, burst: int):
    assert Rate(per_second(count)).burst == burst


def test_ten_a_second_without_a_burst_leaves_gaps_of_exactly_a_hundred_milliseconds():
    meter = Meter(Rate(per_second(10), burst_ms=0), now_ms=10**9)
    meter.run([(1, 5)] * 2000)
    assert {later - earlier for earlier, later in pairwise(meter.went)} == {100}


@given(count=st.integers(1, 2000), script=asks)
def test_without_a_burst_no_two_are_closer_than_an_interval(count: int, script: list[tuple[int, int]]):
    rate = Rate(per_second(count), burst_ms=0)
    assume(rate.burst == 1)
    meter = Meter(rate, now_ms=10**9)
    meter.run(script)
    assert all((later - earlier) * NANO_PER_MS >= rate.interval_ns for earlier, later in pairwise(meter.went))


@given(rate=rates)
def test_an_interval_is_never_shorter_than_the_rate_says_and_by_less_than_a_nanosecond_longer(rate: Rate):
    exact_up = rate.interval_ns * rate.micro
    assert 0 <= exact_up - 10**9 * MICRO < rate.micro


# ── When it opens ───────────────────────────────────────────────────────────────────────────────────────


@given(rate=rates, script=asks, start=moments, later=st.integers(0, 5000))
def test_it_opens_at_the_first_millisecond_at_which_one_may_go(
    rate: Rate, script: list[tuple[int, int]], start: int, later: int
):
    meter = Meter(rate, start)
    meter.run(script)
    now = meter.now_ms + later
    opens = open_at_ms(rate, meter.paid_until_ns, now)
    assert opens is not None
    assert opens >= now
    assert available(rate, meter.paid_until_ns, opens) >= 1
    if opens > now:
        assert available(rate, meter.paid_until_ns, opens - 1) == 0


def test_zero_closes_until_the_rate_is_changed():
    closed = Rate(0)
    assert closed.is_closed
    assert available(closed, 0, 10**9) == 0
    assert open_at_ms(closed, 0, 10**9) is None
    assert paid(closed, 123, 10**9, 0) == 123


def test_a_rate_that_was_closed_opens_with_what_it_has_paid_so_far():
    meter = Meter(Rate(per_second(10)), now_ms=10**9)
    meter.ask(10)
    meter.rate = Rate(0)
    meter.run([(100, 5)])
    meter.rate = Rate(per_second(10))
    assert meter.ask(5) == 1


# ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────


@given(
    one=slow_rates,
    micro=st.integers(per_second(0.05), per_second(50)),
    before=asks,
    after=asks,
    start=moments,
)
def test_a_rate_turned_up_never_gives_more_than_the_larger_one_allows(
    one: Rate, micro: int, before: list[tuple[int, int]], after: list[tuple[int, int]], start: int
):
    larger = Rate(max(one.micro, micro), one.burst_ms)
    meter = Meter(Rate(min(one.micro, micro), one.burst_ms), start)
    meter.run(before)
    meter.rate = larger
    meter.run(after)
    check_every_window(meter.went, larger)


@given(
    burst_ms=st.sampled_from([0, 300, 1000, 3000]),
    script=st.lists(
        st.tuples(
            st.one_of(
                st.integers(per_second(0.05), per_second(50)),
                st.sampled_from([per_second(each) for each in (1.9, 2, 2.5)]),
            ),
            st.sampled_from([0, 1, 40, 100, 200, 333, 1000, 5000]),
            st.integers(1, 20),
        ),
        min_size=2,
        max_size=40,
    ),
)
@settings(max_examples=times(80))
def test_a_rate_that_goes_up_and_down_never_gives_more_than_one_task_above_the_largest(
    burst_ms: int, script: list[tuple[int, int, int]]
):
    """However often it changes: bursts are whole tasks, so one rate may round up what another rounds down."""
    meter = Meter(Rate(script[0][0], burst_ms), now_ms=10**9)
    for micro, ms, count in script:
        meter.rate = Rate(micro, burst_ms)
        meter.run([(ms, count)])
    check_every_window(meter.went, Rate(max(micro for micro, _, _ in script), burst_ms), more=1)


def test_a_rate_that_flutters_gains_nothing_by_it():
    """Two and two and a half a second by turns, every millisecond, as a key whose tasks bring two weights."""
    meter = Meter(Rate(per_second(2)), now_ms=10**9)
    for turn in range(60_000):
        meter.rate = Rate(per_second((2, 2.5)[turn % 2]))
        meter.run([(1, 5)])
    assert len(meter.went) <= most_in(Rate(per_second(2.5)), 60_000) + 1


@given(
    slow=st.integers(1, per_second(0.01)), fast=st.integers(per_second(1), per_second(1000)), start=moments
)
def test_a_rate_turned_up_from_almost_nothing_acts_within_two_of_its_intervals(
    slow: int, fast: int, start: int
):
    """The debt of the old rate, which may be days, is cut at the first look."""
    meter = Meter(Rate(slow), start)
    meter.ask(1)
    meter.rate = Rate(fast)
    assert meter.ask(1) == 0, "nothing for free"
    meter.now_ms += -(-2 * meter.rate.interval_ns // NANO_PER_MS)
    assert meter.ask(1) == 1


@given(rate=rates, back_ms=st.integers(0, 10**8), spent=st.integers(1, 10**6))
def test_a_clock_set_back_never_closes_for_longer_than_a_burst_one_more_and_the_skew_of_clocks(
    rate: Rate, back_ms: int, spent: int
):
    meter = Meter(rate, now_ms=10**9)
    meter.ask(spent)
    meter.now_ms -= back_ms
    opens = open_at_ms(rate, meter.paid_until_ns, meter.now_ms)
    meter.ask(0)
    assert opens is not None
    assert opens == open_at_ms(rate, meter.paid_until_ns, meter.now_ms)
    closed_ns = (rate.burst + 1) * rate.interval_ns + CLOCK_SKEW_NS
    assert opens - meter.now_ms <= -(-closed_ns // NANO_PER_MS)
    meter.now_ms = opens
    assert meter.ask(1) == 1


@given(
    rate=slow_rates,
    behind=st.lists(st.integers(0, CLOCK_SKEW_NS // NANO_PER_MS), min_size=2, max_size=3),
    script=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 7, 40, 333]), st.integers(1, 9)), max_size=60
    ),
)
def test_servers_whose_clocks_differ_share_one_rate(
    rate: Rate, behind: list[int], script: list[tuple[int, int, int]]
):
    """Whichever server looks, also one that grants nothing, no other one may grant more by it."""
    now_ms, until_ns, went = 10**9, 0, list[int]()
    for server, ms, count in script:
        now_ms += ms
        clock_ms = now_ms - behind[server % len(behind)]
        given = min(count, available(rate, until_ns, clock_ms))
        until_ns = paid(rate, until_ns, clock_ms, given)
        went += [clock_ms] * given
    check_every_window(sorted(went), rate)


@given(rate=rates, until=st.integers(0, 10**18), now=moments)
def test_a_look_that_gives_nothing_only_ever_lowers_the_debt_and_looking_twice_changes_nothing(
    rate: Rate, until: int, now: int
):
    once = paid(rate, until, now, 0)
    assert once <= until
    assert paid(rate, once, now, 0) == once
    assert available(rate, once, now) == available(rate, until, now)


# ── Weights ─────────────────────────────────────────────────────────────────────────────────────────────


@given(
    micro=st.integers(1, RATE_MAX_MICRO), weight=st.integers(1, 1_000_000), burst_ms=st.integers(0, 10_000)
)
def test_a_weight_scales_the_rate_in_proportion_but_never_closes_it(micro: int, weight: int, burst_ms: int):
    scaled = Rate(micro, burst_ms).scaled(weight)
    assert scaled.burst_ms == burst_ms
    assert not scaled.is_closed
    assert scaled.micro == max(1, micro * weight // 1000)


@given(weight=st.integers(1, 1_000_000))
def test_no_weight_opens_a_closed_rate(weight: int):
    assert Rate(0).scaled(weight).is_closed


def test_weights_of_one_and_two_and_a_half_give_bursts_of_ten_and_twenty_five():
    default = Rate(per_second(10))
    assert [default.scaled(weight).burst for weight in (1000, 2500)] == [10, 25]
