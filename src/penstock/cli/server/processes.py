"""Several server processes behind one socket, on one machine: the preforking model of nginx and Gunicorn.

The first process binds the socket, forks, and serves nothing itself. Its children are ordinary servers that share the
database, and accept connections from the one queue of the kernel: a process that is busy accepts fewer, and what waits
while one dies is accepted by another. A child that ends is replaced, with growing pauses if it ends at once; one that
refuses to start while none serves ends them all. SIGTERM and SIGINT drain every child; if the first process is killed,
its children notice the closed pipe and drain too.

Rejected: a socket for each process with SO_REUSEPORT, because the kernel deals connections out by hash, and what waits
for a process that dies is lost with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
from msgspec import Struct

if TYPE_CHECKING:
    import socket

    from penstock.settings import Settings

ENDS: Final = (signal.SIGTERM, signal.SIGINT)
PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 30.0
STABLE_S: Final = 60.0
"""A child that has lived so long is replaced without a pause."""
log = structlog.get_logger("penstock")


class ServerProcess(Struct, frozen=True):
    """What a child serves with."""

    settings: Settings
    bound: socket.socket
    metrics_socket: Path
    """Where it answers the other processes for its metrics, beside theirs."""


def fork_servers(settings: Settings, bound: socket.socket) -> ServerProcess:
    """Fork `settings.listen.processes` servers and look after them. Returns in the children only.

    The first process leaves with `SystemExit`: 0 after a signal, else the exit code of the child that ended them all.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    parent = os.getpid()
    try:
        number = _Supervisor(settings.listen.processes, folder).run()
    finally:
        if os.getpid() == parent:
            shutil.rmtree(folder, ignore_errors=True)
    named = replace(settings, server_id=f"{settings.server_id}-{number}")
    return ServerProcess(named, bound, folder / f"{number}.sock")


class _Child(Struct):
    number: int
    started_at: float
    pause_s: float


class _Supervisor:
    def __init__(self, processes: int, folder: Path) -> None:
        self._processes, self._folder = processes, folder
        self._children: dict[int, _Child] = {}
        self._alive = os.pipe()
        """Children wait for the end of the first, which is closed with the supervisor."""
        self._code: int | None = None
        """The exit code, as soon as all are to end."""

    def run(self) -> int:
        """Supervise until a signal; returns a child's number in that child."""
        before = {each: signal.signal(each, lambda number, _: self._end(number)) for each in ENDS}
        for number in range(1, self._processes + 1):
            if self._fork(number, PAUSE_S):
                return self._became_child(number, before)
        log.info("supervising", processes=self._processes, pids=sorted(self._children))
        while self._children:
            with contextlib.suppress(InterruptedError):
                pid, status = os.wait()
                child = self._children.pop(pid, None)
                if child is not None and self._is_replaced(child, pid, os.waitstatus_to_exitcode(status)):
                    return self._became_child(child.number, before)
        sys.exit(self._code)

    def _fork(self, number: int, pause_s: float) -> bool:
        """Start a child, unless all are to end; True in it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        try:
            if self._code is not None:
                return False
            pid = os.fork()
            if pid:
                self._children[pid] = _Child(number, time.monotonic(), pause_s)
            return not pid
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)

    def _is_replaced(self, child: _Child, pid: int, code: int) -> bool:
        """Replace a child that has ended, unless all are to end; True in its successor."""
        if self._code is not None:
            return False
        if code > 0 and not self._is_any_serving(child.number):
            self._end(code=code)
            return False
        lived_s = time.monotonic() - child.started_at
        pause_s = PAUSE_S if lived_s > STABLE_S else child.pause_s
        log.error("a server process ended; starting another", number=child.number, pid=pid, exit_code=code)
        self._wait(pause_s)
        return self._fork(child.number, min(2 * pause_s, PAUSE_S_MAX))

    def _is_any_serving(self, but: int) -> bool:
        """Whether another child serves: its socket for metrics is made once it listens."""
        return any(path.stem != str(but) for path in self._folder.glob("*.sock"))

    def _wait(self, seconds: float) -> None:
        """Sleep, but not beyond a signal that ends all."""
        until = time.monotonic() + seconds
        while self._code is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _end(self, number: int | None = None, code: int = 0) -> None:
        if self._code is None:
            self._code = code
            cause = {"exit_code": code} if number is None else {"signal": signal.Signals(number).name}
            log.info("stopping all server processes", **cause)
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _became_child(self, number: int, before: Mapping[signal.Signals, Any]) -> int:
        for each, handler in before.items():
            signal.signal(each, handler)
        os.setpgid(0, 0)  # Ctrl-C reaches the supervisor, which ends its children once
        reading, writing = self._alive
        os.close(writing)
        threading.Thread(target=_end_with, args=(reading,), name="supervisor", daemon=True).start()
        return number


def _end_with(reading: int) -> None:
    """Drain this process as soon as its supervisor is gone."""
    os.read(reading, 1)
    os.kill(os.getpid(), signal.SIGTERM)
