"""Deadlock detection: a watchdog thread interrupts workflow code that does not yield, and reports its stack."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from penstock.sdk.replay.errors import TaskStuckError

P = ParamSpec("P")
T = TypeVar("T")
_LOOKS_EVERY_S = 0.1
INTERRUPT_AGAIN_AFTER_S = 1.0
PATIENCE = 5
"""On a busy machine the limit may pass this many times before code that gets no CPU counts as blocked."""
_raise_in = ctypes.pythonapi["PyThreadState_SetAsyncExc"]
"""Raises an exception class in another thread, identified by its id."""
_raise_in.argtypes = (ctypes.c_ulong, ctypes.c_void_p)


@dataclass(slots=True)
class _RunningCode:
    """A stretch in which workflow code runs. Only its CPU time counts: waiting for a CPU is not its fault."""

    limit_s: float
    began_s: float
    computed_s: float | None = None
    """CPU time of the thread at the first check. Most stretches end before that."""

    @classmethod
    def begin(cls, limit_s: float) -> _RunningCode:
        return cls(limit_s, time.monotonic())

    def is_too_long(self, thread_id: int) -> bool:
        if self.computed_s is None:
            self.computed_s = _computed_s(thread_id)
        passed_s = time.monotonic() - self.began_s
        if passed_s < self.limit_s:
            return False
        return passed_s >= self.limit_s * PATIENCE or _computed_s(thread_id) - self.computed_s >= self.limit_s


def _computed_s(thread_id: int) -> float:
    """Return the CPU time of a thread; wall-clock time where that is not available."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic()
    return time.clock_gettime(time.pthread_getcpuclockid(thread_id))


class _DetectorThread:
    """One watchdog thread for all workers of a process. It sleeps while no workflow code runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, _RunningCode] = {}
        self._stacks: dict[int, str] = {}
        self._work = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, limit_s: float) -> int:
        thread_id = threading.get_ident()
        with self._lock:
            self._running[thread_id] = _RunningCode.begin(limit_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="penstock-watchman", daemon=True)
                self._thread.start()
            if not self._work.is_set():
                self._work.set()
        return thread_id

    def end(self, thread_id: int) -> str | None:
        """End a stretch. Returns the stack if the code was interrupted, or was about to be."""
        with self._lock:
            self._running.pop(thread_id, None)
            stack = self._stacks.pop(thread_id, None)
        if stack is not None:
            _swallow()
        return stack

    def _watch(self) -> None:
        while True:
            self._work.wait()
            time.sleep(_LOOKS_EVERY_S)
            with self._lock:
                if not self._running:
                    self._work.clear()
                for thread_id, stretch in list(self._running.items()):
                    if stretch.is_too_long(thread_id):
                        self._interrupt(thread_id)

    def _interrupt(self, thread_id: int) -> None:
        frame = sys._current_frames().get(thread_id)
        if frame is not None and thread_id not in self._stacks:
            self._stacks[thread_id] = "".join(traceback.format_stack(frame))
        self._running[thread_id] = _RunningCode.begin(INTERRUPT_AGAIN_AFTER_S)
        _raise_in(thread_id, id(_DeadlockInterrupt))


class _DeadlockInterrupt(BaseException):
    """Raised in code that runs too long. It is not an `Exception`, so that code does not catch it by accident."""


def _swallow() -> None:
    """Receive a pending interrupt here, where it is harmless.

    It cannot be withdrawn: CPython 3.11 would then check for it forever while a profiler hook is set.
    """
    try:
        for _ in range(1_000):
            pass
    except _DeadlockInterrupt:
        pass


_watchman = _DetectorThread()


class DeadlockDetector:
    """Limits how long the workflow code inside may run without yielding; None is unlimited."""

    __slots__ = ("_limit_s", "_thread_id")

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s, self._thread_id = limit_s, 0

    def __enter__(self) -> None:
        if self._limit_s is not None:
            self._thread_id = _watchman.begin(self._limit_s)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._limit_s is None:
            return
        stack = _watchman.end(self._thread_id)
        if isinstance(error, _DeadlockInterrupt) or (error is None and stack is not None):
            raise _stuck(self._limit_s, stack) from None


def detects_deadlocks(method: Callable[P, T]) -> Callable[P, T]:
    """Decorator for methods that run workflow code: contains interrupts that arrive just after the code ends."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except _DeadlockInterrupt:
            stack = _watchman.end(threading.get_ident())
        raise _stuck(None, stack)

    return wrapper


def _stuck(limit_s: float | None, stack: str | None) -> TaskStuckError:
    limit = "the limit" if limit_s is None else f"{limit_s:g} s"
    return TaskStuckError(
        f"Workflow code ran for more than {limit} without awaiting anything. Move long computations and "
        f"blocking calls into activities. It was here:\n{stack or '(unknown)'}"
    )
