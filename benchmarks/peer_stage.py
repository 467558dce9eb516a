"""A system at work: its servers, one worker that may come and go, and one client that is asked."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.client_processes import ROOT
from benchmarks.peer_systems import Address, System
from benchmarks.peers.managed_processes import Driver, started
from benchmarks.sdk_systems import surroundings

STOP_SECONDS_MAX = 10.0
_numbers = itertools.count(1)


class Stage:
    def __init__(self, system: System, address: Address, home: Path, stack: contextlib.ExitStack) -> None:
        self.system = system
        self._address, self._home, self._stack = address, home, stack
        self._worker: subprocess.Popen[bytes] | None = None
        kept = surroundings(home.parent)
        path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
        given = {"PYTHONPATH": path, "BENCH_TICKS": str(home / "ticks"), "BENCH_ADDRESS": address.text}
        self._environment = kept | given
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.client = Driver(self._start("client", **pipes))

    def start_worker(self) -> int:
        """Its process."""
        self._worker = self._start("worker", start_new_session=True)
        self._stack.callback(self.end_worker)
        return self._worker.pid

    def first_task_seconds(self) -> float:
        """Start the worker beside a task that waits: how long until the first line of it."""
        self.client.begin("first")
        began = time.monotonic()
        self.start_worker()
        return float(self.client.finish()["at"]) - began

    def end_worker(self) -> None:
        """Ask it to end, then end what it leaves behind: it is in a session of its own."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(STOP_SECONDS_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(STOP_SECONDS_MAX)

    @property
    def worker_pid(self) -> int:
        assert self._worker is not None, "the worker is not up"
        return self._worker.pid

    @property
    def url(self) -> str:
        """Where its server, or what stands for one, is."""
        return self._address.text

    @property
    def server_pid(self) -> int | None:
        """The process of a server of its own, if it has one."""
        return self._address.pids.get("server")

    @property
    def pids(self) -> dict[str, int]:
        """Every process that takes part now."""
        worker = {"worker": self._worker.pid} if self._worker is not None else {}
        return {**self._address.pids, **worker, "client": self.client.process.pid}

    def _start(self, role: str, **options: object) -> subprocess.Popen[bytes]:
        command = self.system.command(role, self._address.text)
        with (self._home / f"{role}.log").open("ab") as log:
            given: dict[str, object] = {"stderr": log, "stdout": log} | options
            return started(self._stack, self._home, command, cwd=ROOT, env=self._environment, **given)


@contextlib.contextmanager
def stage(system: System, folder: Path) -> Iterator[Stage]:
    """A system with nothing in it, and a client; no worker yet."""
    with system.serving() as address, contextlib.ExitStack() as stack:
        home = folder / f"stage-{next(_numbers)}"
        home.mkdir()
        try:
            yield Stage(system, address, home, stack)
        except Exception as error:
            for log in sorted(home.glob("*.log")):
                error.add_note(f"{log.name}:\n{log.read_text(errors='replace')[-2000:]}")
            raise
