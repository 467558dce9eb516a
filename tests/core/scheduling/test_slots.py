"""Slots: what the polls of a claim may take together, and who gets which task."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import TaskKind
from penstock.core.scheduling.polls import Poll
from penstock.core.scheduling.slots import SlotUsage, free_slots, round_robin, total_room
from tests.support.builders import a_worker


def some_polls(*asked: tuple[str, int]) -> list[Poll]:
    return [Poll("default", worker, "orders", TaskKind.ACTIVITY, tasks_max=most) for worker, most in asked]


def test_tasks_are_dealt_round_by_round_within_the_room_of_each_poll() -> None:
    polls, free = some_polls(("a", 1), ("b", 3), ("c", 2)), {"a": 9, "b": 9, "c": 9}
    assert round_robin(polls, free, 6) == [0, 1, 2, 1, 2, 1]
    assert round_robin(some_polls(("a", 2), ("b", 2)), free, 3) == [0, 1, 0]


def test_two_polls_of_a_worker_share_its_slots() -> None:
    polls, free = some_polls(("a", 5), ("b", 1), ("a", 5)), {"a": 3, "b": 1}
    assert total_room(polls, free) == 4
    assert round_robin(polls, free, 4) == [0, 1, 2, 0]


@given(
    polls=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=8),
    free=st.fixed_dictionaries({worker: st.integers(0, 6) for worker in "abc"}),
)
def test_nobody_gets_more_than_it_asked_for_or_has_slots_for_and_nothing_is_left_out(
    polls: list[tuple[str, int]], free: dict[str, int]
) -> None:
    """Holds `worker-never-over-filled` for any polls of one claim."""
    asked = some_polls(*polls)
    holders = round_robin(asked, free, total_room(asked, free))
    by_worker = Counter(polls[holder][0] for holder in holders)
    by_poll = Counter(holders)
    assert all(count <= free[worker] for worker, count in by_worker.items())
    assert all(count <= polls[index][1] for index, count in by_poll.items())
    for index, (worker, most) in enumerate(polls):
        assert by_poll[index] == most or by_worker[worker] == free[worker]


def test_what_runs_and_what_was_fetched_ahead_take_slots_of_their_own() -> None:
    worker = a_worker(activity_slots=5, workflow_slots=1)
    held = SlotUsage(running=2, prefetched=4)
    assert free_slots(worker, TaskKind.ACTIVITY, held) == 3
    assert free_slots(worker, TaskKind.ACTIVITY, held, prefetch=True) == 1
    assert free_slots(worker, TaskKind.WORKFLOW, SlotUsage(running=3)) == 0


def test_a_buffer_lets_a_worker_claim_more_ahead_than_it_runs() -> None:
    soft = a_worker(activity_slots=2, advertised={"max_claimed_activity_tasks": 4})
    held = SlotUsage(running=2, prefetched=3)
    assert free_slots(soft, TaskKind.ACTIVITY, held) == 0
    assert free_slots(soft, TaskKind.ACTIVITY, held, prefetch=True) == 1
    small = a_worker(activity_slots=4, advertised={"max_claimed_activity_tasks": 1})
    assert free_slots(small, TaskKind.ACTIVITY, held, prefetch=True) == 1, "as many again as it has slots"
    closed = a_worker(activity_slots=0, advertised={"max_claimed_activity_tasks": 4})
    assert free_slots(closed, TaskKind.ACTIVITY, SlotUsage(), prefetch=True) == 0
