"""What one completed workflow task makes of its run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.history.commands import (
    Command,
    CompleteWorkflow,
    FailWorkflow,
    ScheduleActivity,
    StartTimer,
)
from penstock.core.history.decide import advance
from penstock.core.history.events import EventType
from penstock.core.history.recorder import record
from penstock.core.history.structural_limits import StructuralLimits
from penstock.core.model import (
    Activity,
    ActivityStatus,
    ActivityTimeouts,
    Blob,
    NewEvent,
    RetrySchedule,
    Run,
    RunStatus,
    Timer,
)
from penstock.core.timestamps import iso
from penstock.errors import InvalidInput, Reason
from tests.support.builders import NOW_MS, a_run

ROOMY = StructuralLimits(open_activities_max=1_000, open_timers_max=1_000, events_max=1_000)
ACTIVITY = ScheduleActivity("Charge", None, Blob("AA=="))
TIMER = StartTimer(60)
GROUPED = {
    "parallel_group_path": [
        {"parallel_group_base_sequence": 1, "parallel_group_size": 2, "parallel_group_index": 0}
    ]
}

steps = st.lists(
    st.one_of(
        st.builds(ScheduleActivity, st.sampled_from(["Charge", "Ship"]), st.none(), st.just(Blob(""))),
        st.builds(StartTimer, st.integers(0, 10**6)),
    ),
    max_size=30,
)


def after(*commands: Command, run: Run | None = None, bounds: StructuralLimits = ROOMY):
    return advance(run or a_run(), commands, bounds, NOW_MS)


# ── Steps ───────────────────────────────────────────────────────────────────────────────────────────────


@given(batches=st.lists(steps, max_size=5), before=st.integers(0, 50), sequence=st.integers(0, 50))
def test_steps_are_dense_over_all_tasks_of_a_run_whatever_its_history_holds(
    batches: list[list[Command]], before: int, sequence: int
):
    run = a_run(last_step=before, last_task=before + 1, last_sequence=sequence)
    told: list[int] = []
    for batch in batches:
        step = advance(run, batch, StructuralLimits(10_000, 10_000, 10_000), NOW_MS)
        told += [event.payload["sequence"] for event in step.events]
        recorded = record(step.run, step.events, NOW_MS)
        run, lines = recorded.run, recorded.lines
        assert [line.sequence for line in lines] == [
            run.last_sequence - len(lines) + place for place in range(1, len(lines) + 1)
        ]
    assert told == list(range(before + 1, before + 1 + len(told)))
    assert run.last_step == before + len(told)


@given(batch=steps)
def test_only_activities_take_task_numbers_and_these_are_dense(batch: list[Command]):
    step = after(*batch, run=a_run(last_task=7))
    assert [activity.task_id for activity in step.activities] == [
        f"r1-{8 + place}" for place in range(len(step.activities))
    ]
    assert step.run.last_task == 7 + len(step.activities)


@given(batch=steps)
def test_what_is_open_is_what_was_open_and_what_is_new(batch: list[Command]):
    step = after(*batch, run=a_run(open_activities=2, open_timers=3))
    assert step.run.open_activities == 2 + len(step.activities)
    assert step.run.open_timers == 3 + len(step.timers)
    assert len(step.events) == len(batch) == len(step.activities) + len(step.timers)


def test_the_ids_of_a_step_name_their_run_and_step():
    step = after(ACTIVITY, TIMER, ACTIVITY, run=a_run("abc"))
    assert [activity.activity_id for activity in step.activities] == ["abc-a1", "abc-a3"]
    assert [timer.timer_id for timer in step.timers] == ["abc-t2"]


# ── Activities ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_scheduled_activity_waits_with_the_runs_queue_unless_another_is_named():
    step = after(ACTIVITY, ScheduleActivity("Ship", "mail", Blob("")))
    first, second = step.activities
    assert (first.task_queue, second.task_queue) == ("orders", "mail")
    assert (first.status, first.attempt, first.scheduled_at_ms) == (ActivityStatus.PENDING, 0, NOW_MS)
    assert [event.payload["task_queue"] for event in step.events] == ["orders", "mail"]


def test_the_event_of_an_activity_says_what_replay_checks_and_repeats_what_came_with_the_command():
    command = ScheduleActivity(
        "Charge",
        None,
        Blob(""),
        RetrySchedule(3, True, (1, 5), ("CardDeclined",)),
        ActivityTimeouts(start_to_close_ms=30_000),
        GROUPED | {"cancellation_policy": "abandon"},
    )
    [event] = after(command).events
    assert event.type == EventType.ACTIVITY_SCHEDULED
    assert event.payload == {
        "activity_execution_id": "r1-a1",
        "activity_type": "Charge",
        "sequence": 1,
        "activity": {
            "id": "r1-a1",
            "type": "Charge",
            "attempt_count": 0,
            "retry_policy": {
                "snapshot_version": 1,
                "max_attempts": 3,
                "backoff_seconds": [1, 5],
                "non_retryable_error_types": ["CardDeclined"],
                "start_to_close_timeout": 30,
                "schedule_to_start_timeout": None,
                "schedule_to_close_timeout": None,
                "heartbeat_timeout": None,
            },
        },
        **GROUPED,
        "cancellation_policy": "abandon",
        "task_queue": "orders",
    }


def test_an_activity_that_must_start_soon_has_its_deadline_from_the_beginning():
    limits = ActivityTimeouts(schedule_to_start_ms=4_000, schedule_to_close_ms=9_000)
    [activity] = after(ScheduleActivity("Charge", None, Blob(""), timeouts=limits)).activities
    assert isinstance(activity, Activity)
    assert activity.deadline_at_ms == NOW_MS + 4_000


# ── Timers ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_timer_fires_its_delay_from_now_and_its_event_says_when():
    step = after(StartTimer(90, {"timer_kind": "sleep"}))
    assert step.timers == (
        Timer(step.timers[0].timer_id, a_run().run_id, 1, 90, NOW_MS + 90_000, '{"timer_kind":"sleep"}'),
    )
    assert step.events == (
        NewEvent(
            EventType.TIMER_SCHEDULED,
            {
                "timer_id": "r1-t1",
                "sequence": 1,
                "delay_seconds": 90,
                "fire_at": iso(NOW_MS + 90_000),
                "timer_kind": "sleep",
            },
        ),
    )


def test_a_timer_without_delay_is_due_at_once():
    assert after(StartTimer(0)).timers[0].fire_at_ms == NOW_MS


# ── Going on and closing ────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_is_not_closed_waits_and_forgets_the_failures_of_its_task():
    step = after(ACTIVITY, run=a_run(task_failures=4, task_error="boom"))
    assert (step.run.status, step.run.task_failures, step.run.task_error) == (RunStatus.WAITING, 0, None)


def test_completing_closes_the_run_with_its_output_and_lifts_its_deadline():
    run = a_run(deadline_at_ms=NOW_MS + 5)
    step = after(CompleteWorkflow(Blob("AQ==")), run=run)
    assert step.run.status is RunStatus.COMPLETED
    assert (step.run.closed_reason, step.run.closed_at_ms) == ("completed", NOW_MS)
    assert (step.run.output, step.run.deadline_at_ms) == ("AQ==", None)
    assert step.events == (
        NewEvent(EventType.WORKFLOW_COMPLETED, {"output": "AQ==", "payload_codec": "avro"}),
    )
    assert step.run.last_step == 0, "closing is no step"


def test_failing_closes_the_run_and_tells_what_the_worker_told():
    step = after(FailWorkflow("no stock", {"exception_type": "SoldOut", "failure_category": "activity"}))
    assert (step.run.status, step.run.closed_reason) == (RunStatus.FAILED, "failed")
    assert step.run.output is None
    assert step.events[0].payload == {
        "message": "no stock",
        "failure_category": "activity",
        "exception_type": "SoldOut",
    }


def test_steps_before_the_end_are_recorded_with_it():
    step = after(ACTIVITY, TIMER, CompleteWorkflow(Blob("")))
    assert [event.type for event in step.events] == [
        "ActivityScheduled",
        "TimerScheduled",
        "WorkflowCompleted",
    ]


# ── Limits ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (a_run(open_activities=9), "pending_activity_count"),
        (a_run(open_timers=9), "pending_timer_count"),
        (a_run(last_sequence=97), "history_event_count"),
    ],
)
def test_a_run_that_would_hold_too_much_is_refused_before_anything(run: Run, kind: str):
    bounds = StructuralLimits(open_activities_max=10, open_timers_max=10, events_max=100)
    assert after(ACTIVITY, TIMER, run=run, bounds=bounds)
    with pytest.raises(InvalidInput) as refused:
        after(ACTIVITY, TIMER, ACTIVITY, TIMER, run=run, bounds=bounds)
    assert refused.value.reason is Reason.STRUCTURAL_LIMIT_EXCEEDED
    assert refused.value.details["limit_kind"] == kind
    assert refused.value.details["outcome"] == "rejected"
    assert refused.value.details["current_value"] > refused.value.details["configured_limit"]


def test_members_of_a_group_that_are_sent_again_count_once():
    """A worker that looks before its group has ended sends it all again; that is not more than there is."""
    group = [ScheduleActivity("Charge", None, Blob(""), extra=GROUPED)]
    tight = StructuralLimits(open_activities_max=1, open_timers_max=1, events_max=3)
    first = after(*group, bounds=tight)
    again = after(*group, TIMER, run=first.run, bounds=tight)
    assert (again.run.open_activities, again.run.open_timers) == (1, 1)
    assert again.activities == ()


def test_a_limit_of_nothing_closes_the_gate():
    with pytest.raises(InvalidInput):
        after(ACTIVITY, bounds=StructuralLimits(0, 10, 100))
    assert after(TIMER, bounds=StructuralLimits(0, 1, 100)).timers


# ── Places in a history ─────────────────────────────────────────────────────────────────────────────────


def test_recorded_events_take_the_next_places_and_are_kept_as_text():
    recorded = record(
        a_run(last_sequence=4), [NewEvent("A", {"name": "Zoë"}), NewEvent("B", {})], NOW_MS, "r1-2"
    )
    run, lines = recorded.run, recorded.lines
    assert [(line.sequence, line.type, line.id) for line in lines] == [(5, "A", "r1-5"), (6, "B", "r1-6")]
    assert json.loads(lines[0].payload) == {"name": "Zoë"}
    assert all((line.recorded_at_ms, line.task_id) == (NOW_MS, "r1-2") for line in lines)
    assert (run.last_sequence, run.last_progress_at_ms) == (6, NOW_MS)
