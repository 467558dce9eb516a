"""What a person and a script see when the server says no."""

from __future__ import annotations

import json

from penstock.cli.output.advice import ADVICE
from penstock.errors import Reason
from tests.cli.recorded_server import TOKEN, RecordedServer, Run


def test_a_refusal_is_one_line_with_reason_message_and_remediation(ask: Run, server: RecordedServer) -> None:
    body = {
        "message": "The namespace orders does not exist.",
        "reason": "namespace_not_found",
        "remediation": "Create it first.",
    }
    server.answer("GET", "/workers", body, status=404)
    result = ask("worker", "list")
    assert result.exit_code == 1
    assert result.stdout == ""
    line = "error: namespace_not_found: The namespace orders does not exist. → Create it first.\n"
    assert result.stderr == line


def test_advice_is_given_where_the_server_gives_none(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workers", {"message": "No.", "reason": "unauthorized"}, status=401)
    result = ask("worker", "list")
    assert "DURABLE_WORKFLOW_AUTH_TOKEN" in result.stderr
    assert TOKEN not in result.output


def test_all_advice_is_for_reasons_that_there_are() -> None:
    assert set(ADVICE) <= {reason.value for reason in Reason}


def test_a_wrong_role_is_told_which_role_is_needed(ask: Run, server: RecordedServer) -> None:
    body = {"message": "No.", "reason": "forbidden", "role": "worker", "allowed_roles": ["operator", "admin"]}
    server.answer("GET", "/workers", body, status=403)
    assert "the role operator or admin; this one is worker" in ask("worker", "list").stderr


def test_every_field_error_gets_its_own_line(ask: Run, server: RecordedServer) -> None:
    errors = {"name": ["must be lower case", "is too long"], "retention_days": ["must be at most 365"]}
    body = {
        "message": "Invalid.",
        "reason": "validation_failed",
        "errors": errors,
        "validation_errors": errors,
    }
    server.answer("POST", "/namespaces", body, status=422)
    result = ask("namespace", "create", "X")
    assert result.stderr.splitlines()[1:] == [
        "  name: must be lower case",
        "  name: is too long",
        "  retention_days: must be at most 365",
    ]


def test_a_field_error_that_the_message_has_said_is_not_repeated(ask: Run, server: RecordedServer) -> None:
    errors = {"query": ["At 1: no such field."]}
    body = {"message": "Bad query. At 1: no such field.", "reason": "invalid_query", "errors": errors}
    server.answer("GET", "/workflows", body, status=422)
    assert len(ask("workflow", "list", "--query", "x =").stderr.splitlines()) == 1


def test_with_json_a_refusal_is_data_too(ask: Run, server: RecordedServer) -> None:
    body = {"message": "No.", "reason": "worker_not_found"}
    server.answer("GET", "/workers/w", body, status=404)
    result = ask("worker", "describe", "w", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == body


def test_a_refusal_without_reason_or_message_is_still_explained(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workers", {}, status=500)
    assert "http_500: The server answered with status 500." in ask("worker", "list").stderr


def test_terminal_escapes_in_a_refusal_are_spelled_out(ask: Run, server: RecordedServer) -> None:
    body = {"message": "\x1b]0;owned\x07", "reason": "\x1b[2J", "errors": {"\x9b31m": ["a\nb"]}}
    server.answer("GET", "/workers", body, status=422)
    result = ask("worker", "list")
    assert "\x1b" not in result.output
    assert "\x9b" not in result.output
    assert "\\x1b[2J: \\x1b]0;owned\\x07" in result.stderr
    assert "\\x9b31m: a\\nb" in result.stderr
