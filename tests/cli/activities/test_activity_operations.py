"""Pausing, resetting and changing one activity at the command line."""

from __future__ import annotations

import pytest

from tests.cli.recorded_server import RecordedServer, Run

PATH = "/activities/render-1"


@pytest.mark.parametrize(
    ("verb", "outcome", "said"),
    [
        ("pause", "paused", "until it is resumed"),
        ("resume", "not_paused", "was not paused"),
        ("reset", "reset", "all its attempts"),
        ("run-now", "due_now", "is due now"),
    ],
)
def test_an_operation_says_what_came_of_it(
    ask: Run, server: RecordedServer, verb: str, outcome: str, said: str
) -> None:
    server.answer("POST", f"{PATH}/{verb}", {"activity_execution_id": "R-a1", "outcome": outcome})
    result = ask("activity", verb, "render-1", "--reason", "a test")
    assert result.exit_code == 0, result.output
    assert said in result.stderr
    assert server.only_request.body == {"reason": "a test"}


def test_new_options_are_sent_in_milliseconds(ask: Run, server: RecordedServer) -> None:
    server.answer("POST", f"{PATH}/options", {"activity_execution_id": "R-a1", "outcome": "updated"})
    options = ("--start-to-close", "10m", "--max-attempts", "3", "--backoff", "5s", "-t", "other")
    assert ask("activity", "update-options", "render-1", *options).exit_code == 0
    assert server.only_request.body == {
        "task_queue": "other",
        "retry_policy": {"max_attempts": 3, "backoff_seconds": [5]},
        "start_to_close_timeout_ms": 600_000,
    }
    assert ask("activity", "update-options", "render-1", "--backoff", "5s").exit_code == 2
