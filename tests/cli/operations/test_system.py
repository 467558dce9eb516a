"""Search attributes and the duties of the server at the command line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.recorded_server import RecordedServer, Run


def test_search_attributes_are_listed_with_whose_they_are(ask: Run, server: RecordedServer) -> None:
    answer = {"system_attributes": {"Status": "keyword"}, "custom_attributes": {"customer": "keyword"}}
    server.answer("GET", "/search-attributes", answer)
    lines = ask("search-attribute", "list").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["Status", "keyword", "server"],
        ["customer", "keyword", "namespace"],
    ]


def test_a_namespace_without_search_attributes_is_told_how_to_create_one(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/search-attributes", {"system_attributes": {}, "custom_attributes": {}})
    assert "penstock search-attribute create" in ask("search-attribute", "list").stderr


def test_a_search_attribute_is_created_and_deleted(ask: Run, server: RecordedServer) -> None:
    created = {"name": "customer", "type": "keyword", "outcome": "created"}
    server.answer("POST", "/search-attributes", created, status=201)
    server.answer("DELETE", "/search-attributes/customer", {"name": "customer", "outcome": "deleted"})
    assert ask("search-attribute:create", "customer", "--type", "keyword").exit_code == 0
    assert server.requests[0].body == {"name": "customer", "type": "keyword"}
    assert ask("search-attribute", "delete", "customer").exit_code == 2
    assert ask("search-attribute", "delete", "customer", "--yes").exit_code == 0
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reason", "status", "advice"),
    [
        ("attribute_already_exists", 409, "search-attribute delete"),
        ("name_reserved", 409, "Choose another name"),
        ("search_attribute_limit_reached", 422, "Delete one"),
    ],
)
def test_a_refused_search_attribute_says_what_to_do_next(
    ask: Run, server: RecordedServer, reason: str, status: int, advice: str
) -> None:
    server.answer("POST", "/search-attributes", {"message": "No.", "reason": reason}, status=status)
    result = ask("search-attribute", "create", "customer", "--type", "int")
    assert result.exit_code == 1
    assert advice in result.stderr


RETENTION = {
    "namespace": "default",
    "retention_days": 30,
    "cutoff": "2026-04-22T10:00:00Z",
    "expired_run_count": 1,
    "expired_run_ids": ["01RUN"],
    "scan_limit": 100,
    "scan_pressure": False,
}
REPAIR = {
    "policy": {},
    "candidates": {
        "existing_task_candidates": 0,
        "missing_task_candidates": 1,
        "total_candidates": 1,
        "scan_limit": 100,
    },
}
TIMEOUTS = {"expired_count": 1, "expired_execution_ids": ["a1"], "scan_limit": 100, "scan_pressure": True}


@pytest.mark.parametrize(
    ("verb", "answer", "said"),
    [("retention", RETENTION, "01RUN"), ("repair", REPAIR, "1"), ("activity-timeouts", TIMEOUTS, "a1")],
)
def test_a_duty_shows_what_is_due_and_how_to_have_it_done(
    ask: Run, server: RecordedServer, verb: str, answer: dict[str, Any], said: str
) -> None:
    server.answer("GET", f"/system/{verb}", answer)
    result = ask("system", verb)
    assert result.exit_code == 0, result.output
    assert said in result.stdout
    assert f"`penstock system {verb} --run`" in result.stderr


def test_a_duty_with_nothing_due_says_so(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/system/retention", RETENTION | {"expired_run_count": 0, "expired_run_ids": []})
    assert "Nothing is due." in ask("system", "retention").stderr


def test_a_pass_tells_what_came_of_each(ask: Run, server: RecordedServer) -> None:
    results = [{"run_id": "01RUN", "outcome": "pruned"}, {"run_id": "02RUN", "outcome": "skipped"}]
    answer = {"processed": 2, "pruned": 1, "skipped": 1, "failed": 0, "results": results}
    server.answer("POST", "/system/retention/pass", answer)
    result = ask("system", "retention", "--run", "--limit", "10")
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {"limit": 10}
    assert [line.split()[:2] for line in result.stdout.splitlines()[-2:]] == [
        ["01RUN", "pruned"],
        ["02RUN", "skipped"],
    ]


def test_a_pass_that_was_not_wholly_done_is_exit_code_1(ask: Run, server: RecordedServer) -> None:
    results = [{"execution_id": "a1", "outcome": "error", "reason": "busy"}]
    answer = {"processed": 1, "enforced": 0, "skipped": 0, "failed": 1, "results": results}
    server.answer("POST", "/system/activity-timeouts/pass", answer, status=207)
    result = ask("system", "activity-timeouts", "--run")
    assert result.exit_code == 1
    assert "busy" in result.stdout
    assert "pass_incomplete" in result.stderr


def test_repair_can_be_pointed_at_one_workflow(ask: Run, server: RecordedServer) -> None:
    server.answer(
        "POST", "/system/repair/pass", {"selected_total_candidates": 1, "repaired_missing_tasks": 1}
    )
    result = ask("system", "repair", "--run", "--workflow", "order-1001", "--run-id", "01RUN")
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {"instance_id": "order-1001", "run_ids": ["01RUN"]}
    assert ask("system", "repair", "--workflow", "order-1001").exit_code == 2


def test_the_metrics_are_shown_group_by_group(ask: Run, server: RecordedServer) -> None:
    answer = {"operator_metrics": {"generated_at": "x", "runs": {"running": 3, "repair_needed": 0}}}
    server.answer("GET", "/system/operator-metrics", answer)
    output = ask("system", "metrics").stdout
    assert "runs\n" in output
    assert "repair needed  0" in output
