"""Waiting for the result of a workflow at the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.wire.payloads import encode
from tests.cli.recorded_server import RecordedServer, Run

STARTED = {"workflow_id": "order-1001", "run_id": "01RUN", "workflow_type": "t", "outcome": "started_new"}
RESULT = "/workflows/order-1001/result"


def outcome(**changes: Any) -> dict[str, Any]:
    return {
        "workflow_id": "order-1001",
        "run_id": "01RUN",
        "status": "running",
        "is_terminal": False,
        "closed_reason": None,
        "result": None,
        "result_envelope": None,
        "failure": None,
        "wait_timed_out": True,
    } | changes


def done(result: object) -> dict[str, Any]:
    return outcome(
        status="completed",
        is_terminal=True,
        closed_reason="completed",
        result_envelope=encode(result).envelope(),
        wait_timed_out=False,
    )


def failed(closed_reason: str, **failure: Any) -> dict[str, Any]:
    return outcome(
        status="failed", is_terminal=True, closed_reason=closed_reason, failure=failure, wait_timed_out=False
    )


def test_a_result_is_waited_for_and_printed_alone(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RESULT, outcome())
    server.answer("GET", RESULT, done({"shipped": True}))
    result = ask("workflow", "result", "order-1001")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"shipped": True}
    assert result.stderr == ""
    assert [request.query for request in server.requests] == [{"wait_seconds": "30"}] * 2


def test_starting_with_wait_prints_the_result_and_only_the_result(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows", STARTED, status=201)
    server.answer("GET", RESULT, done({"shipped": True}))
    result = ask("workflow", "start", "--type", "t", "--wait")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"shipped": True}


def test_a_failure_is_exit_code_1_with_its_last_words_and_its_stack(ask: Run, server: RecordedServer) -> None:
    failure = {
        "event_type": "WorkflowFailed",
        "exception_type": "CardDeclined",
        "message": "card declined",
        "exception": {"stack_trace": "Traceback:\n  line 1"},
    }
    server.answer("GET", RESULT, failed("failed", **failure))
    result = ask("workflow", "result", "order-1001")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "workflow_failed: CardDeclined: card declined" in result.stderr
    assert "    Traceback:" in result.stderr
    assert "`penstock workflow history order-1001 --run 01RUN`" in result.stderr


@pytest.mark.parametrize("reason", ["cancelled", "terminated", "timed_out"])
def test_any_other_end_is_exit_code_1_too(ask: Run, server: RecordedServer, reason: str) -> None:
    server.answer("GET", RESULT, failed(reason, reason="ordered twice"))
    result = ask("workflow", "result", "order-1001")
    assert result.exit_code == 1
    assert f"workflow_{reason}: ordered twice" in result.stderr


def test_without_waiting_an_open_workflow_is_exit_code_124(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RESULT, outcome(wait_timed_out=False))
    result = ask("workflow", "result", "order-1001", "--no-wait")
    assert result.exit_code == 124
    assert "workflow_not_closed: order-1001 is running." in result.stderr
    assert "penstock workflow debug order-1001" in result.stderr
    assert server.only_request.query == {"wait_seconds": "0"}


def test_a_wait_that_ends_before_the_workflow_does_is_exit_code_124(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RESULT, outcome())
    result = ask("workflow", "result", "order-1001", "--timeout", "1s")
    assert result.exit_code == 124
    assert server.requests[0].query == {"wait_seconds": "1"}


def test_a_named_run_that_continued_points_to_the_whole(ask: Run, server: RecordedServer) -> None:
    path = "/workflows/order-1001/runs/01RUN/result"
    continued = outcome(status="completed", is_terminal=True, closed_reason="continued", wait_timed_out=False)
    server.answer("GET", path, continued)
    result = ask("workflow", "result", "order-1001", "--run", "01RUN")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "`penstock workflow result order-1001`" in result.stderr


def test_the_wait_outlives_a_restart_of_the_server(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RESULT, outcome())
    server.drop("GET", RESULT)
    server.answer("GET", RESULT, done(1))
    result = ask("workflow", "result", "order-1001")
    assert result.exit_code == 0
    assert result.stdout == "1\n"
    assert "The server answers again." in result.stderr


def test_no_wait_with_a_timeout_is_a_usage_error(ask: Run, server: RecordedServer) -> None:
    assert ask("workflow", "result", "x", "--no-wait", "--timeout", "5s").exit_code == 2
    assert server.requests == []
