"""Parallel groups: numbered as the code expects, opened once, awaited until every member has ended."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.history import parallel_groups
from penstock.core.history.commands import RecordSideEffect, ScheduleActivity, StartChild, StartTimer
from penstock.core.history.events import EventType
from penstock.core.model import Activity, Blob
from penstock.core.waits import Waits
from penstock.errors import Conflict, Reason
from tests.core.history.run_driver import Life, chosen, completed, ended, entry, failed, fired, within


def member(index: int, *, base: int = 1, size: int = 3) -> ScheduleActivity:
    return ScheduleActivity(
        "square", None, Blob("x"), extra=within(entry("parallel-calls", base, size, index))
    )


def a_selection(base: int) -> list[StartTimer]:
    """Two timers of which the first is awaited: after this, workers may guess numbers wrong."""
    return [
        StartTimer(60, within(chosen(base, 2, base + place, key=place, index=place, kind="timer")))
        for place in (0, 1)
    ]


def test_members_take_the_steps_that_the_code_computed():
    last = StartTimer(5, within(entry("parallel-calls", 1, 3, 2)))
    step = Life().decide(member(0), member(1), last)
    assert [each.step for each in step.activities] == [1, 2]
    assert [each.step for each in step.timers] == [3]


def test_a_group_may_follow_other_steps_of_the_same_task():
    step = Life(last_step=4).decide(RecordSideEffect(Blob("")), member(0, base=6), member(1, base=6))
    assert [each.step for each in step.activities] == [6, 7]


def test_opening_and_ending_events_carry_the_whole_path():
    life = Life()
    command = StartTimer(5, within(entry("parallel-calls", 1, 2, 0), entry("parallel-timers", 1, 1, 0)))
    [timer] = life.decide(command).timers
    life.tell(fired(timer))
    for place in (0, 1):
        assert {name: life.said(place)[name] for name in command.extra} == command.extra


def test_a_group_that_is_sent_again_opens_nothing_twice():
    life = Life()
    first = life.decide(*[member(index) for index in range(3)])
    life.tell(completed(first.activities[1]))
    again = life.decide(*[member(index) for index in range(3)])
    assert (again.events, again.activities) == ((), ())
    assert life.run.last_step == 3


def test_a_group_that_is_sent_again_beside_new_steps_leaves_them_their_numbers():
    life = Life()
    life.decide(*[member(index) for index in range(3)])
    step = life.decide(*[member(index) for index in range(3)], StartTimer(1))
    assert [each.step for each in step.timers] == [4]


@pytest.mark.parametrize("base", [1, 3, 4])
def test_a_member_that_is_numbered_otherwise_than_the_run_does_is_refused(base: int):
    """The run's next step is 2."""
    life = Life(last_step=1)
    with pytest.raises(Conflict) as refused:
        life.decide(member(0, base=base))
    assert refused.value.reason is Reason.INVALID_COMMANDS
    assert refused.value.details["expected_sequence"] == 2


def test_a_path_whose_entries_mean_different_steps_is_refused():
    crooked = within(entry("parallel-calls", 1, 4, 1), entry("parallel-timers", 1, 2, 0))
    with pytest.raises(Conflict) as refused:
        Life().decide(StartTimer(1, crooked))
    assert refused.value.reason is Reason.INVALID_COMMANDS


@pytest.mark.parametrize("guess", [1, 2, 5, 9])
def test_after_a_selection_a_group_is_moved_to_where_the_run_is(guess: int):
    life = Life()
    life.decide(*a_selection(1))
    step = life.decide(member(0, base=guess), member(1, base=guess), member(2, base=guess))
    assert [each.step for each in step.activities] == [3, 4, 5]
    said = life.said()
    assert said["parallel_group_base_sequence"] == 3
    assert said["parallel_group_id"] == "parallel-calls:3:3"
    assert said[parallel_groups.PATH][0]["parallel_group_base_sequence"] == 3


def test_two_groups_of_one_task_are_moved_each_by_its_own_distance():
    life = Life()
    life.decide(*a_selection(1))
    one = [member(index, base=1, size=2) for index in (0, 1)]
    two = [member(index, base=9, size=2) for index in (0, 1)]
    assert [each.step for each in life.decide(*one, *two).activities] == [3, 4, 5, 6]


def test_a_group_that_was_moved_is_known_again_by_its_place():
    life = Life()
    life.decide(*a_selection(1))
    life.decide(member(0, base=2, size=2), member(1, base=2, size=2))
    again = life.decide(member(0, base=3, size=2), member(1, base=3, size=2))
    assert again.events == ()


# ── Waking ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_code_goes_on_when_the_last_member_has_ended_whichever_that_is_and_however():
    life = Life()
    one, two, three = life.decide(*[member(index) for index in range(3)]).activities
    assert not life.tell(failed(two))
    assert not life.tell(completed(three))
    assert life.tell(completed(one))
    assert life.waits.groups == {}


def test_a_nested_group_waits_for_the_outermost_one():
    life = Life()
    outer = [entry("parallel-calls", 1, 3, place) for place in range(3)]
    step = life.decide(
        StartTimer(1, within(outer[0])),
        StartTimer(1, within(outer[1], entry("parallel-timers", 2, 2, 0))),
        StartTimer(1, within(outer[2], entry("parallel-timers", 2, 2, 1))),
    )
    one, two, three = step.timers
    assert not life.tell(fired(two))
    assert not life.tell(fired(three)), "the inner group has ended, the outer one has not"
    assert life.tell(fired(one))


def test_members_of_all_kinds_count():
    life = Life()
    where: list[dict[str, Any]] = [within(entry("parallel-calls", 1, 3, place)) for place in range(3)]
    step = life.decide(
        ScheduleActivity("square", None, Blob(""), extra=where[0]),
        StartTimer(1, where[1]),
        StartChild("Ship", None, Blob(""), extra=where[2]),
    )
    assert not life.tell(ended(step.children[0].child, EventType.CHILD_RUN_FAILED))
    assert not life.tell(fired(step.timers[0]))
    assert life.tell(completed(step.activities[0]))


def test_two_groups_do_not_wait_for_each_other():
    life = Life()
    one = life.decide(member(0, size=2), member(1, size=2)).activities
    two = life.decide(member(0, base=3, size=1)).activities
    assert life.tell(completed(two[0]))
    assert not life.tell(completed(one[0]))


def test_a_run_from_before_groups_were_kept_tells_members_by_their_numbers():
    life = Life(last_step=3, open_activities=3, waits=Waits(old=True))
    assert life.decide(*[member(index) for index in range(3)]).events == ()


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_groups_wake_once_each_in_whatever_order_their_members_end(sizes: list[int], order: Any):
    life = Life()
    members: list[Activity] = []
    for size in sizes:
        base = life.run.last_step + 1
        members += life.decide(*[member(place, base=base, size=size) for place in range(size)]).activities
    order.shuffle(members)
    woken = [life.tell(completed(each)) for each in members]
    assert sum(woken) == len(sizes)
    assert woken[-1]


@given(base=st.integers(21, 50), by=st.integers(-20, 20), index=st.integers(0, 5))
def test_moving_a_member_moves_all_that_names_its_place_and_nothing_else(base: int, by: int, index: int):
    extra = within(
        entry("parallel-calls", base, 9, index), entry("parallel-timers", base, 9, index, color="red")
    )
    moved = parallel_groups.moved(extra, by)
    assert parallel_groups.step_of(moved) == base + index + by
    assert parallel_groups.is_consistent(moved)
    assert parallel_groups.moved(moved, -by) == extra
    assert moved["color"] == "red"
