"""A guard around workflow code: what would differ from one replay to the next fails, and says what to use instead.

Two hooks of the interpreter look on while workflow code runs in this thread, and only then: the profiler's, which sees
calls of clocks and dice, and the auditor's, which sees files, sockets, threads and processes.
"""

from __future__ import annotations

import _thread
import asyncio
import datetime
import functools
import gc
import os
import random
import sys
import threading
import time
import uuid
import zoneinfo
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from penstock.sdk.replay.errors import DeterminismViolationError

P = ParamSpec("P")
T = TypeVar("T")
_NOW = "workflow.now()"
_TIME = "workflow.time()"
_SLEEP = "await asyncio.sleep(…) or workflow.sleep(…)"
_RANDOM = "workflow.random()"
_UUID = "workflow.uuid4()"
_ACTIVITY = "an activity"


def _clocks() -> dict[Any, tuple[str, str]]:
    names: tuple[str, ...] = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    names += tuple(f"{name}_ns" for name in names)
    found = {getattr(time, name): (f"time.{name}()", _TIME) for name in names}
    found[time.sleep] = ("time.sleep()", _SLEEP)
    for name in ("now", "utcnow", "today"):
        found[getattr(datetime.datetime, name)] = (f"datetime.{name}()", _NOW)
    found[datetime.date.today] = ("date.today()", _NOW)
    return found


def _dice() -> dict[Any, tuple[str, str]]:
    shared = random._inst
    found = {
        getattr(shared, name): (f"random.{name}()", _RANDOM)
        for name in ("random", "getrandbits", "seed", "setstate", "getstate")
    }
    found[os.urandom] = ("os.urandom()", _RANDOM)
    return found


def _threads() -> dict[Any, tuple[str, str]]:
    names = ("start_new_thread", "start_joinable_thread")
    found = [getattr(_thread, name) for name in names if hasattr(_thread, name)]
    return dict.fromkeys(found, ("a thread", _ACTIVITY))


_FORBIDDEN = _clocks() | _dice() | _threads()
_ALLOWED_CALLERS = frozenset(
    {
        *("logging", "structlog", "warnings", "linecache", "traceback", "penstock"),
        *("zoneinfo", "tzdata", "encodings", "locale", "_strptime"),
    }
)
"""Modules that look at the clock or open a file for their own sake; that does not reach the workflow."""
_AUDITED = {
    "open": "a file",
    "os.listdir": "a directory",
    "os.remove": "a file",
    "os.rename": "a file",
    "os.mkdir": "a directory",
    "socket.__new__": "a socket",
    "socket.connect": "a connection",
    "socket.getaddrinfo": "a look-up of an address",
    "subprocess.Popen": "a process",
    "os.system": "a process",
    "os.fork": "a process",
    "os.posix_spawn": "a process",
    "sqlite3.connect": "a database",
}


class _GuardState(threading.local):
    inside = False
    """Whether workflow code runs."""
    on = False
    """Whether it is looked at."""
    violation: DeterminismViolationError | None = None


_watch = _GuardState()
_hooked = False


class DeterminismGuard:
    """Workflow code runs inside. A violation is raised in it, and kept: code cannot swallow it."""

    __slots__ = ("_before", "_is_ours")

    def __enter__(self) -> _GuardState:
        _hook()
        before = self._before = sys.getprofile()
        self._is_ours = before is None or callable(before)  # one written in C cannot be put back: it stays
        _watch.inside = _watch.on = True
        _watch.violation = None
        if self._is_ours:
            sys.setprofile(_look)
        return _watch

    def __exit__(self, *_: object) -> None:
        _watch.inside = _watch.on = False
        if self._is_ours:
            sys.setprofile(self._before)


@contextmanager
def unguarded() -> Iterator[None]:
    """For code that knows what it does."""
    was_on = _watch.on
    _watch.on = False
    try:
        yield
    finally:
        _watch.on = was_on and _watch.inside


def aside(function: Callable[P, T]) -> Callable[P, T]:
    """For work of our own that workflow code sets off, and in which none of its code is called.

    Nobody need look at its calls one by one, which takes longer than the work. The auditor looks on.
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        if sys.getprofile() is not _look:
            return function(*args, **kwargs)
        sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(_look)

    return wrapper


def _look(frame: FrameType, event: str, arg: Any) -> None:
    """Comes with every call and every return: what most of them are is asked first."""
    if event == "c_call":
        if arg in _FORBIDDEN and _watch.on and not _is_allowed(frame):
            _refuse_call(frame, arg)
    elif event == "call" and frame.f_code is _AS_COMPLETED and _watch.on:
        _check_as_completed(frame.f_locals["fs"])


def _refuse_call(frame: FrameType, called: Any) -> None:
    what, instead = _FORBIDDEN[called]
    if frame.f_globals.get("__name__") == uuid.__name__:
        what, instead = "uuid", _UUID
    _refuse(f"{what} differs from one replay to the next", f"use {instead}")


_AS_COMPLETED = asyncio.as_completed.__code__


def _check_as_completed(given: object) -> None:
    """It puts what it is given into a set: coroutines lie there by their place in memory; tasks by their number."""
    if not isinstance(given, Collection) or any(map(asyncio.iscoroutine, given)):
        what = "asyncio.as_completed starts coroutines in an order that differs from one replay to the next"
        _refuse(what, "use workflow.as_completed(…), or give it a list of tasks")


def _hook() -> None:
    """Once for each process; a hook of the auditor stays."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event not in _AUDITED or not _watch.on:
        return
    if event == "open" and _is_of_a_time_zone(args[0]):
        return
    if not _is_allowed(sys._getframe(1)):
        _refuse(f"workflow code must not use {_AUDITED[event]}", f"do it in {_ACTIVITY}")


def _is_of_a_time_zone(path: object) -> bool:
    """Zones are read from files when they are first asked for, by code of the interpreter itself."""
    return isinstance(path, str) and ("/zoneinfo/" in path or path.startswith(tuple(zoneinfo.TZPATH)))


def _is_allowed(frame: FrameType | None) -> bool:
    """Whether the call was made by, or for, a module that may: no line of the user's stands in between.

    What happens while a module is being imported is allowed: it happens once, and not because of the run.
    """
    if _is_of_the_collector(frame):
        return True
    by_the_user = False
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name == _BELOW_ALL_CODE:
            return False
        root = name.partition(".")[0]
        if root == "importlib" or (root in _ALLOWED_CALLERS and not by_the_user):
            return True
        by_the_user = by_the_user or not _is_of_the_library(frame)
        frame = frame.f_back
    return False


def _is_of_the_collector(frame: FrameType | None) -> bool:
    """Whether it is an object's end, or a listener of the collector: they come whenever memory is cleared."""
    listeners = {getattr(each, "__code__", None) for each in gc.callbacks}
    while frame is not None and frame.f_globals.get("__name__") != _BELOW_ALL_CODE:
        if frame.f_code.co_name == "__del__" or frame.f_code in listeners:
            return True
        frame = frame.f_back
    return False


_BELOW_ALL_CODE = "penstock.sdk.replay.loop"
_LIBRARY = str(Path(os.__file__).parent)


def _is_of_the_library(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    return filename.startswith((_LIBRARY, "<frozen")) and "site-packages" not in filename


def _refuse(what: str, instead: str) -> None:
    violation = DeterminismViolationError(f"{what}: {instead}.")
    _watch.violation = violation
    raise violation
