"""Lanes of a run from its events and the times of its tasks."""

from __future__ import annotations

from typing import Any

from penstock.core.timeline.steps import RunTimes, lanes
from penstock.core.timeline.values import (
    LaneKind,
    Span,
    SpanState,
    TaskTimes,
    TimelineEvent,
    TimelineLane,
    WaitCause,
)
from penstock.core.timestamps import iso

START = 1_000_000
WAITING, RUNNING = SpanState.WAITING, SpanState.RUNNING


def event(sequence: int, type_: str, at: int, **fields: Any) -> TimelineEvent:
    return TimelineEvent(sequence, type_, START + at, **fields)


def task(number: int, kind: str, state: str, ready: int, granted: int | None, **fields: Any) -> TaskTimes:
    ready_ms = START + ready
    granted_ms = None if granted is None else START + granted
    return TaskTimes(
        f"r-{number}",
        kind,
        fields.get("activity_id"),
        state,
        ready_ms,
        ready_ms,
        granted_ms,
        fields.get("held_by", ""),
    )


def run(*tasks: TaskTimes, closed: int | None = None, now: int = 1_000, **fields: Any) -> RunTimes:
    closed_ms = None if closed is None else START + closed
    return RunTimes(START, closed_ms, START + now, tasks, **fields)


def parts(lane: TimelineLane) -> list[tuple[int, int, str]]:
    return [
        (span.from_ms - START, span.to_ms - START, span.cause.value if span.cause else "running")
        for span in lane.spans
    ]


def scheduled(at: int, step: int = 1) -> TimelineEvent:
    return event(
        1, "ActivityScheduled", at, step=step, activity_type="charge", activity_id=f"r-a{step}", task_id="r-1"
    )


def test_an_activity_waits_until_its_attempt_starts_and_runs_until_it_ends() -> None:
    done = event(2, "ActivityCompleted", 500, step=1, attempt=1, started_at=iso(START + 300))
    [lane] = lanes([scheduled(100), done], run(closed=600))
    assert parts(lane) == [(100, 300, "unknown"), (300, 500, "running")]
    assert (lane.label, lane.outcome, lane.is_open) == ("charge", "completed", False)
    assert lane.spans[1].events == (1, 2)


def test_a_retry_is_a_tick_and_its_backoff_a_wait_by_design() -> None:
    failed = event(
        2, "ActivityRetryScheduled", 200, step=1, started_at=iso(START + 100), retry_at=iso(START + 400)
    )
    done = event(3, "ActivityCompleted", 700, step=1, attempt=2, started_at=iso(START + 450))
    [lane] = lanes([scheduled(100), failed, done], run(closed=800))
    assert parts(lane) == [
        (100, 200, "running"),
        (200, 400, "backoff"),
        (400, 450, "unknown"),
        (450, 700, "running"),
    ]
    assert [(tick.at_ms - START, tick.event) for tick in lane.ticks] == [(200, 2)]
    assert [span.outcome for span in lane.spans] == ["failed", None, None, "completed"]
    assert not lane.spans[1].is_held_back
    assert lane.spans[2].is_held_back


def test_an_attempt_that_never_started_only_waited() -> None:
    gone = event(2, "ActivityTimedOut", 900, step=1)
    [lane] = lanes([scheduled(100), gone], run(closed=1_000))
    assert parts(lane) == [(100, 900, "unknown")]
    assert lane.outcome == "timed_out"


def test_what_waits_now_has_the_cause_that_why_gives() -> None:
    waiting = task(2, "activity", "ready", 100, None, activity_id="r-a1")
    [lane] = lanes([scheduled(100)], run(waiting, causes={"r-2": WaitCause.CAP}))
    assert parts(lane) == [(100, 1_000, "cap")]
    assert lane.is_open
    [lane] = lanes([scheduled(100)], run(waiting))
    assert parts(lane) == [(100, 1_000, "unknown")]


def test_waits_that_are_over_have_the_causes_that_were_recorded_with_their_leases() -> None:
    failed = event(2, "ActivityRetryScheduled", 300, step=1, held_by="slots", started_at=iso(START + 200))
    done = event(3, "ActivityCompleted", 900, step=1, attempt=2, started_at=iso(START + 500))
    decided = task(1, "workflow", "done", 0, 80, held_by="key_limits")
    charged = task(2, "activity", "done", 300, 500, activity_id="r-a1", held_by="queue_running")
    found = lanes([scheduled(100), failed, done], run(decided, charged, closed=1_000))
    assert [parts(lane) for lane in found] == [
        [(0, 80, "key"), (80, 100, "running")],
        [(100, 200, "no_worker"), (200, 300, "running"), (300, 500, "cap"), (500, 900, "running")],
    ]


def test_an_attempt_that_runs_now_ends_now() -> None:
    leased = task(2, "activity", "leased", 100, 400, activity_id="r-a1")
    [lane] = lanes([scheduled(100)], run(leased))
    assert parts(lane) == [(100, 400, "unknown"), (400, 1_000, "running")]


def test_the_gap_before_a_workflow_task_is_its_wait_and_its_events_end_it() -> None:
    decided = task(1, "workflow", "done", 0, 80)
    [tasks, charge] = lanes([scheduled(100)], run(decided, closed=1_000))
    assert (tasks.kind, charge.kind) == (LaneKind.WORKFLOW_TASK, LaneKind.ACTIVITY)
    assert parts(tasks) == [(0, 80, "unknown"), (80, 100, "running")]


def test_timers_and_conditions_wait_by_design_and_children_run() -> None:
    found = lanes(
        [
            event(1, "TimerScheduled", 0, step=1),
            event(2, "ConditionWaitOpened", 10, step=2, wait_id="c", condition_key="paid"),
            event(3, "TimerScheduled", 10, step=2, timer_kind="condition_timeout"),
            event(4, "ChildWorkflowScheduled", 20, step=3, child_type="ship", child_id="s-1"),
            event(5, "ChildRunStarted", 30, step=3, child_run_id="run-9"),
            event(6, "SignalReceived", 40, signal_name="pay"),
            event(7, "ConditionWaitSatisfied", 50, step=2, wait_id="c"),
            event(8, "TimerFired", 60, step=1),
            event(9, "ChildRunFailed", 70, step=3),
        ],
        run(closed=100),
    )
    assert [(lane.label, parts(lane)) for lane in found] == [
        ("timer", [(0, 60, "timer")]),
        ("paid", [(10, 50, "signal")]),
        ("ship", [(20, 70, "running")]),
        ("pay", []),
    ]
    assert (found[2].child_id, found[2].child_run_id, found[2].outcome) == ("s-1", "run-9", "failed")


def test_a_start_before_the_schedule_by_another_clock_never_makes_a_negative_span() -> None:
    done = event(2, "ActivityCompleted", 500, step=1, attempt=1, started_at=iso(START - 5_000))
    [lane] = lanes([scheduled(100), done], run(closed=600))
    assert lane.spans == (
        Span(START + 100, START + 500, RUNNING, attempt=1, outcome="completed", events=(1, 2)),
    )


def test_a_condition_that_a_cancellation_interrupted_is_over() -> None:
    found = lanes(
        [
            event(1, "ConditionWaitOpened", 10, step=1, wait_id="c", condition_key="paid"),
            event(2, "CooperativeCancellationDelivered", 50, step=1),
        ],
        run(),
    )
    [condition] = [lane for lane in found if lane.kind is LaneKind.CONDITION]
    [span] = condition.spans
    assert (condition.outcome, condition.is_open, span.to_ms - span.from_ms) == ("cancelled", False, 40)
