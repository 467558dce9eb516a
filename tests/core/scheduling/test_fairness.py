"""The order of keys inside a level: the published bounds, as laws and as numbers."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.core.scheduling.fairness import SCALE, Lane, LaneState, VirtualClock, assign_tags, plan, stride
from tests.core.scheduling.queue_model import LEVEL, QueueModel
from tests.support.effort import times

weights = st.one_of(st.integers(1, 1_000_000), st.sampled_from([1, 10, 400, 1000, 2500, 20_000, 1_000_000]))
weight_sets = st.lists(weights, min_size=2, max_size=12)
batches = st.integers(1, 17)


def named(number: int) -> str:
    return f"k{number:05d}"


def a_queue_of(weight_set: list[int], count: int = 10_000) -> QueueModel:
    queue = QueueModel()
    for number, weight in enumerate(weight_set):
        queue.enqueue(named(number), count, weight=weight)
    return queue


# ── The stride ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("weight_milli", "cost"),
    [(1, SCALE), (1000, 68_719_477), (1_000_000, 68_719), (2500, 27_487_791), (3000, 22_906_492)],
)
def test_a_stride_is_the_scale_divided_by_the_weight_to_the_nearest_integer(weight_milli: int, cost: int):
    assert stride(weight_milli) == cost == round(SCALE / weight_milli)


@given(weight=weights)
def test_no_stride_strays_from_the_exact_quotient_by_more_than_seven_millionths(weight: int):
    assert abs(stride(weight) * weight / SCALE - 1) <= 7.3e-6


# ── Laws ────────────────────────────────────────────────────────────────────────────────────────────────


@given(weight_set=weight_sets, turns=st.integers(0, 250), batch=batches, skip=st.integers(0, 60))
@settings(max_examples=times(30))
def test_any_two_busy_keys_stay_within_one_task_each_of_their_ratio(
    weight_set: list[int], turns: int, batch: int, skip: int
):
    """Holds `fair-share` (pair bound) over any interval, for any weights and any size of batch."""
    queue = a_queue_of(weight_set)
    queue.keys(skip, batch)
    counts = Counter[str]()
    for key in queue.keys(turns, batch):
        counts[key] += 1
        for one, other in combinations(range(len(weight_set)), 2):
            left = counts[named(one)] * stride(weight_set[one])
            right = counts[named(other)] * stride(weight_set[other])
            assert abs(left - right) <= stride(weight_set[one]) + stride(weight_set[other])


@given(weight_set=weight_sets, turns=st.integers(1, 250), batch=batches)
@settings(max_examples=times(30))
def test_no_key_strays_from_its_share_by_more_than_the_published_bound(
    weight_set: list[int], turns: int, batch: int
):
    """|S - share N| <= 1 + share n, with a hair for the rounding of strides."""
    queue = a_queue_of(weight_set)
    counts, total = Counter[str](), sum(weight_set)
    for turn, key in enumerate(queue.keys(turns, batch), 1):
        counts[key] += 1
        for number, weight in enumerate(weight_set):
            share = weight / total
            bound = 1 + share * len(weight_set)
            assert abs(counts[named(number)] - share * turn) <= bound + 1e-4 * turn


moves = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.integers(0, 7), st.integers(1, 9)),
        st.tuples(st.just("claim"), st.integers(1, 9), st.just(0)),
        st.tuples(st.just("reweight"), st.integers(0, 7), st.sampled_from([1, 400, 1000, 2500, 90_000])),
    ),
    max_size=60,
)


def play(queue: QueueModel, script: list[tuple[str, int, int]], batch: int | None = None) -> list[str]:
    """The keys that a script dispatches; `batch` 1 makes every claim of n into n claims of one."""
    served: list[str] = []
    for move, number, amount in script:
        if move == "enqueue":
            queue.enqueue(named(number), amount)
        elif move == "reweight" and (LEVEL, named(number)) in queue.lanes:
            queue.reweight(named(number), amount)
        elif move == "claim":
            served += queue.keys(number, batch)
    return served


@given(script=moves)
def test_virtual_time_never_falls_back_and_no_ready_lane_lies_behind_it(script: list[tuple[str, int, int]]):
    queue, seen = QueueModel(), 0
    for move in script:
        play(queue, [move])
        assert queue.virtual() >= seen
        seen = queue.virtual()
        placed = [lane for lane in queue.lanes.values() if lane.count and lane.state == LaneState.READY]
        assert all(lane.tag >= seen for lane in placed)


@given(
    script=st.lists(st.tuples(st.sampled_from(["enqueue", "claim"]), st.integers(1, 7), st.integers(1, 9)))
)
def test_two_dispatches_of_a_key_carry_tags_at_least_one_stride_apart(script: list[tuple[str, int, int]]):
    queue = QueueModel()
    play(queue, script, batch=1)
    for lane_key in queue.lanes:
        tags = [tag for billed, tag in queue.bills if billed == lane_key]
        assert all(later - earlier >= stride(1000) for earlier, later in pairwise(tags))


@given(script=moves)
def test_a_claim_of_n_is_n_claims_of_one(script: list[tuple[str, int, int]]):
    """Through decide and settle: same order, same tags, same clocks."""
    together, apart = QueueModel(), QueueModel()
    assert play(together, script) == play(apart, script, batch=1)
    assert together.lanes == apart.lanes
    assert together.clocks == apart.clocks


@given(
    lanes=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 10**9), weights, st.integers(0, 6)), max_size=9
    ),
    room=st.integers(0, 30),
)
def test_a_plan_for_n_is_n_plans_for_one(lanes: list[tuple[int, int, int, int]], room: int):
    start = [
        Lane(level, named(number), tag, weight, weight, count)
        for number, (level, tag, weight, count) in enumerate(lanes)
    ]
    whole = plan(start, [], room)
    rows = {(lane.level, lane.key): lane for lane in start}
    clocks: dict[int, VirtualClock] = {}
    order: list[tuple[int, str]] = []
    for _ in range(room):
        one = plan(list(rows.values()), list(clocks.values()), 1)
        rows |= {(lane.level, lane.key): lane for lane in one.lanes}
        clocks |= {clock.level: clock for clock in one.clocks}
        order += one.order
    assert list(whole.order) == order
    assert all(rows[lane.level, lane.key] == lane for lane in whole.lanes)
    assert sorted(clocks.values(), key=lambda clock: clock.level) == list(whole.clocks)


@given(script=moves, room=st.integers(1, 40))
def test_a_claim_gives_all_that_waits_or_all_that_was_asked_for(
    script: list[tuple[str, int, int]], room: int
):
    """Work conservation."""
    queue = QueueModel()
    play(queue, script)
    waiting = queue.waiting()
    assert len(queue.claim(room)) == min(room, waiting)
    assert queue.waiting() == waiting - min(room, waiting)


@given(weight_set=weight_sets, late=weights, skip=st.integers(0, 200))
@settings(max_examples=times(30))
def test_a_late_key_is_served_within_one_round(weight_set: list[int], late: int, skip: int):
    """Before its first dispatch at most the sum of (w_j / w_late, rounded down, + 1) others go."""
    queue = a_queue_of(weight_set, count=1000)
    queue.keys(skip, 7)
    queue.enqueue("late", 1, weight=late)
    most = sum(stride(late) // stride(weight) + 1 for weight in weight_set)
    assume(most <= 1000)
    assert "late" in queue.keys(most + 1)


@given(weight_set=weight_sets, skip=st.integers(1, 200))
@settings(max_examples=times(30))
def test_a_lone_newcomer_waits_only_for_keys_that_are_due_this_instant(weight_set: list[int], skip: int):
    queue = a_queue_of(weight_set, count=1000)
    queue.keys(skip)
    assume(queue.clocks[LEVEL].placed == 0)
    due = sum(lane.tag == queue.virtual() for lane in queue.lanes.values())
    queue.enqueue("late", 1, weight=1)
    assert "late" in queue.keys(due + 1)


@given(script=moves, room=st.integers(1, 30))
def test_an_idle_lane_behind_virtual_time_holds_no_information(script: list[tuple[str, int, int]], room: int):
    """Forgetting it changes no later claim, so memory is bounded by the active keys."""
    plain = [move for move in script if move[0] != "reweight"]
    kept, thrifty = QueueModel(), QueueModel()
    for move in plain:
        assert play(kept, [move]) == play(thrifty, [move])
        for lane_key, lane in list(thrifty.lanes.items()):
            if lane.count == 0 and lane.tag <= thrifty.virtual():
                del thrifty.lanes[lane_key]
    assert kept.keys(room) == thrifty.keys(room)


@given(script=moves)
def test_the_order_does_not_depend_on_how_large_virtual_time_has_grown(script: list[tuple[str, int, int]]):
    assert play(QueueModel(), script) == play(QueueModel(virtual=(1 << 61) - 5), script)


# ── Numbers ─────────────────────────────────────────────────────────────────────────────────────────────


def test_weights_of_five_three_and_two_share_ten_and_six_hundred_dispatches_exactly():
    queue = QueueModel()
    shares = {"premium": 5, "basic": 3, "free": 2}
    for key, weight in shares.items():
        queue.enqueue(key, 400, weight=weight * 1000)
    served = queue.keys(600, batch=7)
    assert Counter(served[:10]) == shares
    assert Counter(served) == {"premium": 300, "basic": 180, "free": 120}
    for turn in range(1, 601):
        counts = Counter(served[:turn])
        assert all(abs(counts[key] - turn * weight / 10) <= 1 for key, weight in shares.items())


def test_twenty_equal_keys_are_served_round_by_round():
    queue = QueueModel()
    for number in range(20):
        queue.enqueue(named(number), 50)
    for round_ in range(1, 11):
        queue.keys(20, batch=3)
        assert {lane.count for lane in queue.lanes.values()} == {50 - round_}


def test_a_key_as_heavy_as_a_thousand_others_never_strays_by_more_than_two():
    queue = QueueModel()
    queue.enqueue("heavy", 20_000, weight=1_000_000)
    for number in range(1000):
        queue.enqueue(named(number), 20, weight=1000)
    heavy = 0
    for turn, key in enumerate(queue.keys(4000, batch=500), 1):
        heavy += key == "heavy"
        assert abs(heavy - turn / 2) <= 2


def test_a_new_weight_acts_from_the_next_dispatch_and_so_does_its_return():
    queue = QueueModel()
    for key in "abc":
        queue.enqueue(key, 200)
    assert queue.served(90) == {"a": 30, "b": 30, "c": 30}
    queue.reweight("a", 10_000)
    shares = queue.served(120)
    assert abs(shares["a"] - 100) <= 1
    assert abs(shares["b"] - 10) <= 1
    queue.reweight("a", 1000)
    shares = queue.served(30)
    assert all(abs(shares[key] - 10) <= 1 for key in "abc")


def test_a_key_turned_down_to_a_thousandth_hardly_goes_any_more():
    queue = QueueModel()
    queue.enqueue("a", 5000)
    queue.enqueue("b", 5000)
    queue.keys(10)
    queue.reweight("a", 1)
    assert queue.served(500)["a"] <= 1


def test_a_small_backlog_that_comes_after_a_large_one_goes_every_other_time():
    queue = QueueModel()
    queue.enqueue("big", 5000)
    queue.enqueue("late", 5)
    places = [place_ for place_, key in enumerate(queue.keys(20)) if key == "late"]
    assert all(found <= at_most for found, at_most in zip(places, (1, 3, 5, 7, 9), strict=True))


def test_a_single_newcomer_among_a_thousand_busy_keys_goes_first():
    queue = QueueModel()
    for number in range(1000):
        queue.enqueue(named(number), 8)
    queue.keys(500)
    queue.enqueue("solo")
    assert "solo" in queue.keys(2)


def test_a_hundred_newcomers_at_one_instant_are_spread_over_a_round_and_never_share_a_place():
    queue = QueueModel()
    for number in range(1000):
        queue.enqueue(named(number), 8)
    queue.keys(500)
    newcomers = [
        Lane(LEVEL, f"new{number:03d}", 0, 1000, 1000, 1, state=LaneState.NEW) for number in range(100)
    ]
    placed, (clock,) = assign_tags(newcomers, [queue.clocks[LEVEL]])
    tags = sorted(lane.tag for lane in placed)
    assert len(set(tags)) == 100
    assert clock.placed == queue.clocks[LEVEL].placed + 100
    gaps = [later - earlier for earlier, later in pairwise(tags)]
    assert max(gaps) <= 3 * stride(1000) / 100, "no hole, so no pile either"
    for lane in newcomers:
        queue.enqueue(lane.key)
    assert sum(key.startswith("new") for key in queue.keys(1100, batch=50)) == 100


def test_ten_thousand_keys_are_each_served_once_before_any_is_served_twice():
    queue = QueueModel()
    for number in range(10_000):
        queue.enqueue(named(number), 2)
    assert set(queue.served(10_000).values()) == {1}


def test_idle_time_earns_nothing():
    queue = QueueModel()
    queue.enqueue("x", 1)
    queue.enqueue("y", 1200)
    queue.keys(1001)
    queue.enqueue("x", 100)
    shares = queue.served(20)
    assert abs(shares["x"] - 10) <= 1


def test_a_key_that_comes_back_each_time_it_is_empty_gets_no_more_than_its_share():
    queue = QueueModel()
    queue.enqueue("steady", 2000)
    flapper = 0
    for _ in range(1000):
        if queue.lanes.get((LEVEL, "flapper"), Lane(LEVEL, "", 0, 1, 1, 0)).count == 0:
            queue.enqueue("flapper")
        flapper += queue.keys(1) == ["flapper"]
    assert flapper <= 501


@pytest.mark.parametrize(
    ("per_dispatch", "least", "longest_gap"),
    [(0.25, 0.74, 2), (0.5, 0.49, 2), (0.75, 0.24, 5), (1.0, 0.005, None)],
)
def test_a_drip_of_fresh_keys_cannot_freeze_an_established_one(
    per_dispatch: float, least: float, longest_gap: int | None
):
    queue = QueueModel()
    queue.enqueue("established", 10**6)
    queue.keys(50)
    due, fresh, gap, worst, served, turns = 0.0, 0, 0, 0, 0, 2000
    for _ in range(turns):
        due += per_dispatch
        while due >= 1:
            queue.enqueue(f"fresh{fresh:05d}")
            fresh, due = fresh + 1, due - 1
        gap += 1
        if queue.keys(1) == ["established"]:
            served, worst, gap = served + 1, max(worst, gap), 0
        for lane_key in [lane_key for lane_key, lane in queue.lanes.items() if not lane.count]:
            if queue.lanes[lane_key].tag <= queue.virtual():
                del queue.lanes[lane_key]
    assert served >= least * turns
    assert longest_gap is None or worst <= longest_gap


def test_sixty_featherweights_that_join_at_once_take_their_share_and_no_more():
    queue = QueueModel()
    queue.enqueue("normal", 400)
    queue.keys(150)
    for number in range(60):
        queue.enqueue(f"tiny{number:02d}", weight=10)
    assert 36 <= sum(key.startswith("tiny") for key in queue.keys(100)) <= 39


def test_a_key_whose_weight_flutters_is_not_pushed_back_each_time():
    """Its wait is scaled by the weights; only a key that comes anew is given a place in the round."""
    queue, dice = QueueModel(), random.Random(7)
    for number in range(30):
        queue.enqueue(f"calm{number:02d}", 500)
    for key in ("flutter-a", "flutter-b"):
        queue.enqueue(key, 500)
    queue.keys(64)
    counts = Counter[str]()
    for _ in range(640):
        for key in ("flutter-a", "flutter-b"):
            queue.reweight(key, dice.choice((990, 1000, 1010)))
        counts.update(queue.keys(1))
    assert min(counts["flutter-a"], counts["flutter-b"]) >= 17, "a share of 20, less a little for rounding"


def test_a_key_whose_weight_changes_and_changes_back_between_two_claims_is_not_pushed_back_either():
    queue = QueueModel()
    for number in range(30):
        queue.enqueue(f"calm{number:02d}", 500)
    for key in ("moody-a", "moody-b"):
        queue.enqueue(key, 500)
    queue.keys(64)
    counts = Counter[str]()
    for _ in range(640):
        for key in ("moody-a", "moody-b"):
            queue.reweight(key, 9000)
            queue.reweight(key, 1000)
        counts.update(queue.keys(1))
    assert abs(counts["moody-a"] - 20) <= 1
    assert abs(counts["moody-b"] - 20) <= 1


def test_a_key_that_comes_back_with_a_wait_left_keeps_it():
    """As if it had been busy all the time: no debt is forgiven, and none is added."""
    placed, (clock,) = assign_tags(
        [Lane(LEVEL, "a", 700, 1000, 1000, 1, state=LaneState.NEW)], [VirtualClock(LEVEL, 500, placed=3)]
    )
    assert [lane.tag for lane in placed] == [700]
    assert clock == VirtualClock(LEVEL, 500, placed=3)


def test_newcomers_that_are_placed_later_have_their_first_turn_before_anybodys_second():
    """More came at one instant than one claim places: they count from when they came."""
    came = [Lane(LEVEL, named(number), 0, 1000, 1000, 5, LaneState.NEW, base=1000) for number in range(600)]
    lanes: dict[str, Lane] = {}
    clock, served = VirtualClock(LEVEL, 1000), Counter[str]()
    for turn in range(12):
        placed, (clock,) = assign_tags(came[turn * 200 : (turn + 1) * 200], [clock])
        lanes |= {lane.key: lane for lane in placed}
        planned = plan(list(lanes.values()), [clock], 50)
        lanes |= {lane.key: lane for lane in planned.lanes}
        (clock,) = planned.clocks
        served.update(key for _, key in planned.order)
    assert set(served.values()) == {1}
    assert len(served) == 600
