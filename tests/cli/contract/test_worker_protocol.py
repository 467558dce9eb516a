"""A workflow that `dw` starts, works on and reads, against a real server, with the contract's smoke test as model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.contract.program import dw
from tests.support.live import LiveServer


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, live: LiveServer) -> None:
    monkeypatch.setenv("DW_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("DURABLE_WORKFLOW_SERVER_URL", live.url)


def called(role: str, *words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(dw, [*words, "--json", f"--token={role}-secret"], prog_name="dw")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_a_workflow_is_started_worked_on_and_read() -> None:
    called("worker", "worker:register", "cli-1", "--task-queue=orders", "--workflow-type=orders.Checkout")
    started = called(
        "operator",
        "workflow:start",
        "-t",
        "orders.Checkout",
        "-w",
        "chk-1",
        "--task-queue=orders",
        "-i",
        "[42]",
    )
    assert started["namespace"] == "default"
    task = called("worker", "workflow-task:poll", "cli-1", "--task-queue=orders")["task"]
    assert task["workflow_id"] == "chk-1"
    attempt = str(task["workflow_task_attempt"])
    failed = called(
        "worker", "workflow-task:fail", task["task_id"], attempt, "--lease-owner=cli-1", "-m", "mismatch"
    )
    assert failed["namespace"] == "default"
    task = called("worker", "workflow-task:poll", "cli-1", "--task-queue=orders")["task"]
    attempt = str(task["workflow_task_attempt"])
    words = ("--lease-owner=cli-1", '--complete-result={"ok":true}')
    called("worker", "workflow-task:complete", task["task_id"], attempt, *words)
    described = called("operator", "workflow:describe", "chk-1")
    assert described["status"] == "completed"
    assert described["output"] == {"ok": True}
    run = started["run_id"]
    assert called("operator", "workflow:show-run", "chk-1", run)["run_id"] == run
    types = [each["event_type"] for each in called("operator", "workflow:history", "chk-1", run)["events"]]
    assert types[-1] == "WorkflowCompleted"
    assert called("operator", "workflow:list-runs", "chk-1")["runs"][0]["namespace"] == "default"
    assert called("operator", "debug", "workflow", "chk-1")["workflow_id"] == "chk-1"


def test_a_leased_activity_is_completed_and_failed() -> None:
    called("worker", "worker:register", "cli-2", "--task-queue=mail", "--activity-type=send")
    called(
        "operator",
        "activity",
        "start",
        "--type",
        "send",
        "--id",
        "m-1",
        "--task-queue",
        "mail",
        "--max-attempts",
        "2",
    )
    for number, words in enumerate(
        (("activity:fail", "-m", "no route", "-t", "SMTPError"), ("activity:complete", '--input={"sent":1}'))
    ):
        task = leased_activity(f"poll-{number}")
        verb, *rest = words
        called("worker", verb, task["task_id"], task["activity_attempt_id"], "--lease-owner=cli-2", *rest)
    assert called("operator", "activity:describe", "m-1")["status"] == "completed"


def leased_activity(request_id: str) -> Any:
    """The contract has no command that polls for activities."""
    from penstock.cli.transport.session import CliSession

    connection = CliSession(token="worker-secret").connect()
    body = {"worker_id": "cli-2", "task_queue": "mail", "poll_request_id": request_id, "timeout_seconds": 20}
    return connection.post("worker", "activity-tasks", "poll", body=body).body["task"]


def test_exit_codes_of_a_real_server() -> None:
    assert called("operator", "workflow:describe", "no-such", code=5)["reason"] == "instance_not_found"
    assert called("wrong", "workflow:list", code=4)["status_code"] == 401
    called("operator", "workflow:start", "-t", "orders.Checkout", "-w", "twice", "--duplicate-policy=fail")
    again = called(
        "operator",
        "workflow:start",
        "-t",
        "orders.Checkout",
        "-w",
        "twice",
        "--duplicate-policy=fail",
        code=2,
    )
    assert again["status_code"] == 409


def test_a_namespace_is_created_changed_and_deleted() -> None:
    made = called("admin", "namespace:create", "staging", "--description=Staging", "--retention=7")
    assert made["retention_days"] == 7
    assert made["namespace"] == "staging"
    assert called("admin", "namespace:update", "staging", "--retention=14")["retention_days"] == 14
    assert called("admin", "namespace:delete", "staging")["name"] == "staging"
