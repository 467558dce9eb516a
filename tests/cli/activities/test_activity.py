"""Standalone activities at the command line."""

from __future__ import annotations

import json

import pytest

from penstock.wire.payloads import encode
from tests.cli.recorded_server import RecordedServer, Run

RUNNING = {
    "activity_id": "render-1",
    "activity_type": "reports.render",
    "task_queue": "reports",
    "status": "running",
    "attempt_count": 1,
    "result": None,
}
DONE = RUNNING | {"status": "completed", "result": encode({"pages": 3}).envelope()}
RESULT_PATH = "/activities/render-1/result"
OPEN = {"activity_id": "render-1", "status": "running", "is_terminal": False, "result": None, "failure": None}
RESULT = OPEN | {"status": "completed", "is_terminal": True, "result_envelope": DONE["result"]}


def test_a_start_sends_timeouts_and_retry_policy(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/activities", RUNNING, status=201)
    result = ask(
        *["activity", "start", "--type", "reports.render", "--task-queue", "reports", "--id", "render-1"],
        *["--input", '["2026-04"]', "--max-attempts", "5", "--backoff", "1", "--backoff", "1m"],
        *["--non-retryable", "ValueError", "--start-to-close", "2m", "--schedule-to-start", "30"],
        *["--schedule-to-close", "1h", "--heartbeat", "10s", "--business-key", "b"],
    )
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {
        "activity_type": "reports.render",
        "task_queue": "reports",
        "activity_id": "render-1",
        "id_reuse_policy": "allow_duplicate",
        "input": ["2026-04"],
        "business_key": "b",
        "retry_policy": {
            "max_attempts": 5,
            "backoff_seconds": [1, 60],
            "non_retryable_error_types": ["ValueError"],
        },
        "start_to_close_timeout_seconds": 120,
        "schedule_to_start_timeout_seconds": 30,
        "schedule_to_close_timeout_seconds": 3600,
        "heartbeat_timeout_seconds": 10,
    }


def test_a_start_says_where_the_activity_stands(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/activities", RUNNING, status=201)
    result = ask(
        *["activity", "start", "--type", "reports.render", "-t", "reports", "--activity-id", "render-1"],
        *["--priority-key", "5", "--fairness-key", "acme", "--fairness-weight", "0.5"],
    )
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {
        "activity_type": "reports.render",
        "task_queue": "reports",
        "activity_id": "render-1",
        "id_reuse_policy": "allow_duplicate",
        "input": [],
        "priority_key": 5,
        "fairness_key": "acme",
        "fairness_weight": 0.5,
    }


def test_a_result_is_waited_for_and_opened(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", RESULT_PATH, OPEN)
    server.answer("GET", RESULT_PATH, RESULT)
    result = ask("activity", "result", "render-1")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"pages": 3}


def test_without_waiting_a_running_activity_has_no_result(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/activities/render-1", RUNNING)
    result = ask("activity", "result", "render-1", "--no-wait")
    assert result.exit_code == 124
    assert "activity_not_closed" in result.stderr


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        ({"exception_type": "CardDeclined", "message": "card declined"}, ": CardDeclined: card declined"),
        (
            {"exception_type": "TimeoutError", "timeout_kind": "start_to_close", "message": "Too long."},
            ": start_to_close: Too long.",
        ),
        ({"event_type": "WorkflowCancelled", "reason": "wrong month"}, ": wrong month"),
        (None, "."),
    ],
)
@pytest.mark.parametrize(("count", "attempts"), [(1, "1 attempt"), (3, "3 attempts")])
def test_an_activity_that_did_not_complete_is_exit_code_1_and_says_what_ended_it(
    ask: Run, server: RecordedServer, failure: object, cause: str, count: int, attempts: str
) -> None:
    server.answer("GET", RESULT_PATH, OPEN | {"status": "failed", "is_terminal": True, "failure": failure})
    closed = {"status": "failed", "closed_reason": "timed_out", "attempt_count": count}
    server.answer("GET", "/activities/render-1", RUNNING | closed)
    result = ask("activity", "result", "render-1", "--namespace", "reports")
    assert result.exit_code == 1
    assert result.stdout == ""
    said = f"activity_timed_out: render-1 ended as timed_out after {attempts}{cause} →"
    assert said in result.stderr
    assert "`penstock activity describe render-1 --namespace reports`" in result.stderr


def test_with_json_what_ended_an_activity_is_data(ask: Run, server: RecordedServer) -> None:
    failed = OPEN | {"status": "failed", "is_terminal": True, "failure": {"message": "card declined"}}
    server.answer("GET", RESULT_PATH, failed)
    server.answer("GET", "/activities/render-1", RUNNING | {"status": "failed"})
    result = ask("activity", "result", "render-1", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == failed


def test_start_and_wait_prints_the_result(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/activities", RUNNING, status=201)
    server.answer("GET", RESULT_PATH, RESULT)
    result = ask("activity", "start", "--type", "t", "--task-queue", "q", "--wait")
    assert json.loads(result.stdout) == {"pages": 3}


def test_a_cancel_goes_to_the_activity_and_never_to_a_workflow_of_that_id(
    ask: Run, server: RecordedServer
) -> None:
    body = {"activity_id": "render-1", "outcome": "cancelled"}
    server.answer("POST", "/activities/render-1/cancel", body)
    assert ask("activity", "cancel", "render-1", "--reason", "wrong month").exit_code == 0
    assert server.only_request.body == {"reason": "wrong month"}


def test_activities_are_listed_and_described(ask: Run, server: RecordedServer) -> None:
    server.answer(
        "GET", "/activities", {"activities": [RUNNING], "activity_count": 1, "next_page_token": None}
    )
    server.answer("GET", "/activities/render-1", DONE)
    assert "reports.render" in ask("activity", "list", "--status", "running").stdout
    assert server.requests[0].query == {"status": "running", "page_size": "50"}
    assert '{"pages": 3}' in ask("activity", "describe", "render-1").stdout


def test_an_empty_list_says_what_to_do_next(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/activities", {"activities": [], "next_page_token": None})
    assert "penstock activity start" in ask("activity", "list").stderr
