"""Where a run comes from, and the run that goes on where it ended."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import waits
from penstock.core.history import lineage
from penstock.core.history.commands import ContinueAsNew
from penstock.core.history.payloads import started
from penstock.core.model import (
    NO_RETRY,
    Blob,
    ClosePolicy,
    Lineage,
    PriorityOverride,
    RetrySchedule,
    Run,
    RunId,
    RunStatus,
)
from penstock.core.run_codec import decode_lineage, encode_lineage
from tests.support.builders import NOW_MS, a_run

THRICE = RetrySchedule(3, True, (1, 5), ("CardDeclined",))
CHILD = Lineage(RunId("parent"), "order-0", 4, ClosePolicy.TERMINATE, retry=THRICE)
NEXT = RunId("next")
ids = st.text(st.characters(codec="ascii"), min_size=1, max_size=4).map(RunId)
policies = st.builds(
    RetrySchedule,
    st.integers(1, 5),
    st.just(True),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.lists(st.text(max_size=3), max_size=2).map(tuple),
)


def a_child(origin: Lineage = CHILD, **changes: Any) -> Run:
    return a_run(lineage=origin, run_number=2, **changes)


def retried(run: Run, *types: str, non_retryable: bool = False) -> lineage.Successor | None:
    return lineage.retried(run, NEXT, types, non_retryable, NOW_MS)


@given(
    parent=st.none() | st.tuples(ids, ids, st.integers(1, 9), st.sampled_from(ClosePolicy)),
    continued=st.none() | ids,
    tried=st.none() | ids,
    attempt=st.integers(1, 5),
    retry=st.just(NO_RETRY) | policies,
)
def test_lineage_is_read_as_it_was_written(
    parent: Any, continued: Any, tried: Any, attempt: int, retry: RetrySchedule
):
    run_id, workflow_id, step, policy = parent or (None, None, None, ClosePolicy.ABANDON)
    origin = Lineage(run_id, workflow_id, step, policy, continued, tried, attempt, retry)
    assert decode_lineage(encode_lineage(origin)) == origin


def test_a_run_that_a_caller_started_comes_from_nowhere():
    assert encode_lineage(Lineage()) == "{}"
    assert not a_run().lineage.is_child


# ── Continuing ──────────────────────────────────────────────────────────────────────────────────────────


def continued(run: Run, **changes: Any) -> Run:
    successor = lineage.continued(run, NEXT, ContinueAsNew(Blob("AQ=="), **changes), NOW_MS)
    assert successor.at_ms == NOW_MS
    return successor.run


def test_a_continued_run_starts_anew_under_the_same_name():
    run = a_run(
        last_step=9, last_sequence=40, last_task=7, open_timers=2, run_number=4, waits=waits.Waits(old=True)
    )
    after = continued(run)
    assert (after.run_id, after.workflow_id, after.run_number) == (NEXT, run.workflow_id, 5)
    assert (after.last_step, after.last_sequence, after.last_task, after.open_timers) == (0, 0, 0, 0)
    assert (after.status, after.waits, after.input) == (RunStatus.PENDING, waits.NEW_RUN, "AQ==")
    assert after.lineage.continued_from == "r1"
    assert started(after).payload["continued_from_run_id"] == "r1"


@given(
    st.builds(
        PriorityOverride,
        *(st.none() | each for each in (st.integers(1, 5), st.text(max_size=3), st.integers(1, 9))),
    ),
    st.tuples(st.integers(1, 5), st.text(max_size=3), st.integers(1, 9)),
)
def test_each_field_of_the_priority_is_the_commands_or_inherited(
    said: PriorityOverride, own: tuple[int, str, int]
):
    run = a_run(level=own[0], key=own[1], weight_milli=own[2])
    after = continued(run, priority=said)
    wanted = (said.level, said.key, said.weight_milli)
    expected = tuple(mine if each is None else each for each, mine in zip(wanted, own, strict=True))
    assert (after.level, after.key, after.weight_milli) == expected


def test_a_continued_run_has_the_run_timeout_memo_attributes_and_retries_that_the_command_names():
    run = a_child(memo='{"a":1}', search_attributes='{"b":2}', run_timeout_s=60, execution_timeout_s=90)
    once = RetrySchedule(1, given=True)
    after = continued(run, run_timeout_s=5, memo={}, search_attributes={"c": 3}, retry=once)
    assert (after.run_timeout_s, after.run_deadline_at_ms) == (5, NOW_MS + 5_000)
    assert (after.memo, after.search_attributes, after.execution_timeout_s) == ("{}", '{"c":3}', 90)
    assert after.lineage.retry == once
    assert continued(run).lineage.retry == THRICE


@pytest.mark.parametrize("kept", [waits.Waits(concurrent=True), waits.NEW_RUN_DELIVERING_CANCEL])
def test_the_next_run_of_code_that_handles_cancellation_receives_a_cancel_from_its_first_task_on(
    kept: waits.Waits,
):
    assert continued(a_run(waits=kept)).waits.delivers_cancel


def test_it_keeps_what_it_is_and_carries_unless_the_command_says_otherwise():
    run = a_run(memo='{"a":1}', search_attributes='{"b":2}', level=1, key="ada", business_key="b-1")
    same = continued(run)
    assert (same.memo, same.search_attributes, same.level, same.key) == ('{"a":1}', '{"b":2}', 1, "ada")
    assert (same.workflow_type, same.task_queue, same.business_key) == ("Order", "orders", "b-1")
    other = continued(run, workflow_type="Order2", task_queue="mail")
    assert (other.workflow_type, other.task_queue) == ("Order2", "mail")


def test_a_build_belongs_to_a_queue():
    run = a_run(compatibility="build-1")
    assert continued(run).compatibility == "build-1"
    assert continued(run, task_queue="orders").compatibility == "build-1"
    assert continued(run, task_queue="mail").compatibility is None


def test_the_clock_of_the_run_starts_again_and_that_of_the_execution_goes_on():
    run = a_run(
        run_timeout_s=10,
        run_deadline_at_ms=NOW_MS + 1,
        execution_timeout_s=60,
        execution_deadline_at_ms=NOW_MS + 7_000,
    )
    after = continued(run)
    assert (after.run_deadline_at_ms, after.execution_deadline_at_ms) == (NOW_MS + 10_000, NOW_MS + 7_000)
    assert after.deadline_at_ms == NOW_MS + 7_000


def test_a_child_that_continues_stays_the_child_of_its_parent_and_has_all_its_attempts_again():
    tired = Lineage(RunId("parent"), "order-0", 4, retried_from=RunId("r0"), attempt=3, retry=THRICE)
    origin = continued(a_child(tired)).lineage
    assert (origin.parent_run_id, origin.parent_step, origin.retry) == ("parent", 4, THRICE)
    assert (origin.attempt, origin.retried_from) == (1, None)


# ── Trying again ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("attempt", "rest_s"), [(1, 1), (2, 5), (3, None)])
def test_a_child_is_tried_as_often_and_as_late_as_its_policy_says(attempt: int, rest_s: int | None):
    origin = Lineage(RunId("parent"), "order-0", 4, attempt=attempt, retry=THRICE)
    after = retried(a_child(origin, input=Blob("AQ==")))
    if rest_s is None:
        assert after is None
        return
    assert after is not None
    assert after.at_ms == NOW_MS + rest_s * 1_000
    assert (after.run.run_number, after.run.input) == (3, "AQ==")
    again = after.run.lineage
    assert (again.attempt, again.retried_from, again.parent_run_id) == (attempt + 1, "r1", "parent")
    said = started(after.run).payload
    assert (said["retried_from_run_id"], said["retry_attempt"]) == ("r1", attempt + 1)
    assert (said["parent_workflow_run_id"], said["parent_sequence"]) == ("parent", 4)


def test_the_last_rest_is_used_for_all_attempts_beyond_the_list():
    many = Lineage(RunId("p"), "o", 1, attempt=7, retry=RetrySchedule(9, True, (1, 5)))
    after = retried(a_child(many))
    assert after is not None
    assert after.at_ms == NOW_MS + 5_000


def test_no_rests_means_at_once():
    after = retried(a_child(Lineage(RunId("p"), "o", 1, retry=RetrySchedule(2, True))))
    assert after is not None
    assert after.at_ms == NOW_MS


@pytest.mark.parametrize(
    "run",
    [
        a_run(),
        a_child(Lineage(RunId("p"), "o", 1)),
        a_child(Lineage(retry=THRICE)),
        a_child(execution_deadline_at_ms=NOW_MS + 1_000),
    ],
    ids=["no child", "no policy", "no parent", "no time"],
)
def test_it_is_not_tried_again_without_a_parent_a_policy_or_time(run: Run):
    assert retried(run) is None


def test_some_failures_are_not_cured_by_trying_again():
    assert retried(a_child(), "Broken") is not None
    assert retried(a_child(), "Broken", "CardDeclined") is None
    assert retried(a_child(), "Broken", non_retryable=True) is None


def test_the_clock_of_the_next_attempt_starts_when_it_may_run():
    after = retried(a_child(run_timeout_s=10, execution_deadline_at_ms=NOW_MS + 60_000))
    assert after is not None
    assert after.run.run_deadline_at_ms == NOW_MS + 11_000
    assert after.run.execution_deadline_at_ms == NOW_MS + 60_000
