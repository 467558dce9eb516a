"""Many workflows at once at the command line."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run
from tests.support.patience import PATIENCE_S

PATH = "/workflows/batch-operations"
QUERY = "WorkflowType = 'orders'"


def preview(matched: int) -> dict[str, Any]:
    sample = [bodies.workflow(workflow_id=f"w{number}") for number in range(min(matched, 2))]
    return {"dry_run": True, "matched": matched, "sample": sample}


def portion(acted: int, token: str | None = None, **more: Any) -> dict[str, Any]:
    return {"matched": acted, "acted": acted, "skipped": 0, "failed": 0, "next_token": token} | more


def test_a_dry_run_counts_and_shows_some_and_does_nothing(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", PATH, preview(12))
    result = ask("workflow", "batch", "cancel", "--query", QUERY, "--dry-run")
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {"operation": "cancel", "query": QUERY, "dry_run": True}
    assert "w0" in result.stdout
    assert "Found 12 open workflows; 2 of them are shown. Nothing was done." in result.stderr


def test_a_batch_goes_through_all_portions_and_sums_them(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", PATH, preview(700))
    server.answer("POST", PATH, portion(500, "next"))
    server.answer("POST", PATH, portion(190, skipped=10))
    result = ask("workflow", "batch", "terminate", "--query", QUERY, "--reason", "wild", "--yes")
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == ["Done", "690", "Skipped", "10"]
    first, second = [request.body for request in server.requests[1:]]
    assert first["reason"] == "wild"
    assert "token" not in first
    assert second["token"] == "next"
    assert first["request_id"] == second["request_id"]


def test_without_a_terminal_a_batch_needs_yes_and_sends_nothing(ask: Run, server: RecordedServer) -> None:
    result = ask("workflow", "batch", "cancel", "--query", QUERY)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert server.requests == []


def test_a_batch_that_fits_nothing_does_nothing(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", PATH, preview(0))
    result = ask("workflow", "batch", "cancel", "--query", QUERY, "--yes")
    assert result.exit_code == 0
    assert "nothing was done" in result.stderr
    assert len(server.requests) == 1


def test_a_batch_signal_carries_its_arguments_and_goes_on_where_it_stopped(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("POST", PATH, preview(3))
    server.answer("POST", PATH, portion(3))
    result = ask(
        *["workflow", "batch", "signal", "pause", "--input", '"now"', "--query", QUERY, "--yes"],
        *["--resume", "here", "--request-id", "r1"],
    )
    assert result.exit_code == 0, result.output
    assert server.requests[1].body == {
        "operation": "signal",
        "query": QUERY,
        "signal_name": "pause",
        "input": ["now"],
        "request_id": "r1",
        "token": "here",
    }


def test_what_could_not_be_done_is_listed_and_exit_code_1(ask: Run, server: RecordedServer) -> None:
    failure = {
        "workflow_id": "w7",
        "run_id": "r7",
        "reason": "structural_limit_exceeded",
        "message": "Not now.",
    }
    server.answer("POST", PATH, preview(2))
    server.answer("POST", PATH, portion(1, failed=1, failures=[failure]))
    result = ask("workflow", "batch", "cancel", "--query", QUERY, "--yes")
    assert result.exit_code == 1
    assert "w7" in result.stdout
    assert "batch_incomplete" in result.stderr


def test_a_batch_as_json_is_one_document(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", PATH, preview(2))
    server.answer("POST", PATH, portion(1, "t"))
    server.answer("POST", PATH, portion(1))
    result = ask("workflow", "batch", "cancel", "--query", QUERY, "--yes", "--json")
    assert json.loads(result.stdout) == {
        "operation": "cancel",
        "acted": 2,
        "skipped": 0,
        "failed": 0,
        "cancel_requested": 0,
        "failures": [],
    }


def test_a_batch_tells_apart_what_ended_and_what_was_asked_to_end(ask: Run, server: RecordedServer) -> None:
    for _ in range(2):
        server.answer("POST", PATH, preview(5))
        server.answer("POST", PATH, portion(3, "t", cancel_requested=1))
        server.answer("POST", PATH, portion(2, cancel_requested=2))
    command = ("workflow", "batch", "cancel", "--query", QUERY, "--yes")
    assert ask(*command).stdout.split() == ["Done", "2", "Asked", "to", "end", "3"]
    told = json.loads(ask(*command, "--json").stdout)
    assert (told["acted"], told["cancel_requested"]) == (5, 3)


def test_a_batch_outlives_a_restart_of_the_server(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", PATH, preview(2))
    server.answer("POST", PATH, portion(1, "t"))
    server.drop("POST", PATH)
    server.answer("POST", PATH, portion(1))
    result = ask("workflow", "batch", "cancel", "--query", QUERY, "--yes", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["acted"] == 2


def test_a_batch_that_is_stopped_tells_how_to_go_on(server: RecordedServer) -> None:
    server.answer("POST", PATH, preview(900))
    server.answer("POST", PATH, portion(500, "half"))
    server.drop("POST", PATH)
    program = [sys.executable, "-c", "from penstock.cli import main; main()", "--server", server.url]
    process = subprocess.Popen(
        [*program, "workflow", "batch", "signal", "pause", "--query", QUERY, "--yes", "--request-id", "r1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "Retrying" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "completed actions are kept" in said
    assert "penstock workflow batch signal pause --request-id r1 --input '[]'" in said
    assert "--resume half" in said


@pytest.mark.parametrize(("answer", "code", "requests"), [("y\n", 0, 2), ("n\n", 1, 1)])
def test_on_a_terminal_a_batch_asks_first(
    server: RecordedServer, answer: str, code: int, requests: int
) -> None:
    server.answer("POST", PATH, preview(5))
    server.answer("POST", PATH, portion(5))
    primary, secondary = pty.openpty()
    os.write(primary, answer.encode())
    done = subprocess.run(
        [
            *[sys.executable, "-c", "from penstock.cli import main; main()", "--server", server.url],
            *["workflow", "batch", "cancel", "--query", QUERY],
        ],
        stdin=secondary,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(primary)
    os.close(secondary)
    assert done.returncode == code, done.stderr
    assert "These fit: w0, w1 and 3 more." in done.stderr
    assert "Cancel 5 open workflows?" in done.stderr
    assert len(server.requests) == requests
