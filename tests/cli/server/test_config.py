"""The commands that check and show limits of admission before a server is started."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.recorded_server import Run

OVERRIDES = "DW_TASK_QUEUE_ADMISSION_OVERRIDES"
OPEN = {"DW_AUTH_DRIVER": "none"}
PAYMENTS = '{"production:payments": {"workflow_tasks": {"max_active_leases": 8}}}'


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DW_")]:
        monkeypatch.delenv(name)


def test_check_names_every_problem_of_the_limits(run: Run) -> None:
    wrong = '{"a": {"workflow_tasks": {"max_active_lease": 1, "max_dispatches_per_minute": -1}}, "b:": {}}'
    result = run("config", "check", env=OPEN | {OVERRIDES: wrong, "DW_DISPATCH_WINDOW": "hour"})
    assert result.exit_code == 78
    assert "4 problems" in result.stderr
    assert (
        f"{OVERRIDES}.a.workflow_tasks.max_active_lease: unknown key; did you mean 'max_active_leases'?"
        in result.stderr
    )


def test_check_warns_of_what_is_closed_and_succeeds(run: Run) -> None:
    result = run(
        "config", "check", "--json", env=OPEN | {"DW_WORKFLOW_TASK_MAX_ACTIVE_LEASES_PER_QUEUE": "0"}
    )
    assert result.exit_code == 0
    (warning,) = json.loads(result.stdout)["warnings"]
    assert "which closes" in warning


def test_a_server_does_not_start_without_the_limits_that_were_meant(run: Run) -> None:
    assert run("server", "start", env=OPEN | {OVERRIDES: "{"}).exit_code == 78


def test_show_lists_each_limit_with_its_path(run: Run) -> None:
    rows = json.loads(run("config", "show", "--json", env=OPEN | {OVERRIDES: PAYMENTS}).stdout)
    assert {
        "name": f'{OVERRIDES}."production:payments".workflow_tasks.max_active_leases',
        "value": "8",
        "source": "environment",
    } in rows


def test_show_of_a_queue_tells_which_limits_hold_and_why(run: Run) -> None:
    settings = OPEN | {OVERRIDES: PAYMENTS, "DW_MAX_ACTIVE_LEASES_PER_CLUSTER": "0"}
    result = run("config", "show", "--queue", "production:payments", env=settings)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[2][:5] == ["workflow", "cluster", "max_active_leases", "0", "(closed)"]
    assert lines[1][:4] == ["workflow", "queue:production/payments/workflow", "max_active_leases", "8"]
    assert lines[1][4].endswith('."production:payments".workflow_tasks.max_active_leases')
    (of_queue, *_) = json.loads(
        run("config", "show", "--queue", "Production:payments", "--json", env=settings).stdout
    )
    assert of_queue == {
        "task_queue_type": "workflow",
        "scope": "queue:production/payments/workflow",
        "limit": "max_active_leases",
        "value": 8,
        "window": None,
        "name": f'{OVERRIDES}."production:payments".workflow_tasks.max_active_leases',
        "source": "environment",
    }


def test_a_queue_named_alone_is_one_of_the_default_namespace(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(
        'auth_driver = "none"\ndefault_namespace = "production"\n'
        '[admission.queues."production:payments".activity_tasks]\nmax_active_leases = 3\n'
    )
    result = run("config", "show", "--queue", "payments", "--config", str(config))
    assert f"({config} line 4)" in result.stdout


def test_show_of_a_queue_without_limits_says_so(run: Run) -> None:
    result = run("config", "show", "--queue", "payments", env=OPEN)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No limit is declared" in result.stderr
