"""What `dw` prints as JSON, how it ends, and what its options send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.contract.session import ContractSession, exit_code_of
from penstock.cli.output.exits import ServerUnreachable, StillOpen
from tests.cli.recorded_server import RecordedServer, Run

LISTED = {
    "workflows": [{"workflow_id": "a"}, {"workflow_id": "b"}],
    "workflow_count": 2,
    "next_page_token": None,
}
PLANE = {"schema": "durable-workflow.v2.control-plane-response", "version": 1, "operation": "cancel"}


def printed(text: str) -> Any:
    return json.loads(text)


def test_json_has_the_namespace_in_the_answer_and_in_its_rows(contract: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows", LISTED)
    body = printed(contract("workflow:list", "--output=json", "--namespace=orders").stdout)
    assert body["namespace"] == "orders"
    assert [row["namespace"] for row in body["workflows"]] == ["orders", "orders"]
    assert server.requests[0].headers["x-namespace"] == "orders"


def test_jsonl_prints_one_row_per_line(contract: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows", LISTED)
    lines = contract("workflow:list", "--output", "jsonl").stdout.splitlines()
    assert [printed(line) for line in lines] == [
        {"workflow_id": "a", "namespace": "default"},
        {"workflow_id": "b", "namespace": "default"},
    ]


def test_jsonl_of_one_object_is_one_line(contract: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workers/w", {"worker_id": "w"})
    assert printed(contract("worker:describe", "w", "--output=jsonl").stdout) == {
        "worker_id": "w",
        "namespace": "default",
    }


def test_a_namespace_is_in_its_own_namespace(contract: Run, server: RecordedServer) -> None:
    server.answer("GET", "/namespaces", {"namespaces": [{"name": "staging", "retention_days": 7}]})
    server.answer("GET", "/namespaces/staging", {"name": "staging", "retention_days": 7})
    assert printed(contract("namespace:list", "--json").stdout)["namespaces"][0]["namespace"] == "staging"
    assert printed(contract("namespace:describe", "staging", "--json").stdout)["namespace"] == "staging"


def test_what_dw_starts_is_cancelled_at_once_as_scripts_expect(contract: Run, server: RecordedServer) -> None:
    """It stayed open with `cancel_requested` until a worker came."""
    server.answer("POST", "/workflows", {"workflow_id": "a"}, 201)
    server.answer("POST", "/schedules/preview", {"next_fire_times": []})
    server.answer("POST", "/schedules", {"schedule_id": "s"}, 201)
    contract("workflow:start", "--type=w")
    contract("schedule:create", "--workflow-type=w", "--cron=@daily")
    started, _, scheduled = (each.body for each in server.requests)
    assert "deliver_cancel" not in started
    assert "deliver_cancel" not in scheduled["action"]


def test_the_facts_of_the_control_plane_are_at_the_top(contract: Run, server: RecordedServer) -> None:
    answer = {"workflow_id": "a", "outcome": "cancelled", "control_plane": PLANE}
    server.answer("POST", "/workflows/a/cancel", answer)
    body = printed(contract("workflow:cancel", "a", "--json").stdout)
    assert body["control_plane_schema"] == PLANE["schema"]
    assert body["control_plane_schema_version"] == 1
    assert body["control_plane_operation"] == "cancel"


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (401, "unauthorized", 4),
        (403, "forbidden", 4),
        (404, "instance_not_found", 5),
        (408, "timeout", 7),
        (409, "duplicate_not_allowed", 2),
        (422, "validation_failed", 2),
        (500, "internal_error", 6),
        (503, "unavailable", 6),
    ],
)
def test_a_refusal_ends_with_the_code_of_its_status(
    contract: Run, server: RecordedServer, status: int, reason: str, code: int
) -> None:
    server.answer("GET", "/workflows/x", {"reason": reason, "message": "No."}, status=status)
    result = contract("workflow:describe", "x", "--json")
    assert result.exit_code == code
    body = printed(result.stdout)
    assert body["server_response"] == {"reason": reason, "message": "No."}
    del body["server_response"]
    assert body == {
        "error": "No.", "exit_code": code, "command": "workflow:describe", "namespace": "default",
        "reason": reason, "status_code": status,
    }  # fmt: skip
    assert reason in result.stderr


def test_validation_errors_are_in_the_envelope(contract: Run, server: RecordedServer) -> None:
    errors = {"workflow_type": ["is required"]}
    server.answer("POST", "/workflows", {"reason": "validation_failed", "errors": errors}, status=422)
    assert printed(contract("workflow:start", "-t", "a", "--json").stdout)["validation_errors"] == errors


def test_no_server_is_code_3_and_usage_code_2(contract: Run) -> None:
    away = contract("workflow:list", "-s", "http://127.0.0.1:9", "--json")
    assert away.exit_code == 3
    assert printed(away.stdout)["reason"] == "server_unreachable"
    assert contract("workflow:list", "--no-such-option").exit_code == 2
    assert contract("workflow:list", "--output=xml").exit_code == 2


def test_an_answer_that_does_not_come_in_time_is_code_7() -> None:
    late = ServerUnreachable("nothing came", "Try again.")
    late.__cause__ = TimeoutError()
    assert exit_code_of(late) == 7
    assert exit_code_of(StillOpen("workflow_not_closed", "It is running.")) == 7


@pytest.mark.parametrize(("given", "verifies"), [("false", False), ("0", False), ("yes", True), (None, True)])
def test_certificates_are_verified_unless_the_caller_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None, verifies: bool
) -> None:
    monkeypatch.setenv("DW_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("DURABLE_WORKFLOW_TLS_VERIFY", raising=False)
    session = ContractSession()
    session.server, session.tls_verify = "https://dw.example.com", given
    session.settle(connects=True)
    assert session.connect().verifies is verifies


def test_people_get_a_table(contract: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows", LISTED)
    assert contract("workflow:list").stdout.startswith("WORKFLOW")


def test_a_start_sends_what_the_contract_spells(contract: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows", {"workflow_id": "chk-42", "outcome": "started_new"})
    words = ("-t", "orders.Checkout", "-w", "chk-42", "-i", '{"order_id":42}', "--search-attr", "env=prod")
    assert contract("workflow:start", *words).exit_code == 0
    sent = server.only_request.body
    assert sent["workflow_type"] == "orders.Checkout"
    assert sent["workflow_id"] == "chk-42"
    assert sent["input"] == [{"order_id": 42}]
    assert sent["search_attributes"] == {"env": "prod"}


@pytest.mark.parametrize(
    ("encoding", "text", "value"),
    [("json", '["a", 1]', ["a", 1]), ("raw", '["a"', ['["a"']), ("base64", "b3BhcXVlLWlk", ["opaque-id"])],
)
def test_input_comes_from_a_file_or_stdin_in_any_encoding(
    contract: Run, server: RecordedServer, tmp_path: Path, encoding: str, text: str, value: object
) -> None:
    server.answer("POST", "/workflows/a/signal/s", {"workflow_id": "a", "outcome": "signal_received"})
    file = tmp_path / "payload"
    file.write_text(text)
    for words in (("--input-file", str(file)), ("--input-file", "-"), ("--input", text)):
        result = contract("workflow:signal", "a", "s", *words, f"--input-encoding={encoding}", stdin=text)
        assert result.exit_code == 0, result.output
    assert [each.body["input"] for each in server.requests] == [value, value, value]


@pytest.mark.parametrize(
    "words",
    [
        ("--input", "{", "--json"),
        ("--input", "1", "--input-file", "x"),
        ("--input-file", "/no/such/file"),
        ("--input", "%%", "--input-encoding", "base64"),
    ],
)
def test_an_input_that_cannot_be_read_is_a_usage_error(
    contract: Run, server: RecordedServer, words: tuple[str, ...]
) -> None:
    assert contract("workflow:signal", "a", "s", *words).exit_code == 2
    assert server.requests == []


def test_options_may_be_words(contract: Run, server: RecordedServer) -> None:
    server.answer("POST", "/search-attributes", {"name": "customer", "type": "keyword", "outcome": "created"})
    server.answer("GET", "/workflows/a/runs/r", {"workflow_id": "a", "run_id": "r"})
    assert contract("search-attribute:create", "customer", "keyword").exit_code == 0
    assert contract("workflow:show-run", "a", "r").exit_code == 0
    assert server.requests[0].body == {"name": "customer", "type": "keyword"}
    missing = contract("search-attribute:create", "customer")
    assert missing.exit_code == 2
    assert "Missing argument" in missing.stderr


def test_scripts_are_not_asked_before_a_deletion(contract: Run, server: RecordedServer) -> None:
    server.answer("DELETE", "/namespaces/staging", {"name": "staging", "status": "deleted"})
    assert contract("namespace:delete", "staging", "--json").exit_code == 0


def test_a_status_and_a_pass_of_a_duty_are_two_commands(contract: Run, server: RecordedServer) -> None:
    server.answer("GET", "/system/activity-timeouts", {"expired_count": 0})
    server.answer("POST", "/system/activity-timeouts/pass", {"processed": 0})
    server.answer("POST", "/system/repair/pass", {})
    assert contract("system:activity-timeout-status", "--json").exit_code == 0
    assert contract("system:activity-timeout-pass", "--execution-id=A", "--execution-id=B").exit_code == 0
    assert contract("system:repair-pass", "--instance-id=w", "--run-id=r").exit_code == 0
    assert [each.body for each in server.requests[1:]] == [
        {"execution_ids": ["A", "B"]},
        {"instance_id": "w", "run_ids": ["r"]},
    ]


def test_an_update_waits_for_acceptance_by_default(contract: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/a/update/approve", {"workflow_id": "a", "update_status": "accepted"})
    assert contract("workflow:update", "a", "approve").exit_code == 0
    assert server.only_request.body["wait_for"] == "accepted"


def test_a_storage_policy_is_sent_as_the_protocol_has_it(contract: Run, server: RecordedServer) -> None:
    server.answer("PUT", "/namespaces/billing/external-storage", {"name": "billing"})
    words = ("s3", "--bucket=dw-payloads", "--auth-profile=ops", "--threshold-bytes=2097152")
    assert contract("namespace:set-storage-driver", "billing", *words).exit_code == 0
    assert server.only_request.body == {
        "driver": "s3",
        "enabled": True,
        "threshold_bytes": 2097152,
        "config": {"bucket": "dw-payloads", "auth_profile": "ops"},
    }


def test_all_that_match_are_cancelled_by_a_batch(contract: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/batch-operations", {"matched": 0, "sample": []})
    result = contract("workflow:cancel", "--all-matching=customer = 'a'", "-t", "it's", "-y", "--json")
    assert result.exit_code == 0, result.output
    assert server.only_request.body["query"] == "(customer = 'a') AND WorkflowType = 'it''s'"


def test_a_description_that_follows_waits_for_the_result(contract: Run, server: RecordedServer) -> None:
    server.answer(
        "GET", "/workflows/a/result", {"workflow_id": "a", "status": "completed", "is_terminal": True}
    )
    result = contract("workflow:describe", "a", "--follow", "--json")
    assert result.exit_code == 0, result.output
    assert printed(result.stdout)["status"] == "completed"


def test_a_schedule_is_created_with_the_flags_of_the_contract(contract: Run, server: RecordedServer) -> None:
    server.answer("POST", "/schedules/preview", {"next_fire_times": [], "in_words": [], "warnings": []})
    server.answer("POST", "/schedules", {"schedule_id": "daily", "outcome": "created"}, status=201)
    line = ("--schedule-id=daily", "--workflow-type=a", "-c", "0 6 * * *", "--interval=PT30M", "-i", "[1]")
    result = contract("schedule:create", *line, "--overlap-policy=skip", "--jitter=60", "--json")
    assert result.exit_code == 0, result.output
    body = server.requests[-1].body
    assert (body["schedule_id"], body["overlap_policy"], body["jitter_seconds"]) == ("daily", "skip", 60)
    assert body["spec"] == {"cron_expressions": ["0 6 * * *"], "intervals": [{"every": "PT30M"}]}
    assert (body["action"]["workflow_type"], body["action"]["input"]) == ("a", [1])
    assert printed(result.stdout)["namespace"] == "default"


def test_the_id_of_a_schedule_is_given_once(contract: Run) -> None:
    result = contract("schedule:create", "a", "--schedule-id=b", "-t", "x", "-c", "@daily")
    assert result.exit_code == 2
    assert "ID and --schedule-id contradict each other" in result.stderr


def test_a_missing_option_is_named_in_the_error_as_json(contract: Run) -> None:
    result = contract("bridge:webhook", "stripe", "--json")
    assert result.exit_code == 2
    assert "Missing option '--action'" in printed(result.stdout)["error"]


def test_a_storage_test_has_the_sizes_that_were_asked_for(contract: Run, server: RecordedServer) -> None:
    server.answer("POST", "/storage/test", {"status": "passed"})
    result = contract("storage:test", "--small-bytes=128", "--large-bytes=3145728", "--json")
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {"small_payload_bytes": 128, "large_payload_bytes": 3145728}
