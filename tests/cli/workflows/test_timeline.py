"""The timeline of a run, at the command line."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.recorded_server import RecordedServer, Run

TIMELINE: dict[str, Any] = {
    "workflow_id": "order-1",
    "run_id": "01J",
    "status": "waiting",
    "as_of": "2026-01-01T00:00:10.000Z",
    "started_at": "2026-01-01T00:00:00.000Z",
    "closed_at": None,
    "length_ms": 10_000,
    "complete": True,
    "lane_count": 2,
    "next_after_step": None,
    "time_spent": {
        "total_ms": 10_000,
        "held_back_ms": 2_500,
        "running_ms": 5_000,
        "by_design_ms": 2_500,
        "waits": {"cap": 2_500, "backoff": 2_500},
    },
    "lanes": [
        {
            "kind": "activity",
            "label": "charge",
            "type": "charge",
            "step": 1,
            "is_open": True,
            "ticks": [{"at": 2_500, "label": "attempt 1 failed", "event": 4}],
            "spans": [
                {"from": 0, "to": 2_500, "state": "running", "outcome": "failed"},
                {"from": 2_500, "to": 5_000, "state": "waiting", "cause": "backoff", "by_design": True},
                {"from": 5_000, "to": 7_500, "state": "waiting", "cause": "cap"},
                {"from": 7_500, "to": 10_000, "state": "running", "attempt": 2},
            ],
        },
        {
            "kind": "activity",
            "label": "compose × 12,304, p50 40 ms, 3 failed",
            "type": "compose",
            "folded": 12_304,
            "spans": [{"from": 0, "to": 10_000, "state": "running"}],
        },
    ],
}


def test_waiting_and_running_are_told_apart_and_the_cause_is_named(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1/timeline", TIMELINE)
    result = ask("workflow", "timeline", "order-1")
    assert result.exit_code == 0, result.output
    [line] = [each for each in result.stdout.splitlines() if each.startswith("charge")]
    assert f"{'X' * 12}|{'·' * 11}{'▒' * 12}{'█' * 12}" in line
    assert "waited 2.500 s (cap)" in line
    assert "cap 2.500 s, backoff 2.500 s" in result.stdout
    assert "compose × 12,304, p50 40 ms, 3 fail" in result.stdout


def test_json_is_what_the_server_answered(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1/runs/01J/timeline", TIMELINE)
    result = ask("workflow", "timeline", "order-1", "--run", "01J", "--type", "charge", "--json")
    assert json.loads(result.stdout) == TIMELINE
    assert server.only_request.query == {"type": "charge"}


def test_a_folded_type_is_opened_page_by_page(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1/timeline", TIMELINE | {"next_after_step": 400})
    result = ask("workflow", "timeline", "order-1", "--type", "compose")
    assert "penstock workflow timeline order-1 --type compose --after-step 400" in result.stderr
    assert ask("workflow", "timeline", "order-1", "--after-step", "3").exit_code == 2
