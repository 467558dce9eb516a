"""A worker program as a user starts it, whose exit is part of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.live import TOKENS, LiveServer


@contextmanager
def worker_program(
    folder: Path, live: LiveServer, app: str, name: str, *args: str, sets_caps: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """`penstock worker` for an app in the folder, running inside the block, with its output in `NAME.log`."""
    around = {key: value for key, value in os.environ.items() if not key.startswith(("DW_", "DURABLE_"))}
    environment = around | {
        "DURABLE_WORKFLOW_SERVER_URL": live.url,
        "DURABLE_WORKFLOW_WORKER_TOKEN": TOKENS["DW_WORKER_TOKEN"],
    }
    if sets_caps:
        environment["DURABLE_WORKFLOW_CONTROL_TOKEN"] = TOKENS["DW_OPERATOR_TOKEN"]
    command = [sys.executable, "-m", "penstock", "worker", app, "--name", name, *args]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
