"""The processes of the demo: a server and workers, each of which can be killed."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from penstock.cli.output.exits import CommandError, ServerUnreachable
from penstock.cli.server.dev import TOKEN_FILE, address, dev_overrides, prepare
from penstock.cli.transport.connection import ServerConnection, Target
from penstock.cli.transport.session import SERVER_VARIABLE, TOKEN_VARIABLE

START_SECONDS = 30.0
STOP_SECONDS = 15.0
_QUICK = {"DW_JOURNAL": "true", "DW_WORKFLOW_TASK_TIMEOUT": "2", "DW_LOG_FORMAT": "json"}
"""Journal every lease for the check at the end, and recover tasks of dead workers quickly."""


class ProcessEnded(CommandError):
    """A process of the demo ended or did not start."""

    def __init__(self, what: str, log: Path) -> None:
        notes = log.read_text(errors="replace").strip().splitlines()[-10:]
        super().__init__("demo_failed", f"{what}. The end of its log:", notes=notes)


class DemoProcess:
    """A process that can be killed."""

    process: subprocess.Popen[bytes] | None = None

    def kill(self) -> int:
        """`kill -9`. Returns the pid."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        return self.process.pid

    def stop(self) -> None:
        """Terminate the process; kill it if it does not exit in time."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


@dataclass
class DemoServer(DemoProcess):
    """A server on a free port that takes no settings from the environment."""

    directory: Path
    port: int = field(default_factory=lambda: _free_port())

    def __post_init__(self) -> None:
        prepare(self.directory)
        self.log = self.directory / "server.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DW_")}
        self.environment = clean | dev_overrides(self.directory, clean) | _QUICK | {"DW_PORT": str(self.port)}
        self.token = (self.directory / TOKEN_FILE).read_text().strip()
        self.url = address("127.0.0.1", self.port)
        self.connection = ServerConnection(Target.parse(self.url), token=self.token)

    def start(self) -> None:
        """Start on the data in the directory, and wait until it serves."""
        self._start("server", "start", stdout=subprocess.DEVNULL)

    def start_with_link(self) -> str | None:
        """Start as `penstock dev` does, which makes an address that signs somebody in once, within a minute."""
        self._start("dev", "--data-dir", str(self.directory), "--json", stdout=subprocess.PIPE)
        assert self.process is not None
        assert self.process.stdout is not None
        link = json.loads(self.process.stdout.readline())["dashboard"]
        return None if link is None else str(link)

    def _start(self, *words: str, stdout: int) -> None:
        command = [sys.executable, "-m", "penstock", *words]
        self.process = _spawn(command, self.environment, self.log, self.directory, stdout)
        ends_at = time.monotonic() + START_SECONDS
        while time.monotonic() < ends_at and self.process.poll() is None:
            try:
                if self.connection.get("health", accept=(503,)).body.get("status") == "serving":
                    return
            except ServerUnreachable:
                pass
            time.sleep(0.05)
        raise ProcessEnded("The server did not start", self.log)


@dataclass
class DemoWorker(DemoProcess):
    """A worker process, whose activities report their steps on stdout."""

    name: str
    server: DemoServer
    reports: queue.SimpleQueue[dict[str, Any]]
    is_up: bool = False

    def start(self) -> None:
        """Start, and wait until it polls. The steps it reports are put into `reports`."""
        here = {
            SERVER_VARIABLE: self.server.url,
            TOKEN_VARIABLE: self.server.token,
            "PENSTOCK_PROFILES": os.devnull,
        }
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DURABLE_WORKFLOW_", "PENSTOCK_PROFILE"))
        }
        command = [sys.executable, "-m", "penstock.cli.demo.worker_main", self.name]
        log = self.server.directory / f"{self.name}.log"
        self.process = _spawn(command, environment | here, log, self.server.directory, subprocess.PIPE)
        output = self.process.stdout
        assert output is not None
        ready = threading.Event()
        threading.Thread(target=self._listen, args=[output, ready], daemon=True).start()
        ready.wait(START_SECONDS)
        if not self.is_up:
            raise ProcessEnded(f"{self.name} did not start", log)

    def _listen(self, output: IO[bytes], ready: threading.Event) -> None:
        """Read lines until the process ends; the last line may be incomplete."""
        with output:
            for line in output:
                if not line.endswith(b"\n"):
                    break
                report = json.loads(line)
                if "order" in report:
                    self.reports.put(report)
                self.is_up = True
                ready.set()
        ready.set()


def _spawn(
    command: list[str], environment: Mapping[str, str], log: Path, directory: Path, stdout: int
) -> subprocess.Popen[bytes]:
    with log.open("ab") as stderr:
        output: Any = stdout if stdout == subprocess.PIPE else stderr
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=stderr, cwd=directory
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
