"""All scheduling rules as one question: who runs next, and who is billed for it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scheduling.dispatch import (
    Fit,
    Grants,
    Hold,
    HoldReason,
    PollStatus,
    QueueSnapshot,
    decide,
    fit,
    settle,
)
from penstock.core.scheduling.fairness import Clockwork, Lane, stride
from tests.core.queue_model import LEVEL, QUEUE, QueueModel
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


def test_a_worker_fits_the_types_it_names_in_any_order_and_its_own_build():
    worker = a_worker(build_id="build-1")
    assert fit(worker, ("Ship", "Charge", "Ship")) == Fit(("Charge", "Ship"), "build-1")


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
    assert {key for _, key in queue.claim(6, fits=lambda slot: slot[1] != "a")} == {"b", "c"}
    assert queue.lanes[LEVEL, "a"] == before


def test_a_fresh_lane_that_does_not_fit_is_placed_but_not_billed():
    queue = QueueModel()
    queue.enqueue("a", 10)
    queue.enqueue("b", 10)
    assert queue.claim(1, fits=lambda slot: slot[1] == "b") == [(LEVEL, "b")]
    placed = queue.lanes[LEVEL, "a"]
    assert (placed.place, placed.tag, placed.count) == (0, 0, 10)


def test_a_lane_stepped_over_gains_no_credit():
    """It goes next when somebody fits, but what it missed is not made up for."""
    queue = QueueModel()
    queue.enqueue("a", 100)
    queue.enqueue("b", 100)
    queue.claim(50, fits=lambda slot: slot[1] == "b")
    shares = Counter(key for _, key in queue.claim(20))
    assert abs(shares["a"] - 10) <= 1


def test_a_lane_that_gives_less_than_planned_is_billed_for_what_it_gave():
    queue = QueueModel()
    queue.enqueue("a", 10)
    queue.enqueue("b", 10)
    queue.claim(2)
    tags = {key: queue.lanes[LEVEL, key].tag for key in "ab"}
    order = queue.claim(6, gives=lambda slot, planned: 1 if slot[1] == "a" else planned)
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
    assert queue.claim(2, gives=lambda slot, planned: 0 if slot[1] == "a" else planned) == [(LEVEL, "b")]
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

    def gives(slot: tuple[int, str], planned: int) -> int:
        gave[slot] = dice.randint(0, planned)
        return gave[slot]

    order = queue.claim(room, gives=gives)
    assert Counter(order) == {slot: count for slot, count in gave.items() if count}
    assert queue.waiting() == before - len(order)


def test_settling_nothing_records_only_the_places_of_fresh_lanes():
    fresh = Lane(LEVEL, "a", 0, 1000, 1000, 3, place=1)
    settled = settle(QueueSnapshot(QUEUE, [fresh, a_lane("b", 7)], [Clockwork(LEVEL, 5)]), {})
    assert settled.order == ()
    assert settled.lanes == (replace(fresh, tag=5, place=0),)
    assert settled.clocks == (Clockwork(LEVEL, 5, placed=1),)
