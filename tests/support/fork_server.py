"""Real processes that are born knowing Penstock: forked from one that has imported it, which saves a second each.

The cradle is a process of its own. It reads orders, one line of JSON each, forks, and tells the pid; what became of
its children it writes into a folder. When its parent process is gone, it ends and kills its children.

    python -m tests.support.fork_server FOLDER
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.support.patience import PATIENCE_S

SWITCH = "PENSTOCK_TEST_FORKS"
"""`0` starts every server from nothing, as a user does."""
KNOWN = (
    "penstock.assembly",
    "penstock.cli.program",
    "penstock.cli.server",
    "penstock.stores.postgres.store",
    "penstock.stores.sqlite.store",
    "penstock.wakeups.postgres",
    "penstock.wakeups.redis",
    "penstock.coordination.redis_locks",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)
NEEDS_A_NEW_START = ("LD_PRELOAD", "PYTHONHASHSEED", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONWARNINGS")


def can_fork(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command is Python of ours, and nothing about it must be known before an interpreter starts."""
    if os.environ.get(SWITCH) == "0" or not hasattr(os, "pidfd_open") or command[0] != sys.executable:
        return False
    is_known = tuple(command[1:3]) == ("-m", "penstock") or command[1].endswith(".py")
    return is_known and not any(environment.get(name) for name in NEEDS_A_NEW_START)


class ForkedProcess:
    """A child of the cradle, with as much of `subprocess.Popen` as the tests use."""

    def __init__(self, pid: int, ends: Path) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._end = ends / str(pid)
        self._handle = -1
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended and was reaped already
            self._learn()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self._learn()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._handle], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self._learn()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _learn(self) -> None:
        """The process is gone: how it ended is written by the cradle right after."""
        ends_at = time.monotonic() + PATIENCE_S
        while not self._end.exists():
            assert time.monotonic() < ends_at, "the cradle does not tell how a child ended"
            time.sleep(0.001)
        self.returncode = int(self._end.read_text())
        if self._handle >= 0:
            os.close(self._handle)


@dataclass
class ForkServer:
    """The process from which others are forked, one for each process of tests."""

    process: subprocess.Popen[str]
    folder: Path
    turn: threading.Lock

    def fork(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, log: Path
    ) -> ForkedProcess:
        order = {"command": list(command), "environment": dict(environment), "cwd": str(cwd), "log": str(log)}
        with self.turn:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            pid = int(self.process.stdout.readline())
            return ForkedProcess(pid, self.folder)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def fork_server() -> ForkServer:
    folder = Path(tempfile.mkdtemp(prefix="penstock-cradle-"))
    process = subprocess.Popen(
        (sys.executable, "-m", "tests.support.fork_server", str(folder)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    made = ForkServer(process, folder, threading.Lock())
    atexit.register(made.close)
    return made


# ── The cradle's own side ───────────────────────────────────────────────────────────────────────────────


class _Children:
    """Those that live, and the folder that tells how the others ended."""

    def __init__(self, ends: Path) -> None:
        self._ends = ends
        self._living: set[int] = set()

    def reap(self) -> None:
        while self._living:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._living.discard(pid)
            written = self._ends / f"{pid}.written"
            written.write_text(str(os.waitstatus_to_exitcode(status)))
            written.replace(self._ends / str(pid))

    def fork(self, order: Mapping[str, Any]) -> int:
        pid = os.fork()
        if pid == 0:
            _live(order)
        with contextlib.suppress(FileNotFoundError):
            (self._ends / str(pid)).unlink()
        self._living.add(pid)
        return pid

    def kill(self) -> None:
        for pid in self._living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _live(order: Mapping[str, Any]) -> None:
    """Be the process that was ordered, to its end."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["cwd"])
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, 64)
        code = _run(order["command"][1:])
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def _run(arguments: Sequence[str]) -> int:
    try:
        if arguments[0] == "-m":
            sys.argv = [arguments[1], *arguments[2:]]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(arguments)
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 130
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _serve(ends: Path, orders: IO[bytes]) -> None:
    """Obey until the orders end."""
    children = _Children(ends)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([orders.fileno(), wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 1024)
            children.reap()
        if orders.fileno() in ready:
            line = orders.readline()
            if not line:
                children.kill()
                return
            print(children.fork(json.loads(line)), flush=True)


def _know_everything() -> None:
    """Import what servers import, so that children need not."""
    for name in KNOWN:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _know_everything()
    _serve(Path(sys.argv[1]), open(0, "rb", buffering=0, closefd=False))  # noqa: SIM115
