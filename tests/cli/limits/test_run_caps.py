"""Caps on runs at the command line."""

from __future__ import annotations

import pytest

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run

CAP = {
    "scope": "workflow_type",
    "name": "Order",
    "namespace": "prod",
    "version": 3,
    "limits": {
        "max_open_runs": bodies.made(2, "warehouse") | {"ends_at": None},
        "surplus": bodies.made("refuse", None) | {"ends_at": None},
    },
    "counts": {"open_runs": 2, "waiting_runs": 0, "remaining_open_runs": 0},
    "holders": [
        {
            "workflow_id": "order-1",
            "run_id": "r1",
            "workflow_type": "Order",
            "task_queue": "orders",
            "started_at": bodies.later(hours=-1),
        }
    ],
}


@pytest.mark.parametrize(
    ("options", "path", "name"),
    [
        (["--type", "Order"], "workflow_type", {"name": "Order"}),
        (["-t", "orders"], "task_queue", {"name": "orders"}),
        (["--key", "c-7"], "concurrency_key", {"name": "c-7"}),
        (["--each-key"], "each_concurrency_key", {}),
        ([], "namespace", {}),
    ],
)
def test_an_option_names_the_scope(
    ask: Run, server: RecordedServer, options: list[str], path: str, name: dict[str, str]
):
    server.answer("PATCH", f"/run-limits/{path}", CAP)
    done = ask("workflow", "limits", "set", *options, "--max-open-runs", "2", "--for", "2h", "--reason", "x")
    assert done.exit_code == 0, done.stderr
    assert server.only_request.body == {"max_open_runs": 2, "expires_in_seconds": 7200, "reason": "x", **name}
    for shown in ("workflow_type Order", "refuse", "warehouse", "order-1"):
        assert shown in done.stdout


def test_a_setting_is_unset_by_its_name(ask: Run, server: RecordedServer):
    server.answer("PATCH", "/run-limits/namespace", CAP)
    assert ask("workflow", "limits", "set", "--unset", "max-open-runs", "--unset", "surplus").exit_code == 0
    assert server.only_request.body == {"max_open_runs": "default", "surplus": "default"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--type", "A", "--key", "b", "--max-open-runs", "1"], "Name one of"),
        ([], "Name what to change"),
        (["--max-open-runs", "1", "--unset", "max-open-runs"], "cannot both be meant"),
        (["--max-open-runs", "-1"], "--max-open-runs"),
    ],
)
def test_contradictory_options_are_usage_errors(ask: Run, options: list[str], problem: str):
    done = ask("workflow", "limits", "set", *options)
    assert done.exit_code == 2
    assert problem in done.stderr


def test_all_caps_of_a_namespace_are_listed(ask: Run, server: RecordedServer):
    closed = CAP | {"scope": "namespace", "name": None, "limits": {"max_open_runs": bodies.made(0, None)}}
    server.answer("GET", "/run-limits", {"namespace": "prod", "run_limits": [CAP, closed]})
    out = ask("workflow", "limits", "list").stdout
    assert "closed" in out
    assert "Order" in out


def test_a_start_passes_its_unique_key_on_and_says_that_another_run_took_its_input(
    ask: Run, server: RecordedServer
):
    server.answer("POST", "/workflows", {"workflow_id": "w", "run_id": "r", "outcome": "debounced"})
    done = ask("workflow", "start", "--type", "Order", "--unique-key", "k", "--debounce", "5s")
    assert "it took this input" in done.stderr
    assert server.only_request.body["unique_key"] == "k"
    assert server.only_request.body["debounce_seconds"] == 5


def test_a_start_passes_its_concurrency_key_on(ask: Run, server: RecordedServer):
    started = {"workflow_id": "w", "run_id": "r", "status": "pending", "waits_to_start": True}
    server.answer("POST", "/workflows", started)
    done = ask("workflow", "start", "--type", "Order", "--concurrency-key", "c-7")
    assert "It waits to start" in done.stderr
    assert server.only_request.body["concurrency_key"] == "c-7"
