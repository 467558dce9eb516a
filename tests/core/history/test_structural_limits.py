"""How much one run may hold, and the warning before it is too late."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.history.commands import (
    Command,
    CompleteWorkflow,
    ContinueAsNew,
    FailWorkflow,
    OpenConditionWait,
    RecordSideEffect,
    ScheduleActivity,
    StartChild,
    StartTimer,
)
from penstock.core.history.structural_limits import (
    ADVICE,
    StructuralLimits,
    check_commands,
    check_signal,
    check_update,
    limit_warnings,
)
from penstock.core.model import Blob, RunStatus
from penstock.errors import InvalidInput, Reason
from tests.support.builders import a_run

TEN = StructuralLimits(10, 10, 100, 10, 10, 10)
ACTIVITY = ScheduleActivity("Charge", None, Blob(""))
CHILD = StartChild("Ship", None, Blob(""))
EFFECT = RecordSideEffect(Blob(""))
ENDS: list[Command] = [CompleteWorkflow(Blob("")), FailWorkflow("no"), ContinueAsNew(Blob(""))]


def kind_of(refused: pytest.ExceptionInfo[InvalidInput]) -> object:
    assert refused.value.reason is Reason.STRUCTURAL_LIMIT_EXCEEDED
    return refused.value.details["limit_kind"]


@pytest.mark.parametrize(
    ("command", "held", "kind"),
    [
        (ACTIVITY, {"open_activities": 9}, "pending_activity_count"),
        (StartTimer(1), {"open_timers": 9}, "pending_timer_count"),
        (OpenConditionWait("paid", timeout_s=0), {"open_timers": 9}, "pending_timer_count"),
        (CHILD, {"open_children": 9}, "pending_child_count"),
        (EFFECT, {"last_sequence": 99}, "history_event_count"),
    ],
)
def test_the_last_that_there_is_room_for_goes_and_the_next_does_not(
    command: Command, held: dict[str, Any], kind: str
):
    check_commands(a_run(**held), [command], TEN)
    with pytest.raises(InvalidInput) as refused:
        check_commands(a_run(**held), [command, command], TEN)
    assert kind_of(refused) == kind
    assert refused.value.details["current_value"] == refused.value.details["configured_limit"] + 1
    assert ADVICE[kind] in refused.value.message


def test_a_wait_without_a_timeout_needs_no_timer():
    check_commands(a_run(open_timers=10), [OpenConditionWait("paid")], TEN)


@pytest.mark.parametrize("last", ENDS)
def test_a_run_may_always_end(last: Command):
    """However much it holds, also if an operator has lowered the limits since."""
    full = a_run(open_activities=50, open_timers=50, open_children=50, last_sequence=500)
    check_commands(full, [EFFECT, last], TEN)


def test_a_run_that_holds_too_much_of_one_thing_may_do_another():
    check_commands(a_run(open_activities=50), [StartTimer(1)], TEN)


@pytest.mark.parametrize(
    "held", [{"unseen_signals": 9}, {"last_sequence": 99}, {"last_sequence": 90, "buffered": 9}]
)
def test_there_is_room_for_one_more_signal(held: dict[str, Any]):
    check_signal(a_run(**held), TEN)


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        ({"unseen_signals": 10}, "pending_signal_count"),
        ({"last_sequence": 100}, "history_event_count"),
        ({"last_sequence": 90, "buffered": 10}, "history_event_count"),
    ],
)
def test_there_is_no_room_for_one_more_signal(held: dict[str, Any], kind: str):
    with pytest.raises(InvalidInput) as refused:
        check_signal(a_run(**held), TEN)
    assert kind_of(refused) == kind


def test_updates_that_wait_are_counted_by_themselves():
    check_update(a_run(unseen_signals=10, open_updates=9), TEN)
    with pytest.raises(InvalidInput) as refused:
        check_update(a_run(open_updates=10), TEN)
    assert kind_of(refused) == "pending_update_count"


# ── Warnings ────────────────────────────────────────────────────────────────────────────────────────────

FIELDS = {
    "open_activities": "pending_activity_count",
    "open_timers": "pending_timer_count",
    "open_children": "pending_child_count",
    "open_updates": "pending_update_count",
    "unseen_signals": "pending_signal_count",
}


@pytest.mark.parametrize(("name", "kind"), list(FIELDS.items()))
def test_from_four_fifths_on_there_is_a_warning_with_advice(name: str, kind: str):
    seven: dict[str, Any] = {name: 7}
    eight: dict[str, Any] = {name: 8}
    assert limit_warnings(a_run(**seven), TEN) == []
    [warning] = limit_warnings(a_run(**eight), TEN)
    assert (warning.limit_kind, warning.current_value, warning.configured_limit) == (kind, 8, 10)
    assert (warning.percent, warning.advice) == (80, ADVICE[kind])


def test_a_history_counts_what_waits_to_be_appended():
    [warning] = limit_warnings(a_run(last_sequence=70, buffered=15), TEN)
    assert (warning.limit_kind, warning.percent) == ("history_event_count", 85)


def test_a_limit_of_nothing_warns_only_of_something():
    none = StructuralLimits(0, 0, 100)
    assert limit_warnings(a_run(), none) == []
    assert [each.limit_kind for each in limit_warnings(a_run(open_timers=1), none)] == ["pending_timer_count"]


def test_nobody_is_warned_of_a_run_that_has_closed():
    assert limit_warnings(a_run(status=RunStatus.COMPLETED, last_sequence=100), TEN) == []
