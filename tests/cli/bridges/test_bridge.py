"""Bridge adapters at the command line, against a real server."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from penstock.cli.contract.program import dw
from tests.cli.recorded_server import Run
from tests.support.live import TOKENS, LiveServer

START = (
    *("bridge", "webhook", "stripe", "--action", "start_workflow", "--idempotency-key", "evt-1"),
    *("--target", '{"workflow_type": "orders", "task_queue": "q"}', "--input", '{"order": 7}'),
)


@pytest.fixture
def penstock(run: Run, live: LiveServer) -> Run:
    around = {
        "DURABLE_WORKFLOW_SERVER_URL": live.url,
        "DURABLE_WORKFLOW_AUTH_TOKEN": TOKENS["DW_OPERATOR_TOKEN"],
    }

    def invoke(*args: str, env: dict[str, str] | None = None) -> Result:
        return run(*args, env=around | (env or {}))

    return invoke


def test_an_event_is_sent_and_its_repetition_is_a_duplicate(penstock: Run) -> None:
    first = json.loads(penstock(*START, "--json").stdout)
    assert (first["outcome"], first["workflow_type"]) == ("accepted", "orders")
    again = penstock(*START)
    assert again.exit_code == 0
    assert "duplicate_start" in again.stdout
    assert first["workflow_id"] in again.stdout


def test_a_rejected_event_is_an_error_with_its_reason(penstock: Run) -> None:
    target = '{"workflow_id": "nowhere", "signal_name": "paid"}'
    words = ("--action", "signal_workflow", "--idempotency-key", "evt-2", "--target", target)
    result = penstock("bridge", "webhook", "stripe", *words)
    assert result.exit_code == 1
    assert "unknown_target" in result.stderr
    result = penstock("bridge", "webhook", "stripe", *words[:-1], '["not an object"]')
    assert result.exit_code == 2


def test_the_contracts_spelling_does_the_same(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_WORKFLOW_SERVER_URL", live.url)
    monkeypatch.setenv("DURABLE_WORKFLOW_AUTH_TOKEN", TOKENS["DW_OPERATOR_TOKEN"])
    line = ["bridge:webhook", *START[2:6], "evt-3", *START[7:9], "-i", '{"order": 7}', "--output", "json"]
    result = CliRunner().invoke(dw, line, prog_name="dw")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["outcome"] == "accepted"


def test_a_server_without_adapters_says_so(penstock: Run) -> None:
    assert "No adapter is declared" in penstock("bridge", "list").stdout
