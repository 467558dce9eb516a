"""Why something waits, at the command line."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.recorded_server import RecordedServer, Run

WAITS: dict[str, Any] = {
    "namespace": "default",
    "workflow_id": "charge-42",
    "run_id": "01J",
    "status": "pending",
    "task": {
        "task_id": "01J-1",
        "task_queue": "payments",
        "task_queue_type": "activity",
        "type": "Charge",
        "state": "ready",
    },
    "summary": "charge-42 waits: the task queue payments leases 5 of at most 5 tasks.",
    "waits": True,
    "binding": {
        "kind": "active_leases",
        "scope": "queue:default/payments/activity",
        "message": "the task queue payments leases 5 of at most 5 tasks",
        "is_closed": True,
        "max": 5,
        "used": 5,
        "opens_at": None,
        "frees": [
            {"action": "end_leases", "text": "let 1 lease of the task queue payments end", "count": 1},
            {"action": "raise", "text": "raise the limit of the task queue payments to 6 or more", "to": 6},
        ],
        "holders": [
            {
                "task_id": "01H-1",
                "workflow_id": "charge-7",
                "task_queue": "payments",
                "worker": "w1",
                "age_seconds": 12,
                "expires_at": "2099-01-01T00:00:00.000Z",
            }
        ],
    },
    "next": [
        {
            "kind": "behind_own_key",
            "scope": None,
            "message": "2 tasks of its own key go before it",
            "is_closed": True,
            "frees": [],
            "holders": [],
        }
    ],
    "position": {
        "priority": 3,
        "ahead": 17,
        "ahead_by_priority": [{"priority": 1, "priority_key": 1, "tasks": 4}],
        "ahead_of_other_keys": 11,
        "ahead_by_key": [{"fairness_key": "acme", "tasks": 9}],
        "ahead_of_own_key": 2,
        "is_exact": False,
    },
    "expected_start": {"from": None, "to": None, "unknown_because": "Nothing was dispatched."},
    "activities": [],
    "timers": [],
}
GONE = {"message": "There is none.", "reason": "instance_not_found"}


def test_one_sentence_comes_first_and_its_numbers_follow(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/charge-42/why", WAITS)
    result = ask("why", "charge-42")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == WAITS["summary"]
    for words in (
        "5 of 5",
        "- let 1 lease of the task queue payments end",
        "charge-7",
        "Position: about 17 ahead",
        "key acme",
        "other keys",
        "its own key",
        "behind_own_key",
        "unknown: Nothing was dispatched.",
    ):
        assert words in result.stdout


def test_an_id_is_looked_for_among_workflows_then_activities_then_tasks(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workflows/01J-1/why", GONE, status=404)
    server.answer("GET", "/activities/01J-1/why", GONE | {"reason": "activity_not_found"}, status=404)
    server.answer("GET", "/tasks/01J-1/why", WAITS)
    result = ask("why", "01J-1", "--json")
    assert json.loads(result.stdout) == WAITS
    assert len(server.requests) == 3


def test_an_id_that_nobody_has_says_where_it_was_looked_for(ask: Run, server: RecordedServer) -> None:
    for noun, reason in (("workflows", "instance"), ("activities", "activity"), ("tasks", "task")):
        server.answer("GET", f"/{noun}/nobody/why", GONE | {"reason": f"{reason}_not_found"}, status=404)
    result = ask("why", "nobody")
    assert result.exit_code == 1
    assert "There is no workflow, activity or task 'nobody'." in result.stderr


def test_another_refusal_ends_the_search(ask: Run, server: RecordedServer) -> None:
    missing = {"message": "There is no namespace.", "reason": "namespace_not_found"}
    server.answer("GET", "/workflows/charge-42/why", missing, status=404)
    result = ask("why", "charge-42")
    assert result.exit_code == 1
    assert "namespace_not_found" in result.stderr
    assert len(server.requests) == 1


def test_a_run_that_waits_for_activities_tells_why_each_of_them_waits(
    ask: Run, server: RecordedServer
) -> None:
    part = WAITS | {"activity_id": "01J-a1", "activity_type": "Charge"}
    whole = WAITS | {
        "binding": {"kind": "waiting_for_activity", "frees": []},
        "activities": [part],
        "next": [],
        "position": None,
        "expected_start": {"from": "2099-01-01T00:00:00Z", "to": None, "unknown_because": None},
    }
    server.answer("GET", "/workflows/order-1/why", whole)
    shown = ask("why", "order-1").stdout
    assert "Its open activities" in shown
    assert "01J-a1" in shown
    assert "the latest is unknown" in shown


def test_a_range_is_told_from_now_on(ask: Run, server: RecordedServer) -> None:
    when = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:00:09Z", "unknown_because": None}
    server.answer("GET", "/workflows/charge-42/why", WAITS | {"expected_start": when})
    assert "0 ms to 0 ms from now" in ask("why", "charge-42").stdout
