"""`penstock server start --processes N`: several servers behind one port."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.server.process_metrics import merge
from tests.support import live
from tests.support.patience import PATIENCE_S

COMMAND = (*live.PENSTOCK, "server", "start", "--processes", "3")


@pytest.fixture
def server(postgres_url: str, tmp_path: Path) -> Iterator[live.LiveServer]:
    """Three processes on a migrated database."""
    live.migrate(tmp_path, postgres_url)
    with live.running(live.server(tmp_path, postgres_url, command=COMMAND)) as (started,):
        until(lambda: processes_of(started) == {"1", "2", "3"})
        yield started


def until(is_so: Callable[[], bool]) -> None:
    """Look until it is so: other processes send no event."""
    ends_at = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < ends_at, "it never came to be so"
        time.sleep(0.05)


def processes_of(server: live.LiveServer) -> set[str]:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=PATIENCE_S) as answer:
        return set(re.findall(r'penstock_open_polls\{process="(\w+)"\}', answer.read().decode()))


def children_of(server: live.LiveServer) -> list[int]:
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    [pids] = [line["pids"] for line in lines if line["event"] == "supervising"]
    return list(pids)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; orphans may stay as zombies where nothing reaps them."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_a_process_that_is_killed_is_replaced_while_the_others_serve_and_a_signal_drains_all(
    server: live.LiveServer,
) -> None:
    pids = children_of(server)
    assert len(pids) == 3
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: "starting another" in server.log.read_text())
    until(lambda: processes_of(server) == {"1", "2", "3"})
    assert server.stop() == 0
    assert all(is_gone(pid) for pid in pids)
    stopped = [line for line in server.log.read_text().splitlines() if '"event": "stopped"' in line]
    assert len(stopped) == 3


def test_processes_end_when_the_one_that_supervises_them_is_killed(server: live.LiveServer) -> None:
    pids = children_of(server)
    server.kill()
    until(lambda: all(map(is_gone, pids)))


def test_processes_that_cannot_start_end_the_command_with_their_reason(
    postgres_url: str, tmp_path: Path
) -> None:
    unmigrated = live.server(tmp_path, postgres_url, command=COMMAND).start(wait=False)
    assert unmigrated.process is not None
    assert unmigrated.process.wait(PATIENCE_S) not in (0, None)
    assert "schema_outdated" in unmigrated.log.read_text()


def test_an_sqlite_file_is_not_served_by_several_processes(tmp_path: Path) -> None:
    refused = live.server(tmp_path, f"sqlite:///{tmp_path / 'penstock.db'}", command=COMMAND).start(
        wait=False
    )
    assert refused.process is not None
    assert refused.process.wait(PATIENCE_S) == 78
    assert "DW_SERVER_PROCESSES=3 needs PostgreSQL" in " ".join(refused.log.read_text().split())


def test_metrics_of_several_processes_are_one_text_with_a_label_for_each() -> None:
    head = "# HELP polls_total Polls.\n# TYPE polls_total counter\n"
    texts = {
        "1": head + 'polls_total{kind="a{b"} 1.0\n# HELP open Open.\n# TYPE open gauge\nopen 2.0\n',
        "2": head + 'polls_total{kind="c"} 3.0\n',
    }
    assert merge(texts) == (
        head
        + 'polls_total{process="1",kind="a{b"} 1.0\npolls_total{process="2",kind="c"} 3.0\n'
        + '# HELP open Open.\n# TYPE open gauge\nopen{process="1"} 2.0\n'
    )
