"""What is told of a run beside its events, read from those events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.audit.bundle import MESSAGE_CHARS_MAX, Outline
from tests.support.builders import an_event


def outline(*events: tuple[str, dict[str, Any]]) -> Outline:
    found = Outline()
    for number, (kind, payload) in enumerate(events, 1):
        found.add(an_event("r1", number, kind, payload=json.dumps(payload), task_id="r1-1"))
    return found


def test_an_activity_is_followed_over_its_attempts_to_its_end() -> None:
    who = {"activity_execution_id": "r1-a1", "sequence": 1, "activity_type": "Charge"}
    found = outline(
        ("ActivityScheduled", who),
        ("ActivityRetryScheduled", who | {"attempt_number": 1}),
        ("ActivityCompleted", who | {"attempt_number": 2, "result": "AQ=="}),
    )
    [fact] = found.activities.values()
    assert (fact["id"], fact["status"], fact["attempt_count"]) == ("r1-a1", "completed", 2)
    assert "result" not in fact
    assert found.types == {"ActivityScheduled": 1, "ActivityRetryScheduled": 1, "ActivityCompleted": 1}


@pytest.mark.parametrize(("waits", "status"), [(False, "cancelled"), (True, "pending")])
def test_an_activity_that_was_asked_to_stop_is_open_while_its_end_is_waited_for(
    waits: bool, status: str
) -> None:
    asked = {"sequence": 1, "step_sequence": 1} | ({"wait": True} if waits else {})
    who = {"activity_execution_id": "r1-a1", "sequence": 1, "activity_type": "Charge"}
    [fact] = outline(("ActivityScheduled", who), ("StepCancelRequested", asked)).activities.values()
    assert fact["status"] == status


def test_timers_children_updates_and_signals_have_a_fact_each() -> None:
    child = {"sequence": 3, "child_workflow_type": "Ship", "child_workflow_run_id": "c1"}
    found = outline(
        ("TimerScheduled", {"timer_id": "t1", "sequence": 1, "delay_seconds": 5}),
        ("TimerFired", {"timer_id": "t1", "sequence": 1}),
        ("ChildWorkflowScheduled", child),
        ("ChildRunFailed", child | {"message": "lost"}),
        ("UpdateAccepted", {"update_id": "u1", "update_name": "approve", "workflow_command_id": "c-1"}),
        ("UpdateCompleted", {"update_id": "u1", "message": "no"}),
        ("SignalReceived", {"signal_name": "go", "signal_id": "s1", "workflow_command_id": "c-2"}),
    )
    assert [each["status"] for each in found.timers.values()] == ["fired"]
    assert [each["status"] for each in found.children.values()] == ["failed"]
    assert [each["status"] for each in found.updates.values()] == ["failed"]
    assert [(each["id"], each["name"]) for each in found.signals] == [("s1", "go")]
    assert list(found.commands) == ["c-1", "c-2"]
    assert [(each["source_kind"], each["source_id"]) for each in found.failures] == [("child_workflow", "c1")]
    assert found.tasks["r1-1"] | {"completed_at": None} == {
        "id": "r1-1",
        "type": "workflow",
        "first_event": 1,
        "last_event": 7,
        "completed_at": None,
    }


def test_a_long_message_of_a_failure_is_cut() -> None:
    found = outline(("WorkflowFailed", {"message": "x" * 5_000, "exception_class": "Oops"}))
    [failed] = found.failures
    assert (len(failed["message"]), failed["source_id"]) == (MESSAGE_CHARS_MAX, "r1")
