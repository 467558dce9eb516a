"""The numbers that are promised, on a virtual clock: rates, running limits, pauses, aging and the order of arrival."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

from penstock.core.limits.policies import LimitSetting
from tests.core.scheduling.queue_model import LEVEL, QueueModel, per_second

SECOND_MS = 1000


def run_until(queue: QueueModel, end_ms: int, room: int = 1000) -> None:
    """Ask whenever the queue says that it is worth it, and not in between."""
    while True:
        while len(queue.claim(room)) == room:
            pass
        assert queue.hold is not None
        opens = queue.hold.look_again_at_ms
        if opens is None or opens >= end_ms:
            break
        assert opens > queue.now_ms
        queue.now_ms = opens
    queue.now_ms = end_ms


def given_to(queue: QueueModel, since_ms: int = 0, until_ms: int = 10**9) -> Counter[str]:
    return Counter(each.key for each in queue.dispatched if since_ms <= each.at_ms < until_ms)


# ── Rates ───────────────────────────────────────────────────────────────────────────────────────────────


def three_tenants(settings: Mapping[LimitSetting, int | str]) -> QueueModel:
    queue = QueueModel(settings)
    for key, weight in (("a", 1000), ("b", 1000), ("c", 2500)):
        queue.enqueue(key, 5000, weight=weight)
    return queue


def test_ten_a_second_for_each_key_scaled_by_weight_holds_for_a_minute_and_in_every_second():
    queue = three_tenants({LimitSetting.KEY_RATE: per_second(10)})
    run_until(queue, 60 * SECOND_MS)
    assert given_to(queue) == {"a": 609, "b": 609, "c": 1524}
    for key, most in (("a", 20), ("b", 20), ("c", 50)):
        times = [each.at_ms for each in queue.dispatched if each.key == key]
        assert all(times[index + most] - times[index] >= SECOND_MS for index in range(len(times) - most))


def test_a_rate_of_the_queue_is_shared_by_weight_among_keys_that_have_rates_too():
    queue = three_tenants({LimitSetting.KEY_RATE: per_second(10), LimitSetting.QUEUE_RATE: per_second(20)})
    run_until(queue, 47 * SECOND_MS)
    for second in range(2, 47):
        assert given_to(queue, second * SECOND_MS, (second + 1) * SECOND_MS).total() == 20
    counts = given_to(queue, 2 * SECOND_MS)
    assert counts.total() == 900
    assert all(abs(counts[key] - share) <= 1 for key, share in (("a", 200), ("b", 200), ("c", 500)))


def test_ten_a_second_without_a_burst_leaves_a_hundred_milliseconds_between_any_two():
    queue = QueueModel({LimitSetting.KEY_RATE: per_second(10), LimitSetting.KEY_BURST: 0})
    queue.enqueue("a", 500)
    run_until(queue, 10 * SECOND_MS)
    times = [each.at_ms for each in queue.dispatched]
    assert {later - earlier for earlier, later in pairwise(times)} == {100}
    assert len(times) == 100


def test_a_key_closed_by_a_rate_of_zero_gives_nothing_and_goes_on_within_one_claim_once_it_is_unset():
    queue = QueueModel()
    queue.enqueue("closed", 25)
    queue.enqueue("open", 25)
    queue.change_key("closed", rate_micro=0)
    assert queue.served(100) == {"open": 25}
    assert queue.hold is not None
    assert queue.hold.look_again_at_ms is None
    queue.change_key("closed", rate_micro=None)
    assert queue.served(100) == {"closed": 25}


def test_a_queue_closed_by_a_rate_of_zero_gives_nothing_until_it_is_unset():
    queue = QueueModel({LimitSetting.QUEUE_RATE: 0})
    queue.enqueue("a", 25)
    assert not queue.claim(10)
    queue.change({LimitSetting.QUEUE_RATE: None})
    assert len(queue.claim(100)) == 25


def test_a_long_backlog_of_a_slow_key_does_not_slow_a_fast_one_behind_it():
    queue = QueueModel()
    queue.enqueue("slow", 1300)
    queue.enqueue("fast", 120)
    queue.change_key("slow", rate_micro=per_second(1))
    queue.change_key("fast", rate_micro=per_second(10))
    run_until(queue, 11 * SECOND_MS, room=5)
    assert given_to(queue, SECOND_MS, 11 * SECOND_MS) == {"fast": 100, "slow": 10}


def test_a_thousand_keys_each_keep_to_their_rate_since_none_is_forgotten():
    queue = QueueModel({LimitSetting.KEY_RATE: per_second(2)})
    for number in range(1000):
        queue.enqueue(f"k{number:04d}", 30)
    run_until(queue, 10 * SECOND_MS + 1, room=10_000)
    assert set(given_to(queue).values()) == {2 + 20}


def test_a_rate_turned_up_from_one_an_hour_acts_at_once_for_key_and_queue():
    queue = QueueModel(
        {LimitSetting.QUEUE_RATE: per_second(1 / 3600), LimitSetting.KEY_RATE: per_second(1 / 3600)}
    )
    queue.enqueue("a", 100)
    assert len(queue.claim(10)) == 1
    queue.change({LimitSetting.QUEUE_RATE: per_second(10), LimitSetting.KEY_RATE: per_second(10)})
    run_until(queue, 10 * SECOND_MS)
    assert 96 <= len(queue.dispatched) <= 100


def test_a_clock_that_is_set_back_stops_a_queue_for_less_than_its_burst():
    queue = QueueModel({LimitSetting.QUEUE_RATE: per_second(10)}, now_ms=3600 * SECOND_MS)
    queue.enqueue("a", 1000)
    assert len(queue.claim(100)) == 10
    queue.now_ms = 0
    run_until(queue, 10 * SECOND_MS)
    assert 98 <= len(queue.dispatched) - 10 <= 100


# ── Running limits ──────────────────────────────────────────────────────────────────────────────────────


def test_limits_of_two_for_each_key_and_five_for_the_queue_are_never_exceeded_and_always_used():
    queue, dice = QueueModel({LimitSetting.KEY_LEASE_CAP: 2, LimitSetting.LEASE_CAP: 5}), random.Random(1)
    for number in range(10):
        queue.enqueue(f"k{number}", 50)
    while queue.waiting() or queue.leases:
        waiting = Counter({lane.key: lane.count for lane in queue.lanes.values()}) + queue.running()
        queue.claim(dice.randint(1, 9))
        while queue.claim(1):
            pass
        running = queue.running()
        assert max(running.values()) <= 2
        assert running.total() == min(5, sum(min(2, count) for count in waiting.values()))
        for seq in dice.sample(queue.leased(), dice.randint(1, len(queue.leases))):
            queue.complete(seq)
    assert given_to(queue) == {f"k{number}": 50 for number in range(10)}


def test_a_key_held_to_one_slot_leaves_the_rest_to_others_and_gets_no_credit_when_its_limit_is_raised():
    queue = QueueModel()
    queue.enqueue("held", 1000)
    for number in range(9):
        queue.enqueue(f"k{number}", 1000)
    queue.change_key("held", lease_cap=1)
    for turn in range(300):
        queue.claim(20 - len(queue.leases))
        assert queue.running()["held"] == 1
        assert queue.running().total() == 20
        for seq in queue.leased()[: 1 + turn % 7]:
            queue.complete(seq)
    queue.change_key("held", lease_cap=100)
    assert 1 <= queue.served(20)["held"] <= 3


def test_a_key_throttled_for_an_hour_gets_no_credit_when_its_rate_is_unset():
    queue = QueueModel()
    for key in "abcde":
        queue.enqueue(key, 5000)
    queue.change_key("a", rate_micro=per_second(0.01))
    for _ in range(60):
        queue.claim(60)
        queue.advance(60 * SECOND_MS)
    queue.change_key("a", rate_micro=None)
    assert abs(queue.served(50)["a"] - 10) <= 1


# ── Shares of what runs ─────────────────────────────────────────────────────────────────────────────────


def mean_slots(queue: QueueModel, slots: int, lasts_ms: Mapping[str, int], end_ms: int) -> dict[str, float]:
    """Keep the slots full; each task lasts as long as its key says. How many slots each key held on average."""
    ends: list[tuple[int, int]] = []
    held = Counter[str]()
    while queue.now_ms < end_ms:
        before = len(queue.dispatched)
        queue.claim(slots - len(queue.leases))
        for each in queue.dispatched[before:]:
            heapq.heappush(ends, (queue.now_ms + lasts_ms[each.key], each.seq))
        next_ms = min(end_ms, ends[0][0])
        for key, running in queue.running().items():
            held[key] += running * (next_ms - queue.now_ms)
        queue.now_ms = next_ms
        while ends and ends[0][0] <= queue.now_ms:
            queue.complete(heapq.heappop(ends)[1])
    return {key: held[key] / end_ms for key in lasts_ms}


@pytest.mark.parametrize(
    ("counts", "weight", "long", "tolerance"),
    [("running", 1000, 5.0, 0.3), ("running", 4000, 8.0, 0.5), ("dispatches", 1000, 9.8, 0.2)],
)
def test_long_and_short_tasks_share_the_slots_by_weight_where_what_runs_is_counted(
    counts: str, weight: int, long: float, tolerance: float
):
    queue = QueueModel({LimitSetting.COUNTS: counts})
    queue.enqueue("long", 1000, weight=weight)
    queue.enqueue("short", 10_000, weight=1000)
    slots = mean_slots(queue, 10, {"long": 6 * SECOND_MS, "short": SECOND_MS // 10}, 60 * SECOND_MS)
    assert slots["long"] == pytest.approx(long, abs=tolerance)
    assert slots["short"] == pytest.approx(10 - long, abs=tolerance)


def test_shares_of_what_runs_count_what_ran_before_they_were_asked_for():
    queue = QueueModel()
    queue.enqueue("a", 5)
    queue.claim(5)
    queue.enqueue("a", 100)
    queue.enqueue("b", 100)
    queue.change({LimitSetting.COUNTS: "running"})
    assert queue.keys(5) == ["b"] * 5
    assert queue.served(10) == {"a": 5, "b": 5}


# ── Aging ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batch", [1, 7, 20, 100])
def test_after_half_a_minute_the_lowest_level_gets_exactly_one_in_twenty(batch: int):
    queue = QueueModel({LimitSetting.AGING_WAIT: 30 * SECOND_MS, LimitSetting.AGING_EVERY: 20})
    queue.enqueue("urgent", 3000, level=1)
    queue.enqueue("patient", 200, level=5)
    assert set(queue.keys(300, batch)) == {"urgent"}
    queue.advance(30 * SECOND_MS - 1)
    assert set(queue.keys(300, batch)) == {"urgent"}
    queue.advance(1)
    served = queue.keys(1000, batch)
    assert served.index("patient") == 19
    assert Counter(served) == {"urgent": 950, "patient": 50}


def test_levels_that_starve_take_their_turns_by_who_has_waited_longest():
    queue = QueueModel({LimitSetting.AGING_WAIT: 10, LimitSetting.AGING_EVERY: 2})
    queue.enqueue("urgent", 100, level=1)
    for level in (4, 5, 4):
        queue.enqueue("old", level=level)
        queue.advance(10)
    assert [level for _ in range(8) for level, _ in queue.claim(1)] == [1, 4, 1, 5, 1, 4, 1, 1]


def test_a_starving_level_whose_keys_may_not_go_takes_no_turn():
    queue = QueueModel({LimitSetting.AGING_WAIT: 0, LimitSetting.AGING_EVERY: 2})
    queue.enqueue("urgent", 100, level=1)
    queue.enqueue("old", 10, level=5)
    queue.change_key("old", paused=1)
    assert queue.served(10) == {"urgent": 10}
    queue.change_key("old", paused=0)
    assert queue.keys(2, batch=1) == ["urgent", "old"]


# ── Pauses ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_paused_key_gives_nothing_others_keep_all_and_it_comes_back_without_a_burst():
    queue = QueueModel()
    for key in ("a", "b", "c", "paused"):
        queue.enqueue(key, 1000)
    queue.claim(8)
    queue.change_key("paused", paused=1)
    assert queue.served(300, batch=20) == {"a": 100, "b": 100, "c": 100}
    queue.change_key("paused", paused=0)
    served = queue.keys(40, batch=4)
    assert served.index("paused") < 4
    assert abs(served.count("paused") - 10) <= 1


def test_a_paused_queue_gives_nothing_and_goes_on_where_it_stopped():
    queue, other = QueueModel(), QueueModel()
    for each in (queue, other):
        for number, key in enumerate("abc", 1):
            each.enqueue(key, 20, weight=1000 * number)
        each.claim(7)
    queue.pause()
    assert not queue.claim(5)
    queue.pause(False)
    assert queue.claim(30) == other.claim(30)


# ── On and off ──────────────────────────────────────────────────────────────────────────────────────────


def test_fairness_switched_on_acts_on_what_is_queued_and_switched_off_goes_by_arrival_at_once():
    queue = QueueModel({LimitSetting.FAIRNESS: "off"})
    queue.enqueue("big", 4995)
    queue.enqueue("small", 10)
    queue.enqueue("big", 4995)
    assert queue.keys(10, batch=3) == ["big"] * 10
    queue.change({LimitSetting.FAIRNESS: "on"})
    assert 9 <= queue.served(20, batch=3)["small"] <= 10
    queue.change({LimitSetting.FAIRNESS: "off"})
    queue.enqueue("late", 5)
    before = len(queue.dispatched)
    queue.keys(10_000, batch=500)
    assert queue.waiting() == 0
    seqs = [each.seq for each in queue.dispatched[before:]]
    assert seqs == sorted(seqs)
    assert sorted(each.seq for each in queue.dispatched) == list(range(1, 10_006)), "none lost, none twice"


@pytest.mark.parametrize("override", [None, 9000])
@pytest.mark.parametrize("weights", [(1000, 1000), (1000, 400)])
def test_tasks_of_a_paused_key_are_stepped_over_however_many_stand_in_front_and_whatever_they_weigh(
    weights: tuple[int, int], override: int | None
):
    queue = QueueModel({LimitSetting.FAIRNESS: "off"})
    for weight in weights:
        queue.enqueue("paused", 2500, weight=weight)
    queue.enqueue("other", 5)
    queue.change_key("paused", paused=1, weight_milli=override)
    assert queue.keys(10, batch=2) == ["other"] * 5
    queue.change_key("paused", paused=0)
    assert queue.keys(10, batch=2) == ["paused"] * 10


def test_an_operators_weight_scales_the_rate_of_a_key_where_keys_have_no_shares_too():
    queue = QueueModel({LimitSetting.FAIRNESS: "off", LimitSetting.KEY_RATE: per_second(2)})
    queue.enqueue("a", 100, weight=1000)
    queue.change_key("a", weight_milli=5000)
    assert queue.served(100) == {"a": 10}


# ── Weights ─────────────────────────────────────────────────────────────────────────────────────────────


def test_of_weights_that_alternate_the_last_one_counts():
    queue = QueueModel()
    queue.enqueue("steady", 1000)
    for weight in [1000, 9000] * 50:
        queue.enqueue("moody", 10, weight=weight)
    shares = queue.served(100)
    assert abs(shares["moody"] - 90) <= 1
    queue.enqueue("moody", 1, weight=1000)
    assert abs(queue.served(100)["moody"] - 50) <= 1


def test_an_operators_weight_beats_what_tasks_carry_before_and_after_and_at_every_level():
    queue = QueueModel()
    queue.enqueue("early", 500, weight=1000)
    queue.enqueue("rival", 2000, weight=1000)
    queue.change_key("early", weight_milli=4000)
    assert abs(queue.served(100)["early"] - 80) <= 1
    queue.enqueue("early", 100, weight=1)
    assert abs(queue.served(100)["early"] - 80) <= 1
    queue.change_key("early", weight_milli=None)
    assert queue.served(100)["early"] <= 1, "what the last task carried is in force again"


@pytest.mark.parametrize(
    "prepare",
    [
        lambda queue: None,
        lambda queue: queue.change({LimitSetting.KEY_LEASE_CAP: 40, LimitSetting.LEASE_CAP: 250}),
        lambda queue: queue.change({LimitSetting.COUNTS: "running"}),
        lambda queue: queue.change(
            {LimitSetting.KEY_RATE: per_second(50), LimitSetting.QUEUE_RATE: per_second(300)}
        ),
        lambda queue: queue.change({LimitSetting.FAIRNESS: "off"}),
    ],
    ids=["plain", "running limits", "shares of what runs", "rates", "by arrival"],
)
def test_the_order_is_the_same_for_claims_of_any_size(prepare: Callable[[QueueModel], None]):
    orders = []
    for batch in (1, 2, 7, 50, 500):
        queue = QueueModel()
        prepare(queue)
        for number in range(20):
            queue.enqueue(f"k{number:02d}", 25, weight=1 + number * 700, level=LEVEL + number % 2)
        orders.append(queue.keys(500, batch))
    assert all(order == orders[0] for order in orders)
    assert len(orders[0]) >= 250
