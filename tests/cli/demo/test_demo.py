"""The demonstration, as a newcomer sees it: real processes, killed in the middle."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.transport.connection import ServerConnection, Target
from tests.cli.recorded_server import Run
from tests.support.patience import PATIENCE_S

DEMO = [sys.executable, "-m", "penstock", "demo"]
HELD = {"task_queue": "bank", "max_active_leases": 2, "most_at_once": 2, "findings": 0}


def environment(**more: str) -> dict[str, str]:
    """What a shell may hold that points elsewhere must not lead the demonstration there."""
    astray = {
        "DW_PORT": "1",
        "DURABLE_WORKFLOW_SERVER_URL": "http://127.0.0.1:1",
        "DURABLE_WORKFLOW_NAMESPACE": "elsewhere",
        "PENSTOCK_PROFILE": "elsewhere",
    }
    return {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | astray | more


@pytest.mark.acceptance
def test_the_shop_goes_on_although_its_worker_and_its_server_are_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["orders"], summary["shipped"]) == (12, 11)
    assert summary["undone"] == {"order-5": "undone: nobody delivers to the Moon"}
    assert summary["tried_again"] == ["order-2"]
    assert summary["steps"] == 37
    assert {key: summary["limit"][key] for key in HELD} == HELD
    assert "the task queue bank leases 2 of at most 2 tasks" in summary["why"]["summary"]
    assert summary["why"]["held_by"] == ["worker-1-bank"]
    killed = [summary["killed"]["worker_pid"], summary["killed"]["server_pid"]]
    for pid in killed:
        assert f"kill -9 {pid}" in done.stderr
    assert set(summary["killed"]["while"]) <= {each.split()[-1] for each in summary["steps_run_again"]}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.acceptance
def test_on_a_terminal_the_orders_are_a_table_and_a_summary_is_left_with_data_to_look_at(
    tmp_path: Path, run: Run
) -> None:
    data = tmp_path / "demo-data"
    shown = watched([*DEMO, "--data-dir", str(data)])
    assert "CHARGE" in shown
    assert "11 were shipped. 1 was undone." in shown
    assert "Never did more than 2 run" in shown
    assert "nothing was found" in shown
    assert f"penstock dev --data-dir {data}" in shown
    assert (data / "penstock.db").is_file()
    again = run("demo", "--data-dir", str(data))
    assert again.exit_code == 1
    assert "holds a database already" in again.stderr


@pytest.mark.acceptance
def test_whoever_stops_it_early_leaves_no_process_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, "--data-dir", str(tmp_path / "data")],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    next(line for line in process.stderr if "orders of 3 customers come in" in line)
    process.send_signal(signal.SIGINT)
    process.stderr.read()
    assert process.wait(PATIENCE_S) != 0
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.mark.acceptance
def test_the_shop_stays_open_with_a_dashboard_until_it_is_stopped(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, "--stay"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    address = next(
        line for line in process.stderr if "/ui/sign-in?next=%2Fui%2Fqueues%2Fbank#code=" in line
    ).strip()
    next(process.stderr)
    token = Path(next(process.stderr).split("`")[1].split()[1]).read_text().strip()
    next(line for line in process.stderr if "penstock top" in line)
    connection = ServerConnection(Target.parse(address.partition("/ui")[0]), token=token)
    while connection.get("workflows", query={"query": "WorkflowId = 'order-30'"}).body["workflow_count"] == 0:
        time.sleep(0.1)
    bank = connection.get("task-queues", "bank").body["admission"]["activity_tasks"]
    assert bank["server_max_active_leases_per_queue"] == 2
    process.send_signal(signal.SIGTERM)
    rest = process.stderr.read()
    assert process.wait(PATIENCE_S) == 0, rest
    assert "Everything that ran is stopped, and its data removed." in rest
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def watched(command: list[str]) -> str:
    """What a program writes on a terminal of 100 columns."""
    primary, secondary = pty.openpty()
    process = subprocess.Popen(
        command, env=environment(TERM="xterm", COLUMNS="100"), stdout=secondary, stderr=secondary
    )
    os.close(secondary)
    output = b""
    while True:
        try:
            chunk = os.read(primary, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    process.wait(PATIENCE_S)
    os.close(primary)
    return " ".join(output.decode().split())
