"""What a reader is told of each event."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.timeline.event_lines import describe_event
from penstock.cli.timeline.failures import failure_lines
from penstock.cli.timeline.payloads import PayloadDisplay
from penstock.cli.timeline.steps import StepDurations
from penstock.wire.payloads import encode


def event(kind: str, second: float = 0.0, /, **payload: Any) -> dict[str, Any]:
    return {"event_type": kind, "timestamp": f"2026-04-22T10:00:{second:06.3f}Z", "payload": payload}


def line(kind: str, **payload: Any) -> str:
    return describe_event(event(kind, **payload), "", PayloadDisplay.SHORT).text


def ended(opening: dict[str, Any], *others: dict[str, Any]) -> str:
    """What the last event says of the step that the first one opened."""
    steps = StepDurations()
    took = ""
    for each in (opening, *others):
        took = steps.record(each["event_type"], each)
    return took


@pytest.mark.parametrize(
    ("opens", "ends", "said"),
    [
        ("ActivityScheduled", "ActivityCompleted", "took 2.500 s"),
        ("ActivityScheduled", "ActivityTimedOut", "ended after 2.500 s"),
        ("TimerScheduled", "TimerFired", "after 2.500 s"),
        ("ChildWorkflowScheduled", "ChildRunFailed", "took 2.500 s"),
        ("ConditionWaitOpened", "ConditionWaitSatisfied", "waited 2.500 s"),
        ("ConditionWaitOpened", "ConditionWaitTimedOut", "gave up after 2.500 s"),
    ],
)
def test_the_end_of_a_step_tells_how_long_it_was(opens: str, ends: str, said: str) -> None:
    assert ended(event(opens, 1, sequence=7), event(ends, 3.5, sequence=7)) == said


def test_the_attempts_of_an_activity_are_counted_over_its_retries() -> None:
    retry = event("ActivityRetryScheduled", 2, sequence=1)
    took = ended(
        event("ActivityScheduled", 1, sequence=1), retry, retry, event("ActivityCompleted", 4, sequence=1)
    )
    assert took == "took 3.000 s, 3 attempts"


def test_steps_of_other_kinds_with_the_same_number_are_told_apart() -> None:
    wait = event("ConditionWaitOpened", 1, sequence=4, condition_wait_id="w")
    timer = event("TimerScheduled", 2, sequence=4, condition_wait_id="w")
    fired = event("TimerFired", 5, sequence=4, condition_wait_id="w")
    assert ended(wait, timer, fired) == "after 3.000 s"


def test_updates_are_matched_by_their_id() -> None:
    accepted = [event("UpdateAccepted", second, update_id=f"u{second}") for second in (1, 2)]
    assert ended(*accepted, event("UpdateCompleted", 4, update_id="u1")) == "took 3.000 s"


def test_an_end_whose_beginning_was_not_read_tells_no_time() -> None:
    assert ended(event("ActivityCompleted", 4, sequence=1)) == ""


def test_a_signal_tells_its_name_and_arguments() -> None:
    text = line("SignalReceived", signal_name="approve", arguments=encode(["Ada"]).envelope())
    assert text == 'approve  arguments ["Ada"]'


def test_a_message_of_a_stream_is_no_riddle() -> None:
    message = {
        "schema": "durable-workflow.v2.message-stream.message",
        "stream_name": "chat",
        "message_id": "m1",
        "position": 3,
        "payload_envelope": encode(["hello"]).envelope(),
    }
    arguments = encode([message]).envelope()
    text = line("SignalReceived", signal_name="__durable_workflow_message_stream", arguments=arguments)
    assert text == 'message stream chat  position 3  message ["hello"]'


def test_a_member_of_a_group_is_indented_and_numbered() -> None:
    path = [{"parallel_group_id": "a"}, {"parallel_group_id": "b"}]
    member: dict[str, Any] = {
        "parallel_group_index": 1,
        "parallel_group_size": 3,
        "parallel_group_path": path,
    }
    line = describe_event(
        event("ActivityScheduled", activity_type="pack", **member), "", PayloadDisplay.SHORT
    )
    assert (line.depth, line.text) == (2, "pack  2 of 3")


def test_a_child_tells_its_id_and_what_becomes_of_it() -> None:
    child = {"child_workflow_type": "ship", "child_workflow_instance_id": "ship-1"}
    assert (
        line("ChildRunStarted", workflow_type="ship", **child, parent_close_policy="abandon")
        == "ship  ship-1"
    )
    assert "terminate" in line("ChildWorkflowScheduled", **child, parent_close_policy="terminate")


def test_a_timer_tells_for_how_long_and_a_wait_for_how_long_at_most() -> None:
    assert line("TimerScheduled", delay_seconds=90) == "for 1 m 30 s"
    assert line("ConditionWaitOpened", condition_key="k", timeout_seconds=30) == "k  at most 30 s"
    timeout = line("TimerScheduled", delay_seconds=30, timer_kind="condition_timeout")
    assert timeout == "timeout of the wait  for 30 s"
    fired = describe_event(event("TimerFired", delay_seconds=30), "after 30.001 s", PayloadDisplay.SHORT)
    assert fired.text == "after 30.001 s"


def test_the_reason_of_a_person_is_no_error() -> None:
    for payload in ({"reason": "ordered twice"}, {"reason": "ordered twice", "message": "ordered twice"}):
        line = describe_event(event("WorkflowCancelled", **payload), "", PayloadDisplay.SHORT)
        assert (line.text, line.failure) == ("because: ordered twice", ())


def test_an_update_that_failed_is_not_green() -> None:
    failed = event("UpdateCompleted", update_name="u", exception_type="E", message="no")
    assert describe_event(failed, "", PayloadDisplay.SHORT).style == "red"


def test_a_value_that_stands_under_two_names_is_told_once() -> None:
    arguments = encode([1]).envelope()
    assert line("WorkflowStarted", arguments=arguments, input_envelope=arguments) == "arguments [1]"


def test_an_event_without_a_payload_is_still_told() -> None:
    assert describe_event({"event_type": "X", "payload": None}, "", PayloadDisplay.SHORT).kind == "X"
    assert describe_event({}, "", PayloadDisplay.FULL).kind == "?"


def test_a_failure_is_told_with_details_stack_and_causes() -> None:
    exception = {
        "type": "PackingError",
        "message": "no box",
        "code": 7,
        "details": encode({"sku": 3}).envelope(),
        "stack_trace": "Traceback:\n  line 1\n",
        "cause": {"type": "ValueError", "message": "size", "cause": {"message": "zero"}},
    }
    lines = failure_lines({"message": "no box", "exception_type": "PackingError", "exception": exception})
    assert lines == [
        "PackingError: no box",
        '  code 7, details {"sku": 3}',
        "  Traceback:",
        "    line 1",
        "  caused by ValueError: size",
        "    caused by zero",
    ]


def test_a_message_of_several_lines_keeps_them() -> None:
    assert failure_lines({"exception_class": "E", "message": "a\nb"}) == ["E: a", "b"]


@pytest.mark.parametrize("payload", [{}, {"result": 1}, {"exception": None}])
def test_where_nothing_failed_nothing_is_told(payload: dict[str, Any]) -> None:
    assert failure_lines(payload) == []


def test_causes_that_never_end_are_cut() -> None:
    failure: dict[str, Any] = {"message": "deepest"}
    for _ in range(500):
        failure = {"message": "m", "cause": failure}
    assert len(failure_lines(failure)) < 50


DISPATCHED = {
    "activity_type": "generate",
    "task_queue": "anthropic",
    "routing_key": "opus",
    "dispatch": {
        "fingerprint": "0123456789abcdef",
        "sources": {
            "task_queue": "activity_queues.by_handle",
            "start_to_close_timeout": "handle_options",
            "heartbeat_timeout": "queue_options",
            "retry.initial_interval": "baseline",
            "retry.maximum_attempts": "queue_options",
            "retry.non_retryable": "baseline + queue_extra",
        },
    },
    "activity": {
        "retry_policy": {
            "start_to_close_timeout": 4,
            "heartbeat_timeout": 1,
            "heartbeat_timeout_ms": 500,
            "max_attempts": 5,
            "non_retryable_error_types": ["Wrong", "Auth"],
        }
    },
    "asked_timeouts": {"start_to_close_timeout_ms": 900_000},
}


def test_a_dispatched_activity_says_its_key_its_queue_and_what_was_cut() -> None:
    line = describe_event(event("ActivityScheduled", **DISPATCHED), "", PayloadDisplay.SHORT)
    assert line.text == "generate  key opus  to anthropic  start_to_close 15 m 00 s cut to 4 s"
    assert not line.payload


def test_with_all_payloads_each_value_of_a_dispatch_names_its_layer() -> None:
    line = describe_event(event("ActivityScheduled", **DISPATCHED), "", PayloadDisplay.FULL)
    assert line.payload == (
        "task_queue anthropic (activity_queues.by_handle)",
        "start_to_close_timeout 4 s (handle_options)",
        "heartbeat_timeout 0.5 s (queue_options)",
        "retry.maximum_attempts 5 (queue_options)",
        "retry.non_retryable Wrong, Auth (baseline + queue_extra)",
        "by the dispatch configuration 0123456789ab",
    )
