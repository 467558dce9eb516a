"""A history becomes one row a step, and its newest failure stands first."""

from __future__ import annotations

from typing import Any

from penstock.server.dashboard.pages.runs.lanes import axis, drawn, spent_parts
from penstock.server.dashboard.pages.runs.payload_text import pretty, short
from penstock.server.dashboard.pages.runs.steps import frames_of, last_failure, steps

TRACE = '  File "/app/shop.py", line 12, in charge\n    raise Declined(card)\n'


def event(sequence: int, type_: str, **payload: Any) -> dict[str, Any]:
    at = f"2026-11-18T16:33:{sequence:02}Z"
    return {"sequence": sequence, "type": type_, "timestamp": at, "payload": payload}


EVENTS = [
    event(1, "WorkflowStarted", workflow_type="orders", arguments=["o-1"]),
    event(2, "WorkflowTaskCompleted"),
    event(3, "ActivityScheduled", activity_execution_id="a1", activity_type="charge"),
    event(4, "ActivityRetryScheduled", activity_execution_id="a1", activity_type="charge", attempt_number=1,
          exception={"type": "Declined", "message": "no funds", "stack_trace": TRACE}),
    event(5, "TimerScheduled", timer_id="t2"),
    event(6, "ActivityCompleted", activity_execution_id="a1", activity_type="charge", attempt_number=2, result=7),
]  # fmt: skip


def test_the_events_of_a_step_are_one_row_newest_first() -> None:
    charge, timer, run = steps(EVENTS)
    assert (charge.name, charge.first, charge.last, charge.status) == ("charge", 3, 6, "completed")
    assert (charge.attempts, charge.seconds, charge.result) == (2, 3.0, "7")
    assert charge.error == "Declined: no funds"
    assert (timer.name, timer.status) == ("timer", "pending")
    assert (run.name, run.status, run.input) == ("orders", "running", '["o-1"]')


def test_the_start_and_the_end_of_a_run_are_one_row() -> None:
    (run,) = steps([EVENTS[0], event(9, "WorkflowCompleted", output="done")])
    assert (run.name, run.status, run.result) == ("orders", "completed", '"done"')


def test_the_newest_failure_says_where_it_was_raised() -> None:
    failure = last_failure(EVENTS)
    assert failure is not None
    assert (failure.kind, failure.message, failure.of) == ("Declined", "no funds", "charge")
    assert failure.where == "/app/shop.py, line 12, in charge"
    assert last_failure(EVENTS[:3]) is None


def test_the_frames_of_a_failure_stand_innermost_first_with_their_source() -> None:
    trace = (
        '  File "/app/shop.py", line 7, in ship\n    charge(order)\n    ^^^^^^\n'
        '  File "/app/bank.py", line 88, in charge\n'
        "      87 |    try:\n    > 88 |        return client.get(order)\n      89 |    except KeyError:\n"
    )
    bank, shop = frames_of(trace)
    assert (bank.file, bank.line, bank.name) == ("/app/bank.py", 88, "charge")
    assert [(number, is_at) for number, _, is_at in bank.lines] == [
        ("87", False),
        ("88", True),
        ("89", False),
    ]
    assert bank.lines[1][1] == "        return client.get(order)"
    assert shop.lines == [("7", "charge(order)", True)]
    assert frames_of("KeyError: nothing was raised here") == []


def test_a_history_without_payloads_is_still_a_list_of_what_happened() -> None:
    found = steps([each | {"payload": None} for each in EVENTS])
    assert [step.name for step in found][-1] == "workflow started"
    assert all(not step.input and not step.result and not step.error for step in found)


def test_a_payload_of_two_mebibytes_is_cut_and_says_so() -> None:
    text = pretty("x" * 2_097_152)
    assert text.is_cut
    assert (len(text.text), text.length) == (16_000, 2_097_154)
    assert len(short("x" * 2_097_152)) == 120


def test_a_timeline_becomes_bars_with_a_look_for_each_kind_of_time() -> None:
    timeline = {
        "length_ms": 10_000,
        "lanes": [
            {
                "kind": "activity",
                "label": "charge",
                "type": "charge",
                "is_open": True,
                "ticks": [{"at": 5_000, "label": "retry", "event": 4}],
                "spans": [
                    {"from": 0, "to": 4_000, "state": "waiting", "cause": "cap"},
                    {"from": 4_000, "to": 5_000, "state": "running", "outcome": "failed"},
                    {"from": 5_000, "to": 8_000, "state": "waiting", "cause": "backoff", "by_design": True},
                    {"from": 8_000, "to": 10_000, "state": "running", "attempt": 2},
                ],
            }
        ],
    }
    (lane,) = drawn(timeline)
    assert [(bar.look, bar.x, bar.width) for bar in lane.bars] == [
        ("wait", 0.0, 40.0),
        ("failed", 40.0, 10.0),
        ("asked", 50.0, 30.0),
        ("run", 80.0, 20.0),
    ]
    assert (lane.held, lane.designed, lane.attempts, lane.ran_seconds) == ("cap 4 s", "backoff 3 s", 2, 3.0)
    assert lane.retries == [50.0]
    assert axis(timeline).marks[0] == (20.0, "+2 s")


def test_where_the_time_went_adds_up_to_the_whole_bar() -> None:
    waits = {"cap": 4_000, "backoff": 3_000}
    spent = {
        "total_ms": 10_000,
        "held_back_ms": 4_000,
        "running_ms": 3_000,
        "by_design_ms": 3_000,
        "waits": waits,
    }
    held, running, designed = spent_parts(spent)
    assert [part["x"] for part in (held, running, designed)] == [0.0, 40.0, 70.0]
    assert (held["causes"], running["causes"], designed["causes"]) == ("cap 4 s", "", "backoff 3 s")
