"""Refunds: what was charged for a task that was never delivered is given back, and never more than that."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.limits import rates, windows
from penstock.core.limits.rates import NANO_PER_MS, Payment, Rate
from penstock.core.limits.windows import SECOND_MS, Counts, Window
from penstock.core.scheduling import fairness
from penstock.core.scheduling.charges import ScopeCharge, WindowCharge, refunded
from penstock.core.scheduling.fairness import Lane, VirtualClock
from penstock.core.scheduling.gates import ScopeState
from tests.core.limits.test_rates import check_every_window
from tests.core.scheduling.queue_model import per_second

NOW_MS = 1_700_000_000_000
slow_rates = st.builds(
    Rate,
    st.one_of(st.integers(per_second(0.05), per_second(50)), st.just(per_second(2.5))),
    st.sampled_from([0, 300, 1000, 3000]),
)
scripts = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 7, 40, 100, 333, 1000, 5000]),
        st.integers(0, 8),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=30,
)
"""How long after the last step; how many are asked for; which poll of those under way fails; whether one does."""


@dataclass
class RatedQueue:
    """A queue with a rate whose polls get their answers, or do not."""

    rate: Rate
    now_ms: int = NOW_MS
    paid_until_ns: int = 0
    under_way: list[list[Payment]] = field(default_factory=list)
    went: Counter[int] = field(default_factory=Counter)

    def grant(self, asked: int) -> None:
        count = min(asked, rates.available(self.rate, self.paid_until_ns, self.now_ms))
        self.paid_until_ns = rates.paid(self.rate, self.paid_until_ns, self.now_ms, count)
        self.went[self.now_ms] += count
        if count:
            self.under_way.append(
                [Payment(self.rate.interval_ns, self.now_ms, lane_state) for lane_state in range(count)]
            )

    def hand_back(self, which: int) -> None:
        if self.under_way:
            for payment in reversed(self.under_way.pop(which % len(self.under_way))):
                self.paid_until_ns = rates.returned(self.rate, self.paid_until_ns, self.now_ms, payment)
                self.went[payment.at_ms] -= 1

    @property
    def delivered(self) -> list[int]:
        return sorted(self.went.elements())


@given(rate=slow_rates, script=scripts)
def test_what_was_delivered_keeps_the_rate_in_every_window_whatever_was_refunded(
    rate: Rate, script: list[tuple[int, int, int, bool]]
):
    queue = RatedQueue(rate)
    for ms, asked, which, fails in script:
        queue.now_ms += ms
        if fails:
            queue.hand_back(which)
        queue.grant(asked)
    check_every_window(queue.delivered, rate)


@given(rate=slow_rates, asked=st.integers(1, 20), late_ms=st.integers(0, 20_000))
def test_a_poll_that_fails_alone_leaves_the_rate_as_if_it_had_never_come(
    rate: Rate, asked: int, late_ms: int
):
    queue = RatedQueue(rate)
    queue.grant(asked)
    queue.now_ms += late_ms
    queue.hand_back(0)
    assert rates.available(rate, queue.paid_until_ns, queue.now_ms) == rate.burst


@given(
    rate=slow_rates, asked=st.integers(1, 20), owed_ms=st.integers(0, 5_000), late_ms=st.integers(0, 20_000)
)
def test_a_poll_that_fails_in_a_busy_time_leaves_at_least_what_it_found_and_no_more_than_without_it(
    rate: Rate, asked: int, owed_ms: int, late_ms: int
):
    before_ns = rates.paid(rate, (NOW_MS + owed_ms) * NANO_PER_MS, NOW_MS, 0)
    queue = RatedQueue(rate, paid_until_ns=before_ns)
    found = rates.available(rate, before_ns, NOW_MS)
    queue.grant(asked)
    queue.now_ms += late_ms
    queue.hand_back(0)
    without = rates.available(rate, before_ns, queue.now_ms)
    assert found <= rates.available(rate, queue.paid_until_ns, queue.now_ms) <= without


@given(old=slow_rates, new=slow_rates, paid_ms=st.integers(-5_000, 20_000), late_ms=st.integers(0, 3_000))
def test_after_a_change_of_the_rate_one_refund_is_worth_one_dispatch_at_most(
    old: Rate, new: Rate, paid_ms: int, late_ms: int
):
    now_ms, paid_ns = NOW_MS + late_ms, (NOW_MS + paid_ms) * NANO_PER_MS
    after_ns = rates.returned(new, paid_ns, now_ms, Payment(old.interval_ns, NOW_MS))
    owed_ns = rates.paid(new, paid_ns, now_ms, 0)
    assert 0 <= owed_ns - min(owed_ns, after_ns) <= min(old.interval_ns, new.interval_ns)
    assert after_ns <= paid_ns
    assert rates.available(new, after_ns, now_ms) - rates.available(new, paid_ns, now_ms) in (0, 1)


def test_a_rate_that_is_closed_now_gets_nothing_back():
    assert rates.returned(Rate(0), 5, NOW_MS, Payment(1_000, NOW_MS)) == 5


# ── Windows ─────────────────────────────────────────────────────────────────────────────────────────────


@given(
    window=st.sampled_from(list(Window)),
    steps=st.lists(
        st.tuples(st.sampled_from([0, 3, 400, 999, 1000, 20_000, 59_000, 61_000]), st.booleans()), max_size=30
    ),
)
def test_a_window_counts_what_was_delivered_and_no_less(window: Window, steps: list[tuple[int, bool]]):
    now_ms, counts, real = NOW_MS, windows.NOTHING, windows.NOTHING
    undelivered: list[WindowCharge] = []
    for ms, fails in steps:
        now_ms += ms
        counts = windows.spent(window, counts, now_ms, 1)
        if fails:
            undelivered.append(WindowCharge(window, counts[-1][0] * SECOND_MS))
        else:
            real = windows.spent(window, real, now_ms, 1)
        if len(undelivered) == 2:
            for charge in undelivered:
                counts = windows.returned(window, counts, charge.at_ms, 1)
            undelivered.clear()
        pending = len(undelivered)
        used, delivered = windows.used(window, counts, now_ms), windows.used(window, real, now_ms)
        assert delivered <= used <= delivered + pending


@given(window=st.sampled_from(list(Window)), others=st.integers(0, 5), late_ms=st.integers(0, 200_000))
def test_a_refund_takes_nothing_from_what_was_counted_in_another_minute(
    window: Window, others: int, late_ms: int
):
    charged = windows.spent(window, windows.NOTHING, NOW_MS, 1)
    at_ms = charged[-1][0] * SECOND_MS
    later_ms = NOW_MS + 60_000 + late_ms
    counts = windows.spent(window, charged, later_ms, others)
    after = windows.returned(window, counts, at_ms, 1)
    assert windows.used(window, after, later_ms) >= others
    assert total(after) >= total(counts) - 1


def total(counts: Counts) -> int:
    return sum(amount for _, amount in counts)


# ── Scopes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_scope_counts_as_if_the_task_had_never_gone():
    second = NOW_MS // SECOND_MS
    state = ScopeState(7, "group:default/bank", 5, 1, ((second, 4),), ((second, 900),))
    charge = ScopeCharge(7, WindowCharge(Window.MINUTE, NOW_MS), WindowCharge(Window.MINUTE, NOW_MS, 300))
    after = refunded(state, charge, NOW_MS)
    assert (after.window, after.costs) == (((second, 3),), ((second, 600),))
    assert (after.granted, after.ended) == (5, 1), "the end of the lease is counted where leases end"


def test_a_ramp_takes_back_only_what_it_gave_itself():
    state = ScopeState(7, "group:default/bank", cool_until_ms=NOW_MS, cool_given=3)
    charge = ScopeCharge(7, WindowCharge(Window.MINUTE, NOW_MS))
    assert refunded(state, charge, NOW_MS + 5).cool_given == 2
    assert refunded(state, charge, NOW_MS - 5).cool_given == 3, "it went before this cool-down"
    assert refunded(replace(state, cool_given=0), charge, NOW_MS + 5).cool_given == 0


# ── Fairness ────────────────────────────────────────────────────────────────────────────────────────────


@given(
    weights=st.lists(st.sampled_from([500, 1_000, 2_000, 3_000]), min_size=2, max_size=4),
    fails=st.lists(st.booleans(), min_size=10, max_size=120),
    waits=st.integers(0, 3),
)
def test_what_each_key_gets_stays_fair_when_turns_that_were_lost_are_paid_back(
    weights: list[int], fails: list[bool], waits: int
):
    """In what was delivered: a key is one turn behind or ahead for its own, and one for each refund on its way.

    A refund returns what lies ahead of the virtual clock, so each one that came late may cost its key up to one turn.
    """
    lanes = {f"k{n}": Lane(0, f"k{n}", 0, weight, weight, 1_000) for n, weight in enumerate(weights)}
    clocks: tuple[VirtualClock, ...] = (VirtualClock(0),)
    got: Counter[str] = Counter()
    owed: list[tuple[str, int]] = []
    late: Counter[str] = Counter()
    for is_lost in fails:
        plan = fairness.plan(list(lanes.values()), clocks, 1)
        (_, key), clocks = plan.order[0], plan.clocks
        lanes[key] = plan.lanes[0]
        if is_lost:
            owed.append((key, fairness.stride(lanes[key].weight_milli)))
        else:
            got[key] += 1
        if len(owed) > waits:
            lost, paid = owed.pop(0)
            lanes[lost] = fairness.refund_tag(lanes[lost], paid)
            late[lost] += lanes[lost].tag < clocks[0].virtual
    lost_now = Counter(key for key, _ in owed)
    for key, lane in lanes.items():
        for other, beside in lanes.items():
            ahead = got[key] * 1_000 / lane.weight_milli - got[other] * 1_000 / beside.weight_milli
            slack = (waits + 2) * 1_000 / lane.weight_milli
            slack += (waits + 2 + lost_now[other] + late[other]) * 1_000 / beside.weight_milli
            assert ahead <= slack + 1e-3


def test_a_lane_that_was_given_another_weight_gets_back_a_stride_of_the_smaller_one():
    lane = Lane(0, "a", 10 * fairness.stride(1_000), 2_000, 2_000, 1)
    assert lane.tag - fairness.refund_tag(lane, fairness.stride(1_000)).tag == fairness.stride(2_000)
    heavy = replace(lane, weight_milli=500)
    assert heavy.tag - fairness.refund_tag(heavy, fairness.stride(1_000)).tag == fairness.stride(1_000)


def test_a_lane_paid_back_behind_virtual_time_saves_up_nothing():
    clock = VirtualClock(0, virtual=50 * fairness.SCALE)
    lanes = [Lane(0, key, 50 * fairness.SCALE, 1_000, 1_000, 10) for key in ("a", "b")]
    paid_back = lanes[0]
    for _ in range(20):
        paid_back = fairness.refund_tag(paid_back, fairness.stride(1_000))
    plan = fairness.plan([paid_back, lanes[1]], [clock], 10)
    assert Counter(plan.order) == {(0, "a"): 5, (0, "b"): 5}
