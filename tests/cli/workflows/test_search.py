"""Finding workflows, and diagnosing one, at the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run

QUERY = "WorkflowType = 'orders' AND StartTime > '24h ago'"


def test_a_query_is_sent_as_it_was_typed(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows", {"workflows": [bodies.workflow()], "next_page_token": None})
    assert ask("workflow", "list", "--query", QUERY).exit_code == 0
    assert server.only_request.query["query"] == QUERY


def test_a_query_that_finds_nothing_says_so(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows", {"workflows": [], "next_page_token": None})
    result = ask("workflow", "list", "--query", QUERY)
    assert result.exit_code == 0
    assert "Nothing fits" in result.stderr
    assert "start" not in result.stderr


def test_all_rows_are_read_over_short_and_empty_pages(ask: Run, server: RecordedServer) -> None:
    for number, rows in enumerate([["w0"], [], ["w1", "w2"], []]):
        page = [bodies.workflow(workflow_id=each) for each in rows]
        token = f"t{number}" if number < 3 else None
        server.answer("GET", "/workflows", {"workflows": page, "next_page_token": token})
    result = ask("workflow", "list", "--all", "--json")
    assert [row["workflow_id"] for row in json.loads(result.stdout)["workflows"]] == ["w0", "w1", "w2"]
    assert {request.query["page_size"] for request in server.requests} == {"200"}


def test_a_bad_query_points_at_the_mistake_and_shows_a_good_one(ask: Run, server: RecordedServer) -> None:
    body = {"message": "At position 14: expected a value.", "reason": "invalid_query"}
    server.answer("GET", "/workflows", body, status=422)
    result = ask("workflow", "list", "--query", "WorkflowType =")
    assert result.exit_code == 1
    assert "invalid_query: At position 14: expected a value." in result.stderr
    assert "--query \"WorkflowType = 'orders'" in result.stderr


def test_a_count_is_a_number(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/count", {"count": 1234, "complete": True})
    result = ask("workflow", "count", "--query", QUERY, "--type", "t")
    assert result.stdout == "1234\n"
    assert server.only_request.query == {"query": QUERY, "workflow_type": "t"}


def test_counts_come_apart_by_status(ask: Run, server: RecordedServer) -> None:
    answer = {"count": 5, "complete": True, "groups": {"running": 2, "failed": 3}}
    server.answer("GET", "/workflows/count", answer)
    lines = ask("workflow", "count", "--group-by", "status").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [["running", "2"], ["failed", "3"]]


def test_a_count_that_was_given_up_is_a_lower_bound(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/count", {"count": 10000, "complete": False})
    result = ask("workflow", "count")
    assert "At least 10000" in result.stderr


DEBUG: dict[str, Any] = {
    "workflow_id": "order-1001",
    "run_id": "01RUN",
    "diagnostic_status": "needs_attention",
    "execution": {
        "status": "running",
        "workflow_type": "orders.fulfillment",
        "task_queue": "orders",
        "wait_reason": "Waiting for activity payments.capture",
        "started_at": "2026-04-22T10:00:00Z",
        "last_event": {"sequence": 7, "event_type": "ActivityScheduled", "timestamp": "2026-04-22T10:00:01Z"},
        "open_activities": 1,
        "open_timers": 0,
        "blocked": {"message": "The code differs.", "sequence": 3, "recorded": "a", "yielded": "b"},
    },
    "findings": [
        {"severity": "error", "code": "workflow_replay_blocked", "message": "Replay is blocked."},
        {"severity": "warning", "code": "no_active_pollers", "message": "Nobody polls orders."},
    ],
    "pending_workflow_tasks": [
        {"task_id": "t1", "task_type": "workflow", "status": "delayed", "last_error": "boom\nagain"}
    ],
    "pending_activities": [
        {
            "activity_execution_id": "a1",
            "activity_type": "payments.capture",
            "status": "running",
            "queue": "payments",
            "attempt_count": 2,
            "current_attempt": {"lease_owner": "w1"},
        }
    ],
    "recent_failures": [
        {"source_kind": "activity", "source_id": "a0", "exception_class": "CardDeclined", "message": "no"}
    ],
}


def test_a_diagnosis_tells_what_is_wrong_and_what_to_do(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001/debug", DEBUG)
    result = ask("workflow", "debug", "order-1001")
    assert result.exit_code == 0, result.output
    for said in (
        "needs_attention",
        "1 activity",
        "the code does not fit the history at step 3",
        "it then continues by itself",
        "error: Replay is blocked.",
        "Start workers whose code fits the history",
        "warning: Nobody polls orders.",
        "Start a worker for the task queue.",
        "  boom\n  again\n",
        "payments.capture",
        "w1",
        "  CardDeclined: no",
    ):
        assert said in result.stdout
    assert "`penstock why order-1001`" in result.stderr


def test_one_run_can_be_diagnosed_with_its_last_payload(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001/runs/01RUN/debug", DEBUG | {"diagnostic_status": "terminal"})
    result = ask("workflow", "debug", "order-1001", "--run", "01RUN", "--last-payload")
    assert result.exit_code == 0
    assert server.only_request.query == {"include_last_event_payload": "true"}
    assert "`penstock workflow history order-1001 --run 01RUN`" in result.stderr


def test_a_diagnosis_as_json_is_only_json(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001/debug", DEBUG)
    result = ask("workflow", "debug", "order-1001", "--json")
    assert json.loads(result.stdout) == DEBUG
    assert result.stderr == ""


def test_a_description_warns_of_limits_and_names_the_family(ask: Run, server: RecordedServer) -> None:
    warning = {
        "limit_kind": "history_event_count",
        "current_value": 41000,
        "configured_limit": 50000,
        "percent": 82,
        "advice": "Continue as new.",
    }
    described = bodies.workflow(
        warnings=[warning],
        parent={"workflow_id": "cart-1", "run_id": "01PARENT"},
        continued_from_run_id="00RUN",
        pending={"timers": 1},
    )
    server.answer("GET", "/workflows/order-1001", described)
    result = ask("workflow", "describe", "order-1001")
    assert "warning: history event count is at 41000 of 50000. Continue as new." in result.stderr
    for said in ("cart-1 (run 01PARENT)", "00RUN", "1 timer"):
        assert said in result.stdout


@pytest.mark.parametrize(
    ("verb", "outcome", "said"),
    [
        ("repair", "repair_dispatched", "was given a workflow task"),
        ("repair", "repair_not_needed", "penstock workflow debug order-1001"),
        ("redrive", "redriven", "order-1001 continues in a new run"),
        ("archive", "archived", "Archived order-1001."),
        ("archive", "archive_not_needed", "was archived before"),
    ],
)
def test_upkeep_tells_what_came_of_it(
    ask: Run, server: RecordedServer, verb: str, outcome: str, said: str
) -> None:
    answer = {"workflow_id": "order-1001", "run_id": "01RUN", "outcome": outcome}
    server.answer("POST", f"/workflows/order-1001/{verb}", answer)
    result = ask("workflow", verb, "order-1001")
    assert result.exit_code == 0, result.output
    assert outcome in result.stdout
    assert said in result.stderr


@pytest.mark.parametrize("verb", ["repair", "redrive", "archive"])
def test_one_run_can_be_looked_after(ask: Run, server: RecordedServer, verb: str) -> None:
    server.answer("POST", f"/workflows/order-1001/runs/01RUN/{verb}", {"outcome": "archived"})
    assert ask("workflow", verb, "order-1001", "--run", "01RUN").exit_code == 0


def test_an_open_workflow_is_not_archived(ask: Run, server: RecordedServer) -> None:
    body = {"message": "It is open.", "reason": "run_not_closed"}
    server.answer("POST", "/workflows/order-1001/archive", body, status=409)
    result = ask("workflow", "archive", "order-1001", "--reason", "audit")
    assert result.exit_code == 1
    assert "penstock workflow cancel" in result.stderr
