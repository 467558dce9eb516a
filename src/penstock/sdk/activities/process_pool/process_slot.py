"""One process for activities, and the thread that manages it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from penstock.sdk.activities.process_pool.process_child import JobResult, ProcessJob, ProcessPreload, main
from penstock.sdk.activities.process_pool.process_group import end_group_of
from penstock.sdk.converters import DataConverter
from penstock.sdk.lease import Lease

REAP_DELAY_S = 5.0
"""How long a process may take to exit on its own."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The process exited before the function ended."""

    exit_code: int | None
    began: bool

    def __str__(self) -> str:
        code = self.exit_code
        if code is None:
            return "it could not be started"
        if code >= 0:
            return f"exit code {code}"
        try:
            name = f" ({signal.Signals(-code).name})"
        except ValueError:
            name = ""
        hint = ". The system also does that when memory runs out" if -code == 9 else ""
        return f"signal {-code}{name}{hint}"


@dataclass(slots=True)
class _RunningJob:
    job: ProcessJob
    on_heartbeat: Callable[[Any], None]
    lease: Lease
    future: Future[JobResult | ProcessExit]
    began: bool = False


class ProcessSlot:
    """Starts a process for the first job, and replaces it when it has died or reached its recycling limits.

    A dedicated thread does everything that concerns the process. Only `kill` bypasses that thread, which may be
    blocked on an unresponsive process.
    """

    def __init__(
        self,
        context: BaseContext,
        converter: DataConverter,
        *,
        recycle_after: int | None,
        recycle_over_bytes: int | None = None,
        name: str = "activity-process",
    ) -> None:
        self._start_method, self._converter, self._recycle_after = context, converter, recycle_after
        self._recycle_over_bytes = recycle_over_bytes
        self._name = name
        self._preparation: ProcessPreload | None = None
        self._commands: deque[Callable[[], None]] = deque()
        self._wakeup_read, self._wakeup_write = socket.socketpair()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._watched: int | None = None
        """A pidfd that becomes readable when the process exits. Not available on every platform."""
        self._reader = False
        self._reaping = threading.Lock()
        self._current: _RunningJob | None = None
        self._served = 0
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None else process.pid

    def run(
        self, job: ProcessJob, on_heartbeat: Callable[[Any], None], lease: Lease | None = None
    ) -> Future[JobResult | ProcessExit]:
        """Run a job; one at a time. It is not started once its lease has expired."""
        current = _RunningJob(job, on_heartbeat, lease or Lease(), Future())
        self._enqueue(lambda: self._begin(current))
        return current.future

    def prepare(self, preparation: ProcessPreload) -> None:
        """Keep a process ready before there is a job, and after each one that ends."""

        def order() -> None:
            self._preparation = preparation
            self._ensure_process()

        self._enqueue(order)

    def send(self, word: str, number: int) -> None:
        """Send `cancel` or `shutdown` for a job to the process."""
        self._enqueue(lambda: self._send(word, number))

    def kill(self) -> None:
        with self._reaping:
            process = self._process
            if process is not None and process.is_alive():
                process.kill()
                end_group_of(process.pid)

    def close(self) -> None:
        """Stop the process once it is idle."""
        self._enqueue(self._close)

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def _enqueue(self, order: Callable[[], None]) -> None:
        self._commands.append(order)
        with contextlib.suppress(OSError):
            self._wakeup_write.send(b".")

    # In the thread of the slot

    def _serve(self) -> None:
        while not self._closing or self._current is not None:
            ready = wait(self._awaited())
            if self._wakeup_read in ready:
                self._handle_commands()
            elif self._connection in ready:
                self._receive()
            else:
                self._collect_exit()
        self._end()
        self._wakeup_read.close()
        self._wakeup_write.close()

    def _awaited(self) -> list[Any]:
        found: list[Any] = [self._wakeup_read]
        if self._process is not None:
            found.append(self._sign_of_end(self._process))
            if self._reader:
                found.append(self._connection)
        return found

    def _sign_of_end(self, process: BaseProcess) -> int:
        """Return a descriptor to wait for.

        A sentinel is inherited by forks of the process and stays open while they live.
        """
        return process.sentinel if self._watched is None else self._watched

    def _handle_commands(self) -> None:
        self._wakeup_read.recv(4096)
        while self._commands:
            self._commands.popleft()()

    def _begin(self, current: _RunningJob) -> None:
        if not current.future.set_running_or_notify_cancel():
            return
        self._current = current
        self._hand_over(current)

    def _hand_over(self, current: _RunningJob) -> None:
        try:
            if self._process is None:
                self._start()
        except Exception:
            logging.getLogger(__name__).exception("An activity process could not be started")
            self._finish(ProcessExit(None, began=False))
            return
        self._send("run", current.job)

    def _ensure_process(self) -> None:
        """Start the process in advance of its next job, if requested."""
        if self._preparation is None or self._process is not None or self._closing:
            return
        try:
            self._start()
        except Exception:
            logging.getLogger(__name__).exception("An activity process could not be started")

    def _start(self) -> None:
        ours, theirs = self._start_method.Pipe()
        level = min(logging.getLogger(each).getEffectiveLevel() for each in (None, "penstock"))
        process = self._start_method.Process(  # type: ignore[attr-defined]
            target=main, args=(theirs, self._converter, level), name=self._name
        )
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._watched = _watch_over(process)
        self._process, self._connection, self._reader, self._served = process, ours, True, 0
        if self._preparation is not None:
            self._send("prepare", self._preparation)

    def _send(self, word: str, value: Any) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):  # it has died; the exit is handled separately
                self._connection.send((word, value))

    def _receive(self) -> None:
        assert self._connection is not None
        try:
            word, value = self._connection.recv()
        except (EOFError, OSError):
            self._reader = False
            return
        except Exception:
            logging.getLogger(__name__).exception(
                "An activity process sent an unreadable message and is killed"
            )
            self._reader = False
            self.kill()
            return
        if word == "log":
            _log(value)
        elif self._current is not None:
            self._handle(word, value, self._current)

    def _handle(self, word: str, value: Any, current: _RunningJob) -> None:
        """Handle a message about the current job; messages about earlier jobs are ignored."""
        number = current.job.number
        match word:
            case "began" if value == number:
                current.began = True
            case "may_begin" if value == number:
                self._send("permission", (value, not current.lease.is_over))
            case "beat" if value[0] == number:
                current.on_heartbeat(value[1])
            case "done" if value.number == number:
                self._served += 1
                self._finish(value)
                if self._has_served_enough(value):
                    self._end()
                    self._ensure_process()

    def _has_served_enough(self, result: JobResult) -> bool:
        if self._recycle_after is not None and self._served >= self._recycle_after:
            return True
        limit, now = self._recycle_over_bytes, result.memory_bytes
        if limit is None or now is None or now <= limit:
            return False
        text = "An activity process uses %d MB after %d activities, more than %d MB, and is replaced"
        logging.getLogger(__name__).info(text, now >> 20, self._served, limit >> 20)
        return True

    def _collect_exit(self) -> None:
        """Handle the exit of the process: read its last messages, kill its forks, then resolve the waiting job."""
        while self._reader and self._connection is not None and self._connection.poll(0):
            self._receive()
        end_group_of(self.pid)
        fresh, code = self._served == 0, self._reap()
        current = self._current
        if current is None:
            if not fresh:
                self._ensure_process()
            return
        if not current.began and not fresh and not self._closing:
            self._hand_over(current)  # it died between two jobs, before it received this one
            return
        self._finish(ProcessExit(code, current.began))
        if current.began:
            self._ensure_process()

    def _finish(self, how: JobResult | ProcessExit) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.future.set_result(how)

    def _close(self) -> None:
        self._closing = True

    def _end(self) -> None:
        """Stop the process, killing it if necessary."""
        if self._process is None:
            return
        self._send("end", None)
        wait([self._sign_of_end(self._process)], REAP_DELAY_S)
        self.kill()
        while self._reader and self._connection is not None and self._connection.poll(0):
            self._receive()
        self._reap()

    def _reap(self) -> int | None:
        assert self._process is not None
        assert self._connection is not None
        with self._reaping:
            self._process.join()
            code = self._process.exitcode
            self._process.close()
            self._connection.close()
            if self._watched is not None:
                os.close(self._watched)
            self._process = self._connection = self._watched = None
            self._reader = False
        return code


def _watch_over(process: BaseProcess) -> int | None:
    if process.pid is None or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        return None


def _log(fields: dict[str, Any]) -> None:
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)
