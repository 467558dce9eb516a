"""Selections: the code awaits the first of several things, and decides what becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.history.command_effects import CommandEffects
from penstock.core.history.commands import (
    CancelSelectionOperation,
    OpenConditionWait,
    ScheduleActivity,
    StartChild,
    StartTimer,
)
from penstock.core.history.events import EventType
from penstock.core.history.payloads import timer_payload
from penstock.core.model import Blob, NewEvent
from tests.core.history.run_driver import SIGNAL, Life, chosen, completed, ended, entry, failed, fired, within

GROUP = "select-calls:1:3"


def a_race(life: Life, base: int = 1) -> CommandEffects:
    """An activity, a timer and a child, of which the first counts."""
    return life.decide(
        ScheduleActivity(
            "Charge", None, Blob(""), extra=within(chosen(base, 3, base, key="pay", index=0, kind="activity"))
        ),
        StartTimer(60, within(chosen(base, 3, base + 1, key="late", index=1, kind="timer"))),
        StartChild(
            "Ship", None, Blob(""), extra=within(chosen(base, 3, base + 2, key=7, index=2, kind="child"))
        ),
    )


def leaf(place: int) -> dict[str, Any]:
    """A step of a group of two, which races with a timer."""
    return within(
        chosen(1, 3, 1 + place, key="both", index=0, kind="group", start=1, size=2),
        entry("parallel-activities", 1, 2, place),
    )


def a_race_with_a_group(life: Life) -> CommandEffects:
    return life.decide(
        ScheduleActivity("Charge", None, Blob(""), extra=leaf(0)),
        ScheduleActivity("Charge", None, Blob(""), extra=leaf(1)),
        StartTimer(60, within(chosen(1, 3, 3, key="late", index=1, kind="timer"))),
    )


def give_up(key: str | int, index: int, step: int, size: int = 1) -> CancelSelectionOperation:
    echoed = {
        "selection_group_id": GROUP,
        "member_key": key,
        "member_index": index,
        "member_base_sequence": step,
        "member_size": size,
        "operation_kind": "whatever the worker says",
        "operation_identity": "likewise",
    }
    return CancelSelectionOperation(GROUP, index, echoed)


# ── The winner ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_to_end_wins_and_that_is_told_right_behind_it():
    life = Life()
    [timer] = a_race(life).timers
    assert life.tell(fired(timer))
    assert life.types[-2:] == ["TimerFired", "SelectionResolved"]
    assert life.said() == {
        "selection_group_id": GROUP,
        "selection_group_base_sequence": 1,
        "selection_group_size": 3,
        "member_key": "late",
        "member_index": 1,
        "member_base_sequence": 2,
        "member_size": 1,
        "operation_kind": "timer",
        "operation_identity": timer.timer_id,
        "outcome": "completed",
        "resolution_event_id": life.history[-2].id,
        "resolution_event_type": "TimerFired",
    }


def test_a_failure_may_be_the_first():
    life = Life()
    [activity] = a_race(life).activities
    assert life.tell(failed(activity))
    assert (life.said()["outcome"], life.said()["resolution_event_type"]) == ("failed", "ActivityFailed")
    assert life.said()["operation_identity"] == activity.activity_id


def test_a_child_is_named_by_its_run():
    life = Life()
    [new] = a_race(life).children
    life.tell(ended(new.child))
    assert (life.said()["operation_identity"], life.said()["member_key"]) == (new.run.run_id, 7)


def test_a_selection_has_one_winner_and_the_code_hears_of_the_others_too():
    life = Life()
    step = a_race(life)
    assert life.tell(completed(step.activities[0]))
    assert life.tell(fired(step.timers[0])), "the code may await its handle"
    assert life.tell(ended(step.children[0].child))
    assert life.types.count("SelectionResolved") == 1
    assert life.waits.selections == ()


def test_a_selection_that_is_sent_again_opens_nothing_twice():
    life = Life()
    a_race(life)
    again = a_race(life)
    assert (again.events, again.activities, again.children) == ((), (), ())


def test_selections_that_are_open_together_are_told_apart():
    life = Life()
    one, two = a_race(life), a_race(life, base=4)
    life.tell(fired(two.timers[0]))
    assert life.said()["selection_group_base_sequence"] == 4
    life.tell(fired(one.timers[0]))
    assert life.said()["selection_group_base_sequence"] == 1


# ── Groups as members ───────────────────────────────────────────────────────────────────────────────────


def test_a_group_wins_when_all_of_it_has_succeeded():
    life = Life()
    one, two = a_race_with_a_group(life).activities
    assert not life.tell(completed(two))
    assert "SelectionResolved" not in life.types
    assert life.tell(completed(one))
    said = life.said()
    assert (said["outcome"], said["operation_identity"], said["member_size"]) == ("completed", "group:1:2", 2)
    assert said["resolution_event_id"] == life.history[-2].id, "the last success"


def test_a_group_has_ended_with_its_first_failure():
    life = Life()
    one, two = a_race_with_a_group(life).activities
    assert life.tell(failed(two))
    assert (life.said()["outcome"], life.said()["resolution_event_id"]) == ("failed", life.history[-2].id)
    life.tell(completed(one))
    assert life.types[-1] == "ActivityCompleted"
    assert life.types.count("SelectionResolved") == 1


# ── Giving up ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_code_gives_up_is_cancelled_and_told_in_the_words_of_the_worker():
    life = Life()
    step = a_race(life)
    life.tell(completed(step.activities[0]))
    command = give_up("late", 1, 2)
    given_up = life.decide(command)
    assert life.types[-1] == "SelectionOperationCancelled"
    assert life.said() == command.echoed
    assert given_up.cancelled == (range(2, 3),)
    assert given_up.wakes


def test_giving_up_is_no_step():
    life = Life()
    a_race(life)
    life.decide(give_up("late", 1, 2), StartTimer(1))
    assert life.run.last_step == 4


def test_a_group_is_given_up_with_all_its_steps():
    life = Life()
    step = a_race_with_a_group(life)
    life.tell(fired(step.timers[0]))
    assert life.decide(give_up("both", 0, 1, 2)).cancelled == (range(1, 3),)


def test_what_has_ended_cannot_be_given_up():
    life = Life()
    step = a_race(life)
    life.tell(completed(step.activities[0]))
    given_up = life.decide(give_up("pay", 0, 1))
    assert (given_up.events, given_up.cancelled, given_up.wakes) == ((), (), False)


def test_a_group_that_has_failed_has_ended_though_a_part_of_it_still_runs():
    """Code that awaited it was given its failure; a cancellation would give it something else at the next replay."""
    life = Life()
    one, _ = a_race_with_a_group(life).activities
    life.tell(failed(one))
    assert life.decide(give_up("both", 0, 1, 2)).events == ()


def test_nothing_is_given_up_twice_or_of_an_unknown_selection():
    life = Life()
    a_race(life)
    life.decide(give_up("late", 1, 2))
    assert life.decide(give_up("late", 1, 2)).events == ()
    assert life.decide(give_up("nobody", 9, 2)).events == ()
    elsewhere = CancelSelectionOperation("select-calls:50:2", 0, {})
    assert life.decide(elsewhere).events == ()


def test_what_was_given_up_may_end_without_a_word():
    life = Life()
    step = a_race(life)
    life.decide(give_up("late", 1, 2))
    before = list(life.history)
    assert not life.tell(fired(step.timers[0]))
    assert life.history == before
    assert life.tell(completed(step.activities[0]))
    assert life.said()["member_key"] == "pay"


def test_a_selection_is_over_when_all_has_ended_or_was_given_up():
    life = Life()
    step = a_race(life)
    life.tell(completed(step.activities[0]))
    life.decide(give_up("late", 1, 2), give_up(7, 2, 3))
    assert life.waits.selections == ()
    assert life.waits.selected


# ── Conditions as members ───────────────────────────────────────────────────────────────────────────────


def a_race_with_a_condition(life: Life) -> CommandEffects:
    return life.decide(
        OpenConditionWait("paid", "f00d", 30, within(chosen(1, 2, 1, key="paid", index=0, kind="condition"))),
        StartTimer(60, within(chosen(1, 2, 2, key="late", index=1, kind="timer"))),
    )


def test_a_selected_condition_is_not_the_one_that_the_code_waits_for_alone():
    life = Life()
    a_race_with_a_condition(life)
    assert life.waits.condition is None
    assert not life.tell(SIGNAL)


def test_the_timeout_of_a_selected_condition_resolves_it_by_the_event_that_says_so():
    life = Life()
    waited, _ = a_race_with_a_condition(life).timers
    said = timer_payload(waited)
    woken = life.tell(fired(waited), NewEvent(EventType.CONDITION_WAIT_TIMED_OUT, said))
    assert woken
    assert life.types[-3:] == ["TimerFired", "ConditionWaitTimedOut", "SelectionResolved"]
    assert life.said()["resolution_event_type"] == "ConditionWaitTimedOut"
    assert life.said()["operation_identity"] == life.said(0)["condition_wait_id"]
    assert life.said(-2)["parallel_group_path"], "replay needs it"


def test_the_timer_of_a_condition_that_was_given_up_is_not_told():
    life = Life()
    waited, _ = a_race_with_a_condition(life).timers
    life.decide(CancelSelectionOperation("select-calls:1:2", 0, {}))
    before = list(life.history)
    assert not life.tell(fired(waited), NewEvent(EventType.CONDITION_WAIT_TIMED_OUT, timer_payload(waited)))
    assert life.history == before


# ── In whatever order ───────────────────────────────────────────────────────────────────────────────────


@given(order=st.permutations(range(4)), fail=st.sets(st.integers(0, 2)), cancel=st.integers(0, 3))
def test_there_is_one_winner_and_no_step_ends_twice(order: list[int], fail: set[int], cancel: int):
    life = Life()
    step = a_race(life)
    happenings = [
        lambda: life.tell((failed if 0 in fail else completed)(step.activities[0])),
        lambda: life.tell(fired(step.timers[0])),
        lambda: life.tell(
            ended(
                step.children[0].child,
                EventType.CHILD_RUN_FAILED if 2 in fail else EventType.CHILD_RUN_COMPLETED,
            )
        ),
        lambda: life.decide(give_up("x", cancel, cancel + 1)),
    ]
    for place in order:
        happenings[place]()
    assert life.types.count("SelectionResolved") == 1
    given_up = life.types.count("SelectionOperationCancelled")
    ends = [kind for kind in life.types if kind.endswith(("Completed", "Failed", "Fired"))]
    assert len(ends) + given_up == 3
    assert life.waits.selections == ()


@pytest.mark.parametrize("outcome", [EventType.CHILD_RUN_CANCELLED, EventType.CHILD_RUN_TERMINATED])
def test_a_child_that_somebody_else_ended_has_failed(outcome: EventType):
    life = Life()
    life.tell(ended(a_race(life).children[0].child, outcome))
    assert life.said()["outcome"] == "failed"
