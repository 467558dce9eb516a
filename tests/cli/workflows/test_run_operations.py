"""Making runs from others, and deleting them, at the command line."""

from __future__ import annotations

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run

DELETED = {
    "workflow_id": "order-1001",
    "run_id": "01RUN",
    "workflow_type": "order",
    "history_length": 9,
    "outcome": "deleted",
    "is_archived": True,
}


def test_a_rerun_is_asked_for_with_its_reason(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/order-1001/rerun", {"run_id": "02RUN", "outcome": "rerun"})
    result = ask("workflow", "rerun", "order-1001", "--reason", "again")
    assert result.exit_code == 0, result.output
    assert server.only_request.body["reason"] == "again"
    assert "runs again" in result.stderr


def test_a_deletion_is_confirmed_and_tells_of_the_archive(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/order-1001/runs/01RUN/delete", DELETED)
    assert "--yes" in ask("workflow", "delete", "order-1001").stderr
    result = ask("workflow", "delete", "order-1001", "--run", "01RUN", "--reason", "law", "--yes")
    assert result.exit_code == 0, result.output
    assert server.only_request.body == {"reason": "law"}
    assert "the archive keeps its copy" in result.stderr


def test_deletions_are_listed(ask: Run, server: RecordedServer) -> None:
    row = DELETED | {
        "deleted_at": "2026-11-19T20:00:00.000Z",
        "deletion_reason": "law",
        "status": "failed",
        "principal": {"id": "ops"},
    }
    server.answer("GET", "/deletions", {"deletions": [row], "next_page_token": None})
    result = ask("workflow", "deletions", "--id", "order-1001")
    assert result.exit_code == 0, result.output
    assert server.only_request.query["workflow_id"] == "order-1001"
    assert "law" in result.stdout
    assert "ops" in result.stdout


def test_no_deletions_are_told(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/deletions", {"deletions": [], "next_page_token": None})
    assert "No run was deleted" in ask("workflow", "deletions").stderr


def test_a_pause_says_how_to_go_on(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/order-1001/pause", {"run_id": "01RUN", "outcome": "paused"})
    result = ask("workflow", "pause", "order-1001", "--reason", "stock is counted")
    assert result.exit_code == 0, result.output
    assert "penstock workflow resume order-1001" in result.stderr
    server.answer("POST", "/workflows/order-1001/resume", {"run_id": "01RUN", "outcome": "not_paused"})
    assert "was not paused" in ask("workflow", "resume", "order-1001").stderr


def test_a_paused_workflow_is_described_as_such(ask: Run, server: RecordedServer) -> None:
    pause = {"paused_at": "2026-11-19T20:00:00.000Z", "reason": "stock", "principal": {"id": "ops"}}
    server.answer("GET", "/workflows/order-1001", bodies.workflow(pause=pause))
    assert "by ops: stock" in ask("workflow", "describe", "order-1001").stdout


def test_a_reset_and_a_fork_name_their_event(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", "/workflows/order-1001/reset", {"run_id": "02RUN", "outcome": "reset"})
    result = ask("workflow", "reset", "order-1001", "--event", "14", "--reapply", "none")
    assert result.exit_code == 0, result.output
    assert server.requests[-1].body == {"event": 14, "reapply": "none"}
    made = {"workflow_id": "order-2", "run_id": "03RUN", "outcome": "forked", "reused_event_count": 13}
    server.answer("POST", "/workflows/order-1001/fork", made)
    result = ask("workflow", "fork", "order-1001", "--event", "14", "--id", "order-2", "--input", "2")
    assert result.exit_code == 0, result.output
    assert server.requests[-1].body["input"] == [2]
    assert "order-2 goes on from event 14 of order-1001" in result.stderr
