"""The systems whose SDKs are compared: how each is started, and what it promises to keep."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks import temporal_peer
from benchmarks.client_processes import ROOT
from benchmarks.databases import OPTIONS
from benchmarks.peers.environments import environment
from benchmarks.peers.managed_processes import Driver, ended, started
from benchmarks.stands import Ground, StoreName, stand
from benchmarks.workloads import Say

DBOS_PACKAGES = ("dbos==3.3.0",)
KEPT = ("fsync", "synchronous_commit", "full_page_writes")
"""The settings of PostgreSQL that decide what is kept."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a system is, and the processes of its server, if it has one."""

    text: str
    pids: Mapping[str, int] = field(default_factory=dict)


class System(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> str:
        """What it keeps when the machine fails, and how it was set up."""

    @property
    def python(self) -> Path: ...
    @property
    def program(self) -> str:
        """The module that is its worker, and its client."""

    @property
    def imported(self) -> str:
        """What the code of a worker imports."""

    @property
    def embedded(self) -> bool:
        """Whether workflows run in the process that starts them."""

    def serving(self) -> AbstractContextManager[Address]:
        """The system with nothing in it, up inside the block."""


@dataclass(frozen=True, slots=True)
class Ours:
    store: StoreName
    ground: Ground
    python: Path = Path(sys.executable)
    program: str = "benchmarks.peers.with_penstock"
    imported: str = "from penstock import Client, Worker, activity, workflow"
    embedded: bool = False

    @property
    def name(self) -> str:
        return f"penstock, {self.store.value}"

    @property
    def settings(self) -> str:
        if self.store is StoreName.SQLITE:
            kept = "SQLite, WAL, synchronous=FULL"
        else:
            kept = "PostgreSQL, " + ", ".join(f"{name}={OPTIONS[name]}" for name in KEPT)
        return f"{kept}; one server process with tokens; client and worker as they ship, uvloop"

    @contextlib.contextmanager
    def serving(self) -> Iterator[Address]:
        with stand(self.store, self.ground) as server:
            yield Address(server.url, server.pids)


@dataclass(frozen=True, slots=True)
class Temporal:
    peer: temporal_peer.Peer
    folder: Path
    program: str = "benchmarks.peers.with_temporal"
    imported: str = "from temporalio import activity, workflow, client, worker"
    embedded: bool = False

    @property
    def name(self) -> str:
        return "temporal dev server"

    @property
    def python(self) -> Path:
        return self.peer.python

    @property
    def settings(self) -> str:
        packages = ", ".join(temporal_peer.PACKAGES)
        return (
            f"server {self.peer.version} ({packages}); SQLite file, WAL, synchronous=NORMAL: the last commits may be "
            "lost with the power; workflows without sandbox, 100 slots, 16 starts of tasks at a time"
        )

    @contextlib.contextmanager
    def serving(self) -> Iterator[Address]:
        with temporal_peer.durable_server(self.peer, _new_folder(self.folder, "temporal")) as (address, pid):
            yield Address(address, {"server": pid})


@dataclass(frozen=True, slots=True)
class Dbos:
    home: Path
    folder: Path
    program: str = "benchmarks.peers.with_dbos"
    imported: str = "from dbos import DBOS, DBOSClient"
    embedded: bool = True

    @property
    def name(self) -> str:
        return "dbos, sqlite"

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def settings(self) -> str:
        return (
            f"{DBOS_PACKAGES[0]}; SQLite as it ships, rollback journal, one commit for each operation; workflows in "
            "the client's process in 8 threads, tasks by a queue that is polled every 50 ms (as it ships: 1 s)"
        )

    @contextlib.contextmanager
    def serving(self) -> Iterator[Address]:
        yield Address(f"sqlite:///{_new_folder(self.folder, 'dbos') / 'dbos.sqlite'}")


def temporal(ground: Ground, say: Say, *, install: bool) -> System:
    """Temporal's dev server, or `Absent`."""
    return Temporal(temporal_peer.installed(say, install=install), ground.folder)


def dbos(ground: Ground, say: Say, *, install: bool) -> System:
    """DBOS, or `Absent`."""
    return Dbos(environment(DBOS_PACKAGES, say, install=install), ground.folder)


class Scene:
    """A system at work: its server, one worker process, and one client process that is asked."""

    def __init__(self, system: System, address: Address, home: Path, stack: contextlib.ExitStack) -> None:
        self.system = system
        self._address, self._home, self._stack = address, home, stack
        self._environment = surroundings(home.parent) | {"BENCH_TICKS": str(home / "ticks")}
        client = self._start("client", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.client = Driver(client)
        self.client.begin("first")
        began = time.monotonic()
        self.worker = self._start("worker")
        self.first_task_seconds = self.client.finish()["at"] - began

    def _start(self, role: str, **pipes: int) -> subprocess.Popen[bytes]:
        command = (self.system.python, "-m", self.system.program, role, self._address.text)
        with (self._home / f"{role}.log").open("wb") as log:
            given = {"stderr": log, "stdout": log} | pipes
            return started(self._stack, self._home, command, cwd=ROOT, env=self._environment, **given)

    @property
    def pids(self) -> dict[str, int]:
        """Every process that takes part now."""
        worker = {"worker": self.worker.pid} if self.worker.poll() is None else {}
        return {**self._address.pids, **worker, "client": self.client.process.pid}

    def end_worker(self) -> None:
        ended(self.worker)


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of processes: compiled code is kept, as it is where a package was installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}


@contextlib.contextmanager
def scene(system: System, folder: Path) -> Iterator[Scene]:
    """A system with nothing in it, its worker and a client."""
    with system.serving() as address, contextlib.ExitStack() as stack:
        home = _new_folder(folder, "scene")
        try:
            yield Scene(system, address, home, stack)
        except Exception as error:
            for log in sorted(home.glob("*.log")):
                error.add_note(f"{log.name}:\n{log.read_text()[-2000:]}")
            raise


def _new_folder(folder: Path, name: str) -> Path:
    made = folder / f"{name}-{next(_numbers)}"
    made.mkdir()
    return made
