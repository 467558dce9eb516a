"""Which part of a failed run's history a redrive reuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.history.redrive import RedriveStart, restart
from penstock.core.model import RecordedEvent, RunId

Line = tuple[str, int | None, str | None, dict[str, Any]]


def line(kind: str, step: int | None = None, by: str | None = None, **payload: Any) -> Line:
    return kind, step, by, payload


STARTED = line("WorkflowStarted")
FAILED = line("WorkflowFailed", message="ApplicationError: no card")


def done(step: int, by: str) -> list[Line]:
    return [line("ActivityScheduled", step, by), line("ActivityCompleted", step)]


def broken(step: int, by: str, message: str = "no card") -> list[Line]:
    return [line("ActivityScheduled", step, by), line("ActivityFailed", step, message=message)]


def part_of(*lines: Line) -> RedriveStart:
    history = [
        RecordedEvent(
            RunId("r"),
            number,
            kind,
            json.dumps(payload if step is None else {"sequence": step} | payload),
            0,
            by,
        )
        for number, (kind, step, by, payload) in enumerate(lines, 1)
    ]
    found = restart(history)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("lines", "kept", "last_step"),
    [
        ([FAILED], 0, 0),
        ([*broken(1, "t1"), FAILED], 0, 0),
        ([*done(1, "t1"), *done(2, "t2"), FAILED], 4, 2),
        ([*done(1, "t1"), *broken(2, "t2"), FAILED], 2, 1),
        ([*done(1, "t1"), *broken(2, "t2"), line("SideEffectRecorded", 3, "t3"), FAILED], 2, 1),
        # a failure that the code had handled is kept
        ([*broken(1, "t1", "out of stock"), *done(2, "t2"), *broken(3, "t3"), FAILED], 4, 2),
        # a failure that the code had kept until later is known by its message
        ([*done(1, "t1"), *broken(2, "t2"), *done(3, "t3"), FAILED], 2, 1),
        # a step beside the failed one is repeated with it
        (
            [
                *done(1, "t1"),
                line("ActivityScheduled", 2, "t2"),
                line("ActivityScheduled", 3, "t2"),
                line("ActivityCompleted", 2),
                line("ActivityFailed", 3, message="no card"),
                FAILED,
            ],
            2,
            1,
        ),
        # what the end of the run cancelled was open
        (
            [
                *done(1, "t1"),
                line("TimerScheduled", 2, "t2"),
                line("ActivityScheduled", 3, "t2"),
                line("ActivityFailed", 3, message="no card"),
                line("TimerCancelled", 2),
                FAILED,
            ],
            2,
            1,
        ),
        # an update that was never answered
        ([*done(1, "t1"), line("UpdateAccepted", update_id="u"), *done(2, "t2"), FAILED], 0, 0),
        ([*done(1, "t1"), line("SelectionResolved", by="t2"), *done(2, "t2"), FAILED], 2, 1),
    ],
)
def test_the_longest_part_is_reused_in_which_everything_ended_and_nothing_had_failed(
    lines: list[Line], kept: int, last_step: int
) -> None:
    part = part_of(STARTED, *lines)
    assert (len(part.events), part.last_step) == (kept, last_step)
    assert [event.sequence for event in part.events] == list(range(2, kept + 2))


def test_signals_behind_the_reused_part_are_handed_on_in_order() -> None:
    early, late = (line("SignalReceived", signal_name=name) for name in ("early", "late"))
    part = part_of(STARTED, early, *done(1, "t1"), late, *broken(2, "t2"), late, FAILED)
    assert [event.type for event in part.events] == [
        "SignalReceived",
        "ActivityScheduled",
        "ActivityCompleted",
        "SignalReceived",
    ]
    assert [event.payload["signal_name"] for event in part.signals] == ["late"]


def test_a_run_stays_concurrent() -> None:
    completed = line("WorkflowTaskCompleted", by="t1")
    lines = [STARTED, line("ActivityScheduled", 1, "t1"), completed, line("ActivityCompleted", 1)]
    assert part_of(*lines, *broken(2, "t2"), FAILED).concurrent
    assert not part_of(STARTED, *broken(1, "t1"), FAILED).concurrent


def test_messages_of_streams_cannot_be_taken_over() -> None:
    events = [
        RecordedEvent(RunId("r"), 1, "WorkflowStarted", "{}", 0, None),
        RecordedEvent(
            RunId("r"),
            2,
            "SignalReceived",
            json.dumps({"signal_name": "__durable_workflow_message_stream"}),
            0,
            None,
        ),
    ]
    assert restart(events) is None
