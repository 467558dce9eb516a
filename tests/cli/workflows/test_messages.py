"""Signals, updates and starts with a signal at the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.wire.payloads import encode
from tests.cli.recorded_server import RecordedServer, Run

SIGNALLED = {
    "workflow_id": "order-1001",
    "run_id": "01RUN",
    "signal_name": "approve",
    "outcome": "signal_received",
    "command_status": "accepted",
    "request_id": "r1",
}
UPDATED = {
    "workflow_id": "order-1001",
    "run_id": "01RUN",
    "update_name": "set_address",
    "update_id": "u1",
    "update_status": "accepted",
    "outcome": None,
    "wait_timed_out": False,
    "request_id": "r1",
}
UPDATE = "/workflows/order-1001/update/set_address"


def completed(result: object) -> dict[str, Any]:
    return UPDATED | {
        "update_status": "completed",
        "outcome": "update_completed",
        "result_envelope": encode(result).envelope(),
    }


def test_a_signal_sends_its_arguments_under_a_request_id(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/order-1001/signal/approve", SIGNALLED, status=202)
    result = ask("workflow", "signal", "order-1001", "approve", "--input", '"Ada"', "--request-id", "r1")
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {"input": ["Ada"], "request_id": "r1"}
    assert "signal_received" in result.stdout
    assert "penstock workflow history order-1001" in result.stderr


def test_each_signal_gets_a_request_id_of_its_own(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/order-1001/runs/01RUN/signal/approve", SIGNALLED, status=202)
    for _ in range(2):
        assert ask("workflow", "signal", "order-1001", "approve", "--run", "01RUN").exit_code == 0
    first, second = [request.body["request_id"] for request in server.requests]
    assert first != second
    assert first.startswith("cli-signal-")


def test_a_signal_sent_before_says_that_it_was_not_sent_again(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/order-1001/signal/approve", SIGNALLED | {"retained": True}, status=202)
    result = ask("workflow", "signal", "order-1001", "approve", "--request-id", "r1")
    assert "was not sent again" in result.stderr


def test_a_signal_whose_answer_was_lost_can_be_repeated(ask: Run, server: RecordedServer) -> None:
    server.drop("POST", "/workflows/order-1001/signal/approve")
    result = ask("workflow", "signal", "order-1001", "approve", "--request-id", "r1")
    assert result.exit_code == 3
    assert "With --request-id r1 it is carried out only once." in result.stderr


@pytest.mark.parametrize(
    ("reason", "status", "advice"),
    [
        ("run_not_active", 409, "penstock workflow history"),
        ("unknown_signal", 404, "Check the name"),
        ("request_id_conflict", 409, "Leave out --request-id"),
        ("invalid_signal_arguments", 422, "--input"),
    ],
)
def test_a_refused_signal_says_what_to_do_next(
    ask: Run, server: RecordedServer, reason: str, status: int, advice: str
) -> None:
    body = {"message": "No.", "reason": reason}
    server.answer("POST", "/workflows/order-1001/signal/approve", body, status=status)
    result = ask("workflow", "signal", "order-1001", "approve")
    assert result.exit_code == 1
    assert f"{reason}: No." in result.stderr
    assert advice in result.stderr


def test_an_update_waits_for_its_end_and_prints_what_the_code_answers(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("POST", UPDATE, completed({"ok": True}))
    result = ask("workflow", "update", "order-1001", "set_address", "--input", '"x"', "--request-id", "r1")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"ok": True}
    assert server.only_request.body == {
        "input": ["x"],
        "request_id": "r1",
        "wait_for": "completed",
        "wait_timeout_seconds": 30,
    }


def test_an_update_can_be_left_when_it_is_accepted(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/order-1001/runs/01RUN/update/set_address", UPDATED, status=202)
    result = ask(
        *["workflow", "update", "order-1001", "set_address", "--run", "01RUN"],
        *["--wait", "accepted", "--timeout", "2m"],
    )
    assert result.exit_code == 0, result.output
    assert "u1" in result.stdout
    assert server.only_request.body["wait_for"] == "accepted"
    assert server.only_request.body["wait_timeout_seconds"] == 120


def test_an_update_that_is_not_completed_in_time_is_exit_code_124_and_says_how_to_go_on(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("POST", UPDATE, UPDATED | {"wait_timed_out": True, "wait_timeout_seconds": 5}, status=202)
    result = ask("workflow", "update", "order-1001", "set_address", "--timeout", "5s", "--request-id", "r1")
    assert result.exit_code == 124
    assert "`penstock workflow update order-1001 set_address --request-id r1`" in result.stderr


def test_an_update_whose_handler_failed_is_exit_code_1_with_its_words(
    ask: Run, server: RecordedServer
) -> None:
    body = {
        "update_status": "failed",
        "outcome": "update_failed",
        "failure_message": "no such street",
        "reason": None,
    }
    server.answer("POST", UPDATE, UPDATED | body, status=422)
    result = ask("workflow", "update", "order-1001", "set_address")
    assert result.exit_code == 1
    assert "update_failed: no such street" in result.stderr


def test_an_update_that_its_validator_rejects_lists_what_is_wrong(ask: Run, server: RecordedServer) -> None:
    body = {
        "message": "The validator said no.",
        "reason": "update_validator_rejected",
        "validation_errors": {"address": ["is empty"]},
    }
    server.answer("POST", UPDATE, body, status=422)
    result = ask("workflow", "update", "order-1001", "set_address")
    assert result.exit_code == 1
    assert "Nothing was changed" in result.stderr
    assert "  address: is empty" in result.stderr


def test_a_start_with_a_signal_is_one_request(ask: Run, server: RecordedServer) -> None:
    started = {"workflow_id": "order-1001", "run_id": "01RUN", "outcome": "started_new"}
    answer = started | {"signal_name": "approve", "command_id": "c1"}
    server.answer("POST", "/workflows/signal-with-start", answer, status=201)
    result = ask(
        *["workflow", "start", "--type", "t", "--id", "order-1001", "--input", "1"],
        *["--signal", "approve", "--signal-input", '"Ada"'],
    )
    assert result.exit_code == 0, result.output
    body = server.only_request.body
    assert body.pop("signal_request_id").startswith("cli-signal-")
    assert body == {
        "workflow_type": "t",
        "workflow_id": "order-1001",
        "id_reuse_policy": "allow_duplicate",
        "input": [1],
        "signal_name": "approve",
        "signal_input": ["Ada"],
        "deliver_cancel": True,
    }
    assert "approve" in result.stdout


@pytest.mark.parametrize(
    "flags",
    [
        ["--signal", "approve"],
        ["--signal-input", "1"],
        ["--id", "x", "--signal", "approve", "--duplicate-policy", "fail"],
    ],
)
def test_a_start_with_half_a_signal_is_a_usage_error(
    ask: Run, server: RecordedServer, flags: list[str]
) -> None:
    assert ask("workflow", "start", "--type", "t", *flags).exit_code == 2
    assert server.requests == []
