"""Slots: what the polls of a claim may take together, and who gets which task."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import TaskKind
from penstock.core.scheduling.prefetch import free_buffer
from penstock.core.scheduling.slots import PollSlots, SlotUsage, free_slots
from tests.support.builders import a_worker


def room(*polls: tuple[str, int], **free: int) -> PollSlots:
    return PollSlots([most for _, most in polls], [worker for worker, _ in polls], free)


def test_tasks_are_dealt_round_by_round_within_the_room_of_each_poll() -> None:
    assert room(("a", 1), ("b", 3), ("c", 2), a=9, b=9, c=9).shares(6) == [0, 1, 2, 1, 2, 1]
    assert room(("a", 2), ("b", 2), a=9, b=9).shares(3) == [0, 1, 0]


def test_two_polls_of_a_worker_share_its_slots() -> None:
    both = room(("a", 5), ("b", 1), ("a", 5), a=3, b=1)
    assert both.total == 4
    assert both.shares(4) == [0, 1, 2, 0]


@given(
    polls=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=8),
    free=st.fixed_dictionaries({worker: st.integers(0, 6) for worker in "abc"}),
)
def test_nobody_gets_more_than_it_asked_for_or_has_slots_for_and_nothing_is_left_out(
    polls: list[tuple[str, int]], free: dict[str, int]
) -> None:
    """Holds `worker-never-over-filled` for any polls of one claim."""
    asked = PollSlots([most for _, most in polls], [worker for worker, _ in polls], free)
    holders = asked.shares(asked.total)
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
    assert free_buffer(worker, TaskKind.ACTIVITY, held) == 1
    assert free_slots(worker, TaskKind.WORKFLOW, SlotUsage(running=3)) == 0


def test_a_buffer_lets_a_worker_claim_more_ahead_than_it_runs() -> None:
    soft = a_worker(activity_slots=2, advertised={"max_claimed_activity_tasks": 4})
    held = SlotUsage(running=2, prefetched=3)
    assert free_slots(soft, TaskKind.ACTIVITY, held) == 0
    assert free_buffer(soft, TaskKind.ACTIVITY, held) == 1
    small = a_worker(activity_slots=4, advertised={"max_claimed_activity_tasks": 1})
    assert free_buffer(small, TaskKind.ACTIVITY, held) == 1, "as many again as it has slots"
    closed = a_worker(activity_slots=0, advertised={"max_claimed_activity_tasks": 4})
    assert free_buffer(closed, TaskKind.ACTIVITY, SlotUsage()) == 0
