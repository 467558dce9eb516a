"""The laws of the dispatch order, held over made-up histories with every kind of limit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.limits import rates as core_rates
from penstock.core.limits.policies import KeySettings, KeyState, LimitSetting
from penstock.core.limits.rates import NANO_PER_MS, Rate
from penstock.core.scheduling.dispatch import Grants, HoldReason, QueueSnapshot, Settled, decide, settle
from penstock.core.scheduling.fairness import LaneKey, stride
from tests.core.scheduling.queue_histories import (
    KEYS,
    Change,
    History,
    Step,
    aging,
    counting,
    fairness,
    histories,
    key_limits,
    open_rates,
    open_running_limits,
    override,
    queue_limits,
    tasks,
    tasks_of_any_weight,
    tasks_of_one_level,
    told,
)
from tests.core.scheduling.queue_model import LEVEL, QueueModel
from tests.support.effort import times

T = TypeVar("T")
LAW = settings(max_examples=times(30))

# ── By definition ───────────────────────────────────────────────────────────────────────────────────────


def left_of(queue: QueueModel, key: str) -> int:
    """How many the key may be given now: what waits, its running limit, its rate and its pause."""
    rules, row = queue.queue.rules, queue.keys_rows.get(key, KeyState(key))
    asked = queue.key_settings.get(key, KeySettings(key))
    weight = KEYS[key] if asked.weight_milli is None else asked.weight_milli
    left = sum(lane.count for lane in queue.lanes.values() if lane.key == key)
    limit, rate = rules.lease_cap_of(row), rules.rate_of(row, weight)
    if limit is not None:
        left = min(left, max(0, limit - queue.running()[key]))
    if rate is not None:
        left = min(left, core_rates.available(rate, row.paid_until_ns, queue.now_ms))
    return 0 if asked.paused else left


def left_of_the_queue(queue: QueueModel) -> int:
    rules, left = queue.queue.rules, 10**9
    if rules.queue_rate is not None:
        left = core_rates.available(rules.queue_rate, queue.queue.paid_until_ns, queue.now_ms)
    if rules.lease_cap is not None:
        left = min(left, max(0, rules.lease_cap - len(queue.leases)))
    return 0 if queue.queue.paused else left


def may_go(queue: QueueModel) -> set[LaneKey]:
    free = {key for key in KEYS if left_of(queue, key)}
    return {lane_key for lane_key, lane in queue.lanes.items() if lane.count and lane.key in free}


def replay(history: History) -> Iterator[tuple[QueueModel, Step]]:
    """The queue before each claim of a history."""
    queue = QueueModel(history.settings)
    for step in history.steps:
        step.happen(queue)
        yield queue, step


def one_by_one(history: History) -> Iterator[tuple[QueueModel, set[LaneKey], LaneKey]]:
    """Each dispatch of a history with the lanes that could have gone."""
    for queue, step in replay(history):
        for _ in range(step.room):
            candidates = may_go(queue)
            served = queue.claim(1)
            if not served:
                break
            yield queue, candidates, served[0]


def ever(history: History) -> QueueModel:
    queue = QueueModel(history.settings)
    for queue, step in replay(history):
        queue.claim(step.room)
    return queue


# ── Fair shares ─────────────────────────────────────────────────────────────────────────────────────────


@given(history=histories(tasks_of_one_level, queue_limits, key_limits))
@LAW
def test_any_two_keys_keep_their_ratio_in_every_interval_in_which_both_may_go(history: History):
    """Pair bound: |Si/wi - Sj/wj| <= 1/wi + 1/wj, while other keys are throttled, capped and paused."""
    turns = [(candidates, lane_key[1]) for _, candidates, lane_key in one_by_one(history)]
    for one, other in combinations(KEYS, 2):
        cost = {one: stride(KEYS[one]), other: -stride(KEYS[other])}
        lead, seen = 0, [0]
        for candidates, key in turns:
            if not {(LEVEL, one), (LEVEL, other)} <= candidates:
                lead, seen = 0, [0]
                continue
            lead += cost.get(key, 0)
            seen.append(lead)
            assert max(seen) - min(seen) <= cost[one] - cost[other]


@given(history=histories(tasks_of_one_level, key_limits), start=st.integers(0, 20))
@LAW
def test_no_key_strays_from_its_share_by_more_than_its_bound_while_the_same_keys_may_go(
    history: History, start: int
):
    """Share bound: |S - share N| <= 1 + share n, in every run of dispatches by one set of keys."""
    turns = [(frozenset(candidates), lane_key) for _, candidates, lane_key in one_by_one(history)][start:]
    counts, among = Counter[LaneKey](), frozenset[LaneKey]()
    for candidates, lane_key in turns:
        if candidates != among:
            counts, among = Counter(), candidates
        counts[lane_key] += 1
        weight = {each: KEYS[each[1]] for each in among}
        for each in among:
            share = weight[each] / sum(weight.values())
            assert (
                abs(counts[each] - share * counts.total()) <= 1 + share * len(among) + 1e-4 * counts.total()
            )


@given(history=histories(tasks, queue_limits, counting, aging, key_limits))
@LAW
def test_virtual_time_never_falls_back_and_tags_of_a_key_lie_a_stride_apart(history: History):
    virtual: dict[int, int] = {}
    tags: dict[LaneKey, int] = {}
    for queue, _, lane_key in one_by_one(history):
        tag = queue.lanes[lane_key].tag
        assert tag >= tags.get(lane_key, 0) + stride(KEYS[lane_key[1]])
        assert queue.virtual(lane_key[0]) >= virtual.get(lane_key[0], 0)
        tags[lane_key], virtual[lane_key[0]] = tag, queue.virtual(lane_key[0])


@given(
    history=histories(tasks_of_one_level, key_limits),
    new=st.dictionaries(
        st.sampled_from(sorted(KEYS)), st.sampled_from([1, 400, 9000, 1_000_000]), min_size=1
    ),
    by_operator=st.booleans(),
)
@LAW
def test_new_weights_hold_from_the_next_dispatch_for_the_whole_backlog(
    history: History, new: dict[str, int], by_operator: bool
):
    """Reweight: the pair bound of the new weights starts at once, whatever happened before."""
    queue = ever(history)
    for key in KEYS:
        queue.change_key(key, paused=0, rate_micro=None, lease_cap=None)
        queue.enqueue(key, 40, weight=KEYS[key])
    queue.change({LimitSetting.KEY_RATE: None, LimitSetting.KEY_LEASE_CAP: None})
    queue.pause(False)
    for key, weight in new.items():
        if by_operator:
            queue.change_key(key, weight_milli=weight)
        else:
            queue.reweight(key, weight)
    weights = KEYS | new
    served = Counter[str]()
    for _ in range(40):
        served[queue.claim(1)[0][1]] += 1
        for one, other in combinations(KEYS, 2):
            left, right = stride(weights[one]), stride(weights[other])
            assert abs(served[one] * left - served[other] * right) <= left + right


@given(history=histories(tasks_of_any_weight, queue_limits, counting, aging, override, fairness))
@LAW
def test_forgetting_idle_lanes_and_keys_changes_no_later_dispatch(history: History):
    thrifty = QueueModel(history.settings)
    for kept, step in replay(history):
        step.happen(thrifty)
        assert thrifty.claim(step.room) == kept.claim(step.room)
        thrifty.forget_idle()
    assert len(thrifty.lanes) <= len(KEYS) * 3


@given(history=histories(tasks, queue_limits, counting, key_limits, override))
@LAW
def test_forgetting_idle_keys_forgives_no_debt(history: History):
    thrifty = QueueModel(history.settings)
    for kept, step in replay(history):
        step.happen(thrifty)
        assert thrifty.claim(step.room) == kept.claim(step.room)
        thrifty.forget_idle()


# ── Order ───────────────────────────────────────────────────────────────────────────────────────────────


@given(history=histories(tasks, queue_limits, counting, aging, key_limits, override, fairness))
@LAW
def test_tasks_of_one_key_and_level_go_first_come_first_served(history: History):
    last: dict[LaneKey, int] = {}
    for each in ever(history).dispatched:
        assert each.seq > last.get(each.lane_key, 0)
        last[each.lane_key] = each.seq


@given(history=histories(tasks, queue_limits, counting, key_limits, override, fairness))
@LAW
def test_no_task_goes_while_a_key_of_a_lower_level_may_go(history: History):
    for _, candidates, (level, key) in one_by_one(history):
        assert (level, key) in candidates
        assert level == min(lowest for lowest, _ in candidates)


@given(
    every=st.integers(2, 9),
    rooms=st.lists(st.integers(1, 25), min_size=1, max_size=12),
    keys_below=st.integers(1, 3),
    wait_ms=st.integers(0, 1000),
    fair=st.sampled_from(["on", "off"]),
)
def test_while_old_tasks_wait_below_exactly_one_in_n_dispatches_is_theirs(
    every: int, rooms: list[int], keys_below: int, wait_ms: int, fair: str
):
    """Strict but for the guard: every n-th, no sooner and no later, for any sizes of batch."""
    queue = QueueModel(
        {LimitSetting.AGING_WAIT: wait_ms, LimitSetting.AGING_EVERY: every, LimitSetting.FAIRNESS: fair}
    )
    queue.enqueue("endless", 400, level=1)
    for number in range(keys_below):
        queue.enqueue(f"old{number}", 300, level=5)
    queue.advance(wait_ms)
    levels = [level for room in rooms for level, _ in queue.claim(room)]
    assert levels == [5 if turn % every == 0 else 1 for turn in range(1, sum(rooms) + 1)]


@given(
    every=st.integers(2, 9),
    rooms=st.lists(st.integers(1, 25), max_size=12),
    starving=st.sets(st.integers(2, 9)),
)
def test_however_many_levels_starve_they_share_one_in_n_dispatches(
    every: int, rooms: list[int], starving: set[int]
):
    queue = QueueModel({LimitSetting.AGING_WAIT: 0, LimitSetting.AGING_EVERY: every})
    queue.enqueue("endless", 400, level=1)
    for level in starving:
        queue.enqueue("old", 300, level=level)
    levels = [level for room in rooms for level, _ in queue.claim(room)]
    assert sum(level > 1 for level in levels) == (sum(rooms) // every if starving else 0)


# ── Batches ─────────────────────────────────────────────────────────────────────────────────────────────


def check_that_a_batch_is_its_parts(history: History) -> None:
    apart = QueueModel(history.settings)
    for together, step in replay(history):
        step.happen(apart)
        singles = [lane_key for _ in range(step.room) for lane_key in apart.claim(1)]
        assert together.claim(step.room) == singles
        assert {lane_key: lane.tag for lane_key, lane in together.lanes.items()} == {
            lane_key: lane.tag for lane_key, lane in apart.lanes.items()
        }
        assert together.clocks == apart.clocks
        assert together.keys_rows == apart.keys_rows
        assert together.queue == apart.queue


@given(history=histories(tasks, queue_limits, counting, key_limits, key_limits, override))
@LAW
def test_a_claim_of_n_is_n_claims_of_one_under_limits_and_shares_of_what_runs(history: History):
    check_that_a_batch_is_its_parts(history)


@given(history=histories(tasks_of_any_weight, queue_limits, counting, override, fairness))
@LAW
def test_a_claim_of_n_is_n_claims_of_one_while_weights_and_order_change(history: History):
    check_that_a_batch_is_its_parts(history)


@given(
    every=st.integers(2, 7),
    rooms=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    cap=st.one_of(st.none(), st.integers(1, 30)),
    counts=st.sampled_from([None, "running"]),
)
@LAW
def test_a_claim_of_n_is_n_claims_of_one_while_a_level_starves(
    every: int, rooms: list[int], cap: int | None, counts: str | None
):
    """As long as all that waits below is old: a batch judges by what was old at its start."""
    together, apart = QueueModel(), QueueModel()
    for queue in (together, apart):
        queue.change(
            {
                LimitSetting.AGING_WAIT: 0,
                LimitSetting.AGING_EVERY: every,
                LimitSetting.KEY_LEASE_CAP: cap,
                LimitSetting.COUNTS: counts,
            }
        )
        for key in "abc":
            queue.enqueue(key, 30, level=1, weight=KEYS[key])
            queue.enqueue(key, 30, level=5, weight=KEYS[key])
    for room in rooms:
        assert together.claim(room) == [lane_key for _ in range(room) for lane_key in apart.claim(1)]
    assert together.queue == apart.queue
    assert together.clocks == apart.clocks


@given(history=histories(tasks_of_any_weight, queue_limits, counting, override))
@LAW
def test_only_the_least_lanes_that_there_is_room_for_can_be_touched(history: History):
    """So the store hands over `room` lanes, not all."""
    for queue, step in replay(history):
        queue.claim(1)
        seen = queue.snapshot(step.room)
        whole = replace(
            seen, lanes=[lane for lane in queue.lanes.values() if lane.count], keys=queue.keys_rows
        )
        assert decide(seen, step.room) == decide(whole, step.room)
        queue.claim(step.room)


@given(
    history=histories(tasks, queue_limits, counting, aging, key_limits, override, fairness),
    dice=st.randoms(use_true_random=False),
)
@LAW
def test_the_decision_does_not_depend_on_the_order_in_which_rows_are_read(
    history: History, dice: random.Random
):
    """Every node and every database picks alike."""
    for queue, step in replay(history):
        seen = queue.snapshot(step.room)
        mixed = replace(
            seen,
            lanes=shuffled(seen.lanes, dice),
            clocks=shuffled(seen.clocks, dice),
            keys=dict(shuffled(seen.keys.items(), dice)),
            starving=shuffled(seen.starving, dice),
            arrivals=shuffled(seen.arrivals, dice),
        )
        decision = decide(seen, step.room)
        assert decide(mixed, step.room) == decision
        assert settled_alike(seen, mixed, decision.counts() if isinstance(decision, Grants) else {})
        queue.claim(step.room)


def shuffled(rows: Iterable[T], dice: random.Random) -> list[T]:
    mixed = list(rows)
    dice.shuffle(mixed)
    return mixed


def settled_alike(one: QueueSnapshot, other: QueueSnapshot, taken: dict[LaneKey, int]) -> bool:
    def said(settled: Settled) -> tuple[object, ...]:
        return (
            settled.order,
            {lane.lane_key: lane for lane in settled.lanes},
            {clock.level: clock for clock in settled.clocks},
            settled.spent,
            settled.paid,
            settled.paid_until_ns,
            settled.aging_turn,
        )

    return said(settle(one, taken)) == said(settle(other, taken))


# ── Limits ──────────────────────────────────────────────────────────────────────────────────────────────


@given(history=histories(tasks, queue_limits, counting, aging, key_limits, key_limits, override, fairness))
@LAW
def test_a_claim_gives_all_that_queue_keys_and_room_allow_and_not_one_less(history: History):
    """Work conservation: min(n, what the queue allows, the sum of what each key has and may)."""
    for queue, step in replay(history):
        waiting, asked = queue.waiting(), step.room
        expected = min(asked, left_of_the_queue(queue), sum(left_of(queue, key) for key in KEYS))
        assert len(queue.claim(asked)) == expected
        assert queue.waiting() == waiting - expected


@given(history=histories(tasks, queue_limits, counting, aging, key_limits, override, fairness))
@LAW
def test_nothing_ever_runs_beyond_a_limit_and_what_runs_is_counted_right(history: History):
    """Caps at each commit, also when a limit is lowered below what runs: then nothing more goes."""
    for queue, step in replay(history):
        before = queue.running()
        queue.claim(step.room)
        rules, running = queue.queue.rules, queue.running()
        if rules.lease_cap is not None:
            assert running.total() <= max(rules.lease_cap, before.total())
        for key in KEYS:
            row = queue.keys_rows.get(key, KeyState(key))
            limit = rules.lease_cap_of(row)
            assert limit is None or running[key] <= max(limit, before[key])
            assert not rules.counts_leases_by_key or row.running == running[key]


@st.composite
def steady_limits(draw: st.DrawFn) -> list[Change]:
    """Rates and running limits for the queue and every key, set once."""
    changes = [
        told("change", {LimitSetting.QUEUE_RATE: draw(st.one_of(st.none(), open_rates))}),
        told("change", {LimitSetting.KEY_RATE: draw(st.one_of(st.none(), open_rates))}),
        told("change", {LimitSetting.KEY_LEASE_CAP: draw(st.one_of(st.none(), open_running_limits))}),
    ]
    return changes + [told("change_key", key, rate_micro=draw(open_rates)) for key in "ab"]


@given(history=histories(tasks, counting, aging, fairness, at_first=steady_limits()))
@LAW
def test_no_window_of_a_queue_or_key_holds_more_than_burst_and_rate_allow(history: History):
    """For all pairs of dispatch times, in whole tasks."""
    queue = ever(history)
    rules = queue.queue.rules
    check_windows(rules.queue_rate, [each.at_ms for each in queue.dispatched])
    for key, weight in KEYS.items():
        rate = rules.rate_of(queue.keys_rows.get(key, KeyState(key)), weight)
        check_windows(rate, [each.at_ms for each in queue.dispatched if each.key == key])


def check_windows(rate: Rate | None, times: list[int]) -> None:
    if rate is not None:
        for first, last in combinations(range(len(times)), 2):
            allowed = rate.burst + (times[last] - times[first]) * NANO_PER_MS // rate.interval_ns
            assert last - first + 1 <= allowed


@given(history=histories(tasks, queue_limits, counting, aging, key_limits, override, fairness))
@LAW
def test_a_hold_names_the_first_moment_at_which_something_can_go_unless_only_a_change_can_help(
    history: History,
):
    """So whoever waits for it neither spins nor oversleeps."""
    for queue, step in replay(history):
        queue.claim(step.room)
        if queue.claim(1):
            continue
        hold, now_ms = queue.hold, queue.now_ms
        assert hold is not None
        opens = hold.look_again_at_ms
        queue.now_ms = now_ms + 10**8 if opens is None else opens - 1
        assert not can_give(queue)
        if opens is not None:
            assert opens > now_ms
            queue.now_ms = opens
            assert hold.reason is HoldReason.QUEUE_RATE or can_give(queue)
        queue.now_ms = now_ms


def can_give(queue: QueueModel) -> bool:
    return left_of_the_queue(queue) > 0 and any(left_of(queue, key) for key in KEYS)
