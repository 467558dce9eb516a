"""All scheduling rules as one question: who runs next, and who is billed for it."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.limits.policies import KeyState, LimitSetting, Policy, SettingValue
from penstock.core.limits.rates import MICRO, NANO, NANO_PER_MS
from penstock.core.model import Queue, TaskKind
from penstock.core.scheduling.dispatch import (
    BlockedLanes,
    Grants,
    Hold,
    HoldReason,
    PollStatus,
    QueueSnapshot,
    WorkerFilter,
    decide,
    filter_for,
    settle,
)
from penstock.core.scheduling.fairness import Lane, LaneState, Starving, VirtualClock, rank, stride
from tests.core.scheduling.queue_model import LEVEL, QUEUE, QueueModel, per_second
from tests.support.builders import a_worker


def a_lane(key: str, tag: int = 0, *, count: int = 5, level: int = LEVEL, weight: int = 1000) -> Lane:
    return Lane(level, key, tag, weight, weight, count)


def test_an_empty_queue_holds_until_the_next_wakeup():
    held = decide(QueueSnapshot(QUEUE, [], []), room=5)
    assert held == Hold(HoldReason.EMPTY, look_again_at_ms=None)
    assert isinstance(held, Hold)
    assert held.poll_status is PollStatus.EMPTY


def test_a_paused_queue_holds_whatever_waits_and_says_that_it_is_throttled():
    held = decide(QueueSnapshot(replace(QUEUE, paused=1), [a_lane("a")], []), room=5)
    assert isinstance(held, Hold)
    assert held.reason is HoldReason.PAUSED
    assert held.poll_status is PollStatus.THROTTLED


def test_grants_say_how_many_each_lane_gives_in_order_of_first_service():
    decision = decide(QueueSnapshot(QUEUE, [a_lane("b"), a_lane("a", weight=2000)], []), room=4)
    assert isinstance(decision, Grants)
    assert decision.order == ((3, "a"), (3, "b"), (3, "a"), (3, "a"))
    assert list(decision.counts().items()) == [((3, "a"), 3), ((3, "b"), 1)]


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    weights=st.lists(st.integers(1, 5000), min_size=5, max_size=5),
    tags=st.lists(st.integers(0, stride(1000)), min_size=5, max_size=5),
    room=st.integers(1, 12),
    short=st.integers(0, 2),
)
def test_a_claim_is_settled_by_its_own_plan_as_if_it_were_planned_anew(
    counts: list[int], weights: list[int], tags: list[int], room: int, short: int
):
    lanes = [
        a_lane(
            f"k{lane_state}", tags[lane_state], count=count, level=lane_state % 2, weight=weights[lane_state]
        )
        for lane_state, count in enumerate(counts)
    ]
    snapshot = QueueSnapshot(QUEUE, lanes, [VirtualClock(0, 7, 1)])
    decision = decide(snapshot, room)
    if isinstance(decision, Grants):
        taken = dict(Counter(decision.order[: max(0, len(decision.order) - short)]))
        assert settle(snapshot, taken, 0, decision.plan) == settle(snapshot, taken)


def test_a_worker_fits_the_types_it_names_in_any_order_and_its_own_build():
    worker = a_worker(build_id="build-1", activity_types=("Ship", "Charge", "Ship"))
    assert filter_for(worker, TaskKind.ACTIVITY) == WorkerFilter(("Charge", "Ship"), "build-1")


@given(
    backlog=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(1, 9)), max_size=20),
    batch=st.integers(1, 9),
)
def test_no_task_goes_while_one_of_a_lower_level_waits(backlog: list[tuple[int, int, int]], batch: int):
    queue = QueueModel()
    for level, key, count in backlog:
        queue.enqueue(f"k{key}", count, level=level)
    order: list[int] = []
    while queue.waiting():
        order += [level for level, _ in queue.claim(batch)]
    assert order == sorted(level for level, _, count in backlog for _ in range(count))


def test_a_task_of_a_lower_level_that_comes_late_still_goes_next():
    queue = QueueModel()
    queue.enqueue("bulk", 100, level=5)
    queue.claim(10)
    queue.enqueue("urgent", 1, level=0)
    assert queue.claim(2) == [(0, "urgent"), (5, "bulk")]


def test_levels_keep_their_own_virtual_time():
    queue = QueueModel()
    queue.enqueue("a", 10, level=1)
    queue.enqueue("a", 10, level=2)
    queue.claim(10)
    assert queue.virtual(1) == 9 * stride(1000)
    assert queue.virtual(2) == 0


def test_lanes_that_the_asker_cannot_run_are_stepped_over_and_not_billed():
    queue = QueueModel()
    for key in "abc":
        queue.enqueue(key, 10)
    queue.claim(3)
    before = queue.lanes[LEVEL, "a"]
    assert {key for _, key in queue.claim(6, fits=lambda lane_key: lane_key[1] != "a")} == {"b", "c"}
    assert queue.lanes[LEVEL, "a"] == before


def test_a_fresh_lane_that_does_not_fit_is_placed_but_not_billed():
    queue = QueueModel()
    queue.enqueue("a", 10)
    queue.enqueue("b", 10)
    assert queue.claim(1, fits=lambda lane_key: lane_key[1] == "b") == [(LEVEL, "b")]
    placed = queue.lanes[LEVEL, "a"]
    assert (placed.state, placed.tag, placed.count) == (0, 0, 10)


def test_a_lane_stepped_over_gains_no_credit():
    """It goes next when somebody fits, but what it missed is not made up for."""
    queue = QueueModel()
    queue.enqueue("a", 100)
    queue.enqueue("b", 100)
    queue.claim(50, fits=lambda lane_key: lane_key[1] == "b")
    shares = Counter(key for _, key in queue.claim(20))
    assert abs(shares["a"] - 10) <= 1


def test_a_lane_that_gives_less_than_planned_is_billed_for_what_it_gave():
    queue = QueueModel()
    queue.enqueue("a", 10)
    queue.enqueue("b", 10)
    queue.claim(2)
    tags = {key: queue.lanes[LEVEL, key].tag for key in "ab"}
    order = queue.claim(6, gives=lambda lane_key, planned: 1 if lane_key[1] == "a" else planned)
    assert Counter(key for _, key in order) == {"a": 1, "b": 3}
    assert queue.lanes[LEVEL, "a"].tag == tags["a"] + stride(1000)
    assert queue.lanes[LEVEL, "b"].tag == tags["b"] + 3 * stride(1000)
    assert queue.lanes[LEVEL, "a"].count == 8


def test_a_lane_that_gives_nothing_after_all_is_left_as_it_was():
    queue = QueueModel()
    queue.enqueue("a", 10)
    queue.enqueue("b", 10)
    queue.claim(2)
    before = queue.lanes[LEVEL, "a"]
    assert queue.claim(2, gives=lambda lane_key, planned: 0 if lane_key[1] == "a" else planned) == [
        (LEVEL, "b")
    ]
    assert queue.lanes[LEVEL, "a"] == before


@given(
    keys=st.lists(st.tuples(st.integers(1, 8), st.sampled_from([400, 1000, 9000])), min_size=1, max_size=6),
    room=st.integers(1, 20),
    dice=st.randoms(use_true_random=False),
)
def test_whatever_lanes_really_give_the_bill_is_the_number_of_tasks_taken(
    keys: list[tuple[int, int]], room: int, dice: random.Random
):
    """`budget-never-overspent`, seen from the lanes."""
    queue = QueueModel()
    for number, (count, weight) in enumerate(keys):
        queue.enqueue(f"k{number}", count, weight=weight)
    before = queue.waiting()
    gave: dict[tuple[int, str], int] = {}

    def gives(lane_key: tuple[int, str], planned: int) -> int:
        gave[lane_key] = dice.randint(0, planned)
        return gave[lane_key]

    order = queue.claim(room, gives=gives)
    assert Counter(order) == {lane_key: count for lane_key, count in gave.items() if count}
    assert queue.waiting() == before - len(order)


def test_settling_nothing_records_only_the_places_of_fresh_lanes():
    fresh = Lane(LEVEL, "a", 0, 1000, 1000, 3, state=LaneState.NEW)
    clocks = [VirtualClock(LEVEL, 5), VirtualClock(LEVEL + 1, 9)]
    settled = settle(QueueSnapshot(QUEUE, [fresh, a_lane("b", 7)], clocks), {})
    assert settled.order == ()
    assert settled.lanes == (replace(fresh, tag=5, state=LaneState.READY),)
    assert settled.clocks == (VirtualClock(LEVEL, 5, placed=1),), "a clock that stood still is left out"


# ── Limits of the queue ─────────────────────────────────────────────────────────────────────────────────

NOW_MS = 1_000_000
NOW_NS = NOW_MS * NANO_PER_MS


def a_queue(values: dict[LimitSetting, int | str], **counts: int) -> Queue:
    settings = {setting_name: SettingValue(value, "ops", 0) for setting_name, value in values.items()}
    return replace(QUEUE, policy=Policy(1, settings, **counts))


def granted(snapshot: QueueSnapshot, room: int) -> Grants:
    decision = decide(snapshot, room)
    assert isinstance(decision, Grants)
    return decision


def test_a_queue_gives_what_its_rate_has_left_and_says_when_there_is_more():
    queue = a_queue({LimitSetting.QUEUE_RATE: per_second(10)})
    queue = replace(queue, paid_until_ns=NOW_NS + 7 * NANO // 10)
    snapshot = QueueSnapshot(queue, [a_lane("a", count=50)], [], NOW_MS)
    decision = granted(snapshot, 50)
    assert len(decision.order) == 3
    assert decision.hold == Hold(HoldReason.QUEUE_RATE, NOW_MS + 100)
    assert settle(snapshot, decision.counts()).paid_until_ns == NOW_NS + NANO
    spent = replace(snapshot, queue=replace(queue, paid_until_ns=NOW_NS + NANO))
    assert decide(spent, 50) == Hold(HoldReason.QUEUE_RATE, NOW_MS + 100)


def test_a_queue_closed_by_a_rate_of_zero_names_no_moment():
    snapshot = QueueSnapshot(a_queue({LimitSetting.QUEUE_RATE: 0}), [a_lane("a")], [], NOW_MS)
    assert decide(snapshot, 5) == Hold(HoldReason.QUEUE_RATE, None)


def test_a_queue_gives_no_more_than_it_may_still_run_and_says_so():
    snapshot = QueueSnapshot(
        a_queue({LimitSetting.LEASE_CAP: 5}), [a_lane("a", count=9)], [], NOW_MS, running=3
    )
    decision = granted(snapshot, 9)
    assert len(decision.order) == 2
    assert decision.hold == Hold(HoldReason.QUEUE_LEASE_CAP)
    assert decide(replace(snapshot, running=5), 9) == Hold(HoldReason.QUEUE_LEASE_CAP)
    assert decide(replace(snapshot, running=8), 9) == Hold(HoldReason.QUEUE_LEASE_CAP)


def test_a_debt_that_the_rate_cannot_have_made_is_cut_by_the_first_settling():
    """A rate was turned up, or the clock set back: the old debt must not close the queue for an hour."""
    queue = a_queue({LimitSetting.QUEUE_RATE: per_second(10)})
    queue = replace(queue, paid_until_ns=NOW_NS + 3600 * NANO)
    snapshot = QueueSnapshot(queue, [a_lane("a")], [], NOW_MS)
    held = decide(snapshot, 1)
    assert isinstance(held, Hold)
    cut = replace(queue, paid_until_ns=settle(snapshot, {}).paid_until_ns)
    assert held.look_again_at_ms is not None
    assert held.look_again_at_ms <= NOW_MS + 200
    assert isinstance(decide(replace(snapshot, queue=cut, now_ms=held.look_again_at_ms), 1), Grants)


# ── Limits of keys ──────────────────────────────────────────────────────────────────────────────────────


NONE_BLOCKED = BlockedLanes()


def limited(*lanes: Lane, keys: list[KeyState], blocked: BlockedLanes = NONE_BLOCKED) -> QueueSnapshot:
    queue = a_queue({}, limited_keys=1, capped_keys=1)
    return QueueSnapshot(queue, lanes, [], NOW_MS, {each.key: each for each in keys}, blocked=blocked)


def test_a_key_that_runs_out_of_tokens_waits_until_the_next_one_and_others_go_on():
    a, b = a_lane("a"), a_lane("b", tag=5)
    snapshot = limited(a, b, keys=[KeyState("a", rate_micro=2 * MICRO)])
    decision = granted(snapshot, 6)
    assert Counter(decision.order) == {a.lane_key: 2, b.lane_key: 4}
    assert decision.hold == Hold(HoldReason.KEY_LIMITS, NOW_MS + 500)
    settled = settle(snapshot, decision.counts())
    after = {lane.key: lane for lane in settled.lanes}
    assert (after["a"].state, after["a"].open_at_ms) == (LaneState.THROTTLED, NOW_MS + 500)
    assert (after["b"].state, after["b"].open_at_ms) == (LaneState.READY, None)
    assert settled.paid == {"a": NOW_NS + NANO}


def test_a_key_that_runs_as_much_as_it_may_is_held_at_its_limit():
    snapshot = limited(a_lane("a"), keys=[KeyState("a", lease_cap=3, running=1)])
    decision = granted(snapshot, 6)
    assert len(decision.order) == 2
    assert decision.hold == Hold(HoldReason.KEY_LIMITS, None)
    (after,) = settle(snapshot, decision.counts()).lanes
    assert (after.state, after.held_at, after.count) == (LaneState.BLOCKED, 3, 3)


def test_a_paused_or_closed_key_is_held_without_a_limit_that_holds_it():
    a, b = a_lane("a"), a_lane("b")
    snapshot = limited(a, b, keys=[KeyState("a", paused=1), KeyState("b", rate_micro=0)])
    assert decide(snapshot, 5) == Hold(HoldReason.KEY_LIMITS, None)
    settled = settle(snapshot, {})
    assert {(lane.state, lane.held_at) for lane in settled.lanes} == {(LaneState.BLOCKED, None)}
    assert settled.paid == {}


def test_what_a_key_is_given_at_one_level_counts_against_its_limit_at_every_other():
    high, low = a_lane("a", level=1), a_lane("a", level=2)
    snapshot = limited(high, low, keys=[KeyState("a", lease_cap=7)])
    decision = granted(snapshot, 20)
    assert decision.order == (high.lane_key,) * 5 + (low.lane_key,) * 2
    assert {lane.state for lane in settle(snapshot, decision.counts()).lanes} == {LaneState.BLOCKED}


def test_a_lane_that_gave_its_last_task_makes_nobody_wait_for_its_key():
    snapshot = limited(a_lane("a", count=2), keys=[KeyState("a", rate_micro=2 * MICRO)])
    assert granted(snapshot, 5).hold == Hold(HoldReason.EMPTY)


def test_the_first_moment_is_named_whether_its_lane_was_read_or_not():
    keys = [KeyState("a", rate_micro=MICRO, paid_until_ns=NOW_NS + NANO)]
    for unread, first in ((None, 1000), (NOW_MS + 400, 400), (NOW_MS + 4000, 1000)):
        snapshot = limited(a_lane("a"), keys=keys, blocked=BlockedLanes(unread))
        assert decide(snapshot, 5) == Hold(HoldReason.KEY_LIMITS, NOW_MS + first)


def test_a_moment_that_has_passed_is_not_waited_for():
    """Its lane was read by this very claim; what it waits for now is told by where it stands now."""
    due = replace(a_lane("a"), state=LaneState.THROTTLED, open_at_ms=NOW_MS - 3)
    snapshot = limited(due, keys=[KeyState("a", rate_micro=MICRO)], blocked=BlockedLanes(NOW_MS - 3))
    assert granted(snapshot, 5).hold == Hold(HoldReason.KEY_LIMITS, NOW_MS + 1000)


def test_lanes_that_are_held_unread_are_told_from_an_empty_queue():
    assert decide(limited(keys=[], blocked=BlockedLanes(any_held=True)), 5) == Hold(
        HoldReason.KEY_LIMITS, None
    )
    assert decide(limited(keys=[]), 5) == Hold(HoldReason.EMPTY)


def test_a_lane_that_does_not_fit_is_put_aside_like_any_other_but_nobody_waits_for_it():
    snapshot = limited(
        replace(a_lane("a"), state=LaneState.DIRTY, fits=0), keys=[KeyState("a", lease_cap=1, running=1)]
    )
    assert decide(snapshot, 5) == Hold(HoldReason.EMPTY)
    (after,) = settle(snapshot, {}).lanes
    assert after.state is LaneState.BLOCKED


def test_a_lane_whose_key_may_go_again_stands_ready_with_its_tag():
    stale, waiting = (
        replace(a_lane("a", 7), state=LaneState.DIRTY),
        replace(a_lane("b", 8), state=LaneState.THROTTLED),
    )
    snapshot = limited(stale, replace(waiting, open_at_ms=NOW_MS), keys=[])
    settled = settle(snapshot, {})
    assert [(lane.tag, lane.state, lane.open_at_ms) for lane in settled.lanes] == [
        (7, LaneState.READY, None),
        (8, LaneState.READY, None),
    ]


def test_the_debt_of_a_key_is_cut_when_its_rate_was_turned_up_even_if_nothing_goes():
    snapshot = limited(
        a_lane("a"), keys=[KeyState("a", rate_micro=10 * MICRO, paid_until_ns=NOW_NS + 3600 * NANO)]
    )
    held = decide(snapshot, 1)
    assert isinstance(held, Hold)
    settled = settle(snapshot, {})
    (after,) = settled.lanes
    assert after.open_at_ms == held.look_again_at_ms
    assert after.open_at_ms is not None
    assert after.open_at_ms <= NOW_MS + 200
    keys = {"a": KeyState("a", rate_micro=10 * MICRO, paid_until_ns=settled.paid["a"])}
    assert isinstance(decide(replace(snapshot, keys=keys, now_ms=after.open_at_ms), 1), Grants)


def test_the_default_rate_is_scaled_by_the_weight_of_the_key_at_its_highest_level():
    queue = a_queue({LimitSetting.KEY_RATE: per_second(2)})
    lanes = [a_lane("a", level=1, weight=3000), a_lane("a", level=4, weight=1000)]
    assert len(granted(QueueSnapshot(queue, lanes, [], NOW_MS), 20).order) == 6


# ── Weights of the operator's ───────────────────────────────────────────────────────────────────────────


def test_a_fresh_lane_learns_the_weight_that_the_operator_set_and_forgets_one_that_was_unset():
    fresh = replace(a_lane("a"), state=LaneState.NEW)
    outdated = replace(a_lane("b"), state=LaneState.NEW, override_milli=5000)
    queue = a_queue({}, overridden_keys=1)
    keys = {"a": KeyState("a", weight_milli=9000), "b": KeyState("b")}
    settled = settle(QueueSnapshot(queue, [fresh, outdated], [], NOW_MS, keys), {})
    assert {lane.key: (lane.override_milli, lane.weight_milli) for lane in settled.lanes} == {
        "a": (9000, 9000),
        "b": (None, 1000),
    }


# ── Shares of what runs ─────────────────────────────────────────────────────────────────────────────────


def test_where_what_runs_is_counted_the_key_that_runs_least_for_its_weight_goes_first():
    lanes = [a_lane("a", tag=0), a_lane("b", tag=9, weight=2000)]
    keys = {"a": KeyState("a", running=1), "b": KeyState("b", running=1)}
    snapshot = QueueSnapshot(a_queue({LimitSetting.COUNTS: "running"}), lanes, [], NOW_MS, keys)
    decision = granted(snapshot, 4)
    assert [key for _, key in decision.order] == ["b", "b", "a", "b"]
    settled = settle(snapshot, decision.counts())
    assert {lane.key: lane.rank for lane in settled.lanes} == {"a": rank(2, 1000), "b": rank(4, 2000)}


# ── Aging ───────────────────────────────────────────────────────────────────────────────────────────────


def aging(turn: int = 0, starving: int = 9) -> QueueSnapshot:
    queue = replace(a_queue({LimitSetting.AGING_WAIT: 10, LimitSetting.AGING_EVERY: 4}), aging_turn=turn)
    lanes = [a_lane("new", level=1, count=99), a_lane("old", level=5, count=9)]
    return QueueSnapshot(queue, lanes, [], NOW_MS, starving=[Starving(5, 0, starving)])


def test_turns_are_counted_from_claim_to_claim():
    turns, levels = [0], []
    for _ in range(9):
        snapshot = aging(turns[-1])
        decision = granted(snapshot, 1)
        levels.append(decision.order[0][0])
        turns.append(settle(snapshot, decision.counts()).aging_turn)
    assert levels == [1, 1, 1, 5, 1, 1, 1, 5, 1]
    assert turns == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_a_claim_that_gives_nothing_leaves_the_turns_as_they_are():
    assert settle(aging(2), {}).aging_turn == 2


def test_turns_go_on_when_a_lane_gives_less_than_planned():
    snapshot = aging(0)
    assert granted(snapshot, 3).counts() == {(1, "new"): 3}
    assert settle(snapshot, {(1, "new"): 2}).aging_turn == 2


def test_when_the_last_old_task_has_gone_the_levels_are_strict_again():
    decision = granted(aging(0, starving=1), 12)
    assert [level for level, _ in decision.order].count(5) == 1


def test_without_old_tasks_below_no_turns_are_counted():
    snapshot = replace(aging(2), starving=[])
    assert settle(snapshot, {(1, "new"): 1}).aging_turn == 0
