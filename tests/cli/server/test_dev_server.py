"""`penstock dev` as a process: what it prints, and when."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import free_port
from tests.support.patience import PATIENCE_S


@pytest.fixture
def environment() -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("DW_", "DURABLE_WORKFLOW_"))
    }
    return kept | {"DW_LOG_LEVEL": "error"}


def dev(folder: Path, port: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "penstock",
        "dev",
        "--port",
        str(port),
        "--data-dir",
        str(folder / "data"),
    ]
    return subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_the_exports_are_printed_once_it_listens_and_ready_comes_last(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    port = free_port()
    process = dev(tmp_path, port, environment)
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            if not lines:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/api/health", timeout=PATIENCE_S
                ) as answer:
                    assert answer.status == 200, "it listens before the first line is printed"
            lines.append(line.rstrip())
            if line == "ready\n":
                break
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stderr.close()
    assert lines[-1] == "ready"
    exports = [re.split("[ =]", line.strip())[1] for line in lines if line.startswith("  export ")]
    assert exports == ["DURABLE_WORKFLOW_SERVER_URL", "DURABLE_WORKFLOW_AUTH_TOKEN"]


def test_a_taken_port_is_named_with_what_to_do_and_no_exports_are_printed(
    tmp_path: Path, environment: dict[str, str], taken: int
) -> None:
    process = dev(tmp_path, taken, environment)
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert told.startswith(f"error: port_in_use: Port {taken} of 127.0.0.1 is taken by another program. → ")
    assert "--port" in told
    assert "  export " not in told
    assert len(told.splitlines()) == 1
