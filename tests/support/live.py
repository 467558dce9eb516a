"""Real server processes on loopback, as a user would run them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.fork_server import ForkedProcess, can_fork, fork_server
from tests.support.patience import PATIENCE_S

TOKENS = {
    "DW_WORKER_TOKEN": "worker-secret",
    "DW_OPERATOR_TOKEN": "operator-secret",
    "DW_ADMIN_TOKEN": "admin-secret",
}
PENSTOCK = (sys.executable, "-m", "penstock")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class LiveServer:
    """One server process that we started, and may end."""

    command: Sequence[str]
    environment: Mapping[str, str]
    port: int
    log: Path
    process: subprocess.Popen[bytes] | ForkedProcess | None = field(default=None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *, wait: bool = True) -> LiveServer:
        if can_fork(self.command, self.environment):
            self.process = fork_server().fork(self.command, self.environment, self.log.parent, self.log)
        else:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command, env=dict(self.environment), stdout=log, stderr=log, cwd=self.log.parent
                )
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Wait for the first healthy answer; a server that ends instead is an error with its log."""
        assert self.process is not None
        ends_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_at:
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"the server ended with {self.process.returncode}:\n{self.log.read_text()}"
                )
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.url}/api/health", timeout=10) as answer,
            ):
                if json.load(answer)["status"] == "serving":
                    return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        raise RuntimeError(f"the server did not answer in time:\n{self.log.read_text()}")

    def kill(self) -> None:
        """End it as a crash does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Ask it to end, and say with which code it did."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def exited(self, timeout: float = PATIENCE_S) -> int:
        assert self.process is not None
        return self.process.wait(timeout)


def server(
    folder: Path,
    database_url: str,
    *,
    name: str = "server",
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
) -> LiveServer:
    """A server that is not started yet. Its settings are the seeds' tokens and what is given."""
    chosen = port or free_port()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("DW_", "DURABLE_WORKFLOW_"))
    }
    environment |= TOKENS | {
        "DW_DATABASE_URL": database_url,
        "DW_PORT": str(chosen),
        "DW_LOG_FORMAT": "json",
        "PYTHONUNBUFFERED": "1",
    }
    environment |= dict(settings or {})
    environment = {key: value for key, value in environment.items() if value != ""}
    return LiveServer(command or (*PENSTOCK, "server", "start"), environment, chosen, folder / f"{name}.log")


def migrate(folder: Path, database_url: str) -> None:
    """Run `penstock db migrate`, as an operator does before starting servers on PostgreSQL."""
    environment = os.environ | {"DW_DATABASE_URL": database_url, "DW_AUTH_DRIVER": "none"}
    command, log = (*PENSTOCK, "db", "migrate"), folder / "migrate.log"
    migrating = LiveServer(command, environment, 0, log).start(wait=False)
    assert migrating.exited(PATIENCE_S) == 0, log.read_text()


@contextlib.contextmanager
def running(*servers: LiveServer) -> Iterator[tuple[LiveServer, ...]]:
    """Servers that are up inside the block and gone after it, whatever happens."""
    try:
        for each in servers:
            each.start(wait=False)
        for each in servers:
            each.wait_until_ready()
        yield servers
    finally:
        for each in servers:
            if each.process is not None and each.process.poll() is None:
                each.process.send_signal(signal.SIGTERM)
        for each in servers:
            if each.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    each.process.wait(10)
                if each.process.poll() is None:
                    each.kill()


def headers(role: str, namespace: str | None = None, **more: str) -> dict[str, str]:
    """What a well-behaved client of this role sends."""
    plane = (
        {"X-Durable-Workflow-Protocol-Version": "1.0"}
        if role == "worker"
        else {"X-Durable-Workflow-Control-Plane-Version": "2"}
    )
    found: dict[str, Any] = {"Authorization": f"Bearer {role}-secret", **plane, **more}
    return found | ({"X-Namespace": namespace} if namespace else {})
