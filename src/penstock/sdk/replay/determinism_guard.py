"""Guards workflow code against non-deterministic calls: they raise an error that names the alternative.

Two interpreter hooks are active while workflow code runs in this thread, and only then: the profile hook, which sees
calls of clocks, random number generators, `hash` and the environment, and the audit hook, which sees files, sockets,
threads and processes.

A table in the guide lists what is stopped and what is let through: only what a hook can see without slowing workflow
code down is stopped. The order of sets, and globals that other runs share, are not visible to either hook.
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


def _clock_calls() -> dict[Any, tuple[str, str]]:
    names: tuple[str, ...] = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    names += tuple(f"{name}_ns" for name in names)
    found = {getattr(time, name): (f"time.{name}()", _TIME) for name in names}
    found[time.sleep] = ("time.sleep()", _SLEEP)
    for name in ("now", "utcnow", "today"):
        found[getattr(datetime.datetime, name)] = (f"datetime.{name}()", _NOW)
    found[datetime.date.today] = ("date.today()", _NOW)
    return found


def _random_calls() -> dict[Any, tuple[str, str]]:
    shared = random._inst
    found = {
        getattr(shared, name): (f"random.{name}()", _RANDOM)
        for name in ("random", "getrandbits", "seed", "setstate", "getstate")
    }
    found[os.urandom] = ("os.urandom()", _RANDOM)
    by_time = getattr(uuid, "_generate_time_safe", None)
    if by_time is not None:
        found[by_time] = ("uuid.uuid1()", _UUID)
    return found


def _thread_calls() -> dict[Any, tuple[str, str]]:
    names = ("start_new_thread", "start_joinable_thread")
    found = [getattr(_thread, name) for name in names if hasattr(_thread, name)]
    return dict.fromkeys(found, ("a thread", _ACTIVITY))


def _machine_calls() -> dict[Any, tuple[str, str]]:
    names = ("getpid", "getppid", "getcwd", "uname", "cpu_count")
    found = [(name, getattr(os, name)) for name in names if hasattr(os, name)]
    return {call: (f"os.{name}()", _ACTIVITY) for name, call in found}


_FORBIDDEN = _clock_calls() | _random_calls() | _thread_calls() | _machine_calls()
_ALLOWED_CALLERS = frozenset(
    {
        *("logging", "structlog", "warnings", "linecache", "traceback", "penstock", "temporalio"),
        *("zoneinfo", "tzdata", "encodings", "locale", "_strptime"),
    }
)
"""Modules that read the clock or open files for their own purposes, which does not affect the workflow."""
_AUDITED = {
    "open": "a file",
    "os.listdir": "a directory",
    "os.remove": "a file",
    "os.rename": "a file",
    "os.mkdir": "a directory",
    "socket.__new__": "a socket",
    "socket.connect": "a connection",
    "socket.getaddrinfo": "a look-up of an address",
    "socket.gethostname": "the name of the machine",
    "builtins.input": "the terminal",
    "os.scandir": "a directory",
    "subprocess.Popen": "a process",
    "os.system": "a process",
    "os.fork": "a process",
    "os.posix_spawn": "a process",
    "sqlite3.connect": "a database",
}


class _GuardState(threading.local):
    inside = False
    """Whether workflow code is running."""
    on = False
    """Whether it is being checked."""
    violation: DeterminismViolationError | None = None


_state = _GuardState()
_has_audit_hook = False


class DeterminismGuard:
    """Guards the workflow code inside. A violation is raised in it and stored: the code cannot swallow it."""

    __slots__ = ("_before", "_is_ours")

    def __enter__(self) -> _GuardState:
        _install_audit_hook()
        before = self._before = sys.getprofile()
        self._is_ours = before is None or callable(
            before
        )  # a profile function written in C cannot be restored, so it stays
        _state.inside = _state.on = True
        _state.violation = None
        if self._is_ours:
            sys.setprofile(_profile_hook)
        return _state

    def __exit__(self, *_: object) -> None:
        _state.inside = _state.on = False
        if self._is_ours:
            sys.setprofile(self._before)


@contextmanager
def unguarded() -> Iterator[None]:
    """Disable the guard for a block of trusted code."""
    was_on = _state.on
    _state.on = False
    try:
        yield
    finally:
        _state.on = was_on and _state.inside


def unprofiled(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator for SDK functions that workflow code calls and that call no user code.

    Disables the profile hook, which would cost more than the function itself. The audit hook stays active.
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        if sys.getprofile() is not _profile_hook:
            return function(*args, **kwargs)
        sys.setprofile(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(_profile_hook)

    return wrapper


def _profile_hook(frame: FrameType, event: str, arg: Any) -> None:
    """The profile hook. Called for every call and return, so the most frequent cases are checked first."""
    if event == "c_call":
        if arg is hash:
            _check_hash(frame)
        elif arg in _FORBIDDEN and _state.on and not _is_allowed(frame):
            _refuse_call(frame, arg)
    elif event == "call":
        code = frame.f_code
        if (code is _AS_COMPLETED or code is _ENVIRONMENT) and _state.on:
            _check_python_call(frame)


def _refuse_call(frame: FrameType, called: Any) -> None:
    what, instead = _FORBIDDEN[called]
    if frame.f_globals.get("__name__") == uuid.__name__:
        what, instead = "uuid", _UUID
    _refuse(f"{what} differs from one replay to the next", f"use {instead}")


def _check_python_call(frame: FrameType) -> None:
    if frame.f_code is _AS_COMPLETED:
        _check_as_completed(frame.f_locals["fs"])
    elif not _is_allowed(frame.f_back):
        instead = f"pass it as an argument, or read it at import or in {_ACTIVITY}"
        _refuse("the environment differs from one worker to the next", instead)


def _check_hash(frame: FrameType) -> None:
    """Refuse `hash()` in code of the user, except in a `__hash__`: that of text differs between processes."""
    is_own = not _is_standard_library(frame) and "site-packages" not in frame.f_code.co_filename
    if _state.on and is_own and frame.f_code.co_name != "__hash__" and not _is_allowed(frame):
        _refuse("hash() differs from one process to the next", "use zlib.crc32() or hashlib")


_ENVIRONMENT = type(os.environ).__getitem__.__code__
_AS_COMPLETED = asyncio.as_completed.__code__


def _check_as_completed(given: object) -> None:
    """Refuse coroutines: `as_completed` puts them into a set, ordered by address; tasks are ordered by number."""
    if not isinstance(given, Collection) or any(map(asyncio.iscoroutine, given)):
        what = "asyncio.as_completed starts coroutines in an order that differs from one replay to the next"
        _refuse(what, "use workflow.as_completed(…), or give it a list of tasks")


def _install_audit_hook() -> None:
    """Install the audit hook, once per process. It cannot be removed."""
    global _has_audit_hook
    if not _has_audit_hook:
        _has_audit_hook = True
        sys.addaudithook(_audit_hook)


def _audit_hook(event: str, args: tuple[Any, ...]) -> None:
    if event not in _AUDITED or not _state.on:
        return
    if event == "open" and _is_time_zone_file(args[0]):
        return
    if not _is_allowed(sys._getframe(1)):
        _refuse(f"workflow code must not use {_AUDITED[event]}", f"do it in {_ACTIVITY}")


def _is_time_zone_file(path: object) -> bool:
    """Whether the file is a time zone, which the interpreter reads on first use."""
    return isinstance(path, str) and ("/zoneinfo/" in path or path.startswith(tuple(zoneinfo.TZPATH)))


def _is_allowed(frame: FrameType | None) -> bool:
    """Whether an allowed module made the call, with no frame of user code in between.

    Anything is allowed during an import: it happens once, and not because of the run.
    """
    if _is_garbage_collection(frame):
        return True
    by_the_user = False
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name == _LOOP_MODULE or (by_the_user and name in _LOOP_MODULES):
            return False
        root = name.partition(".")[0]
        if root == "importlib" or (root in _ALLOWED_CALLERS and not by_the_user):
            return True
        by_the_user = by_the_user or not _is_standard_library(frame)
        frame = frame.f_back
    return False


def _is_garbage_collection(frame: FrameType | None) -> bool:
    """Whether the call comes from a finalizer or a garbage collector callback, which run at any time."""
    listeners = {getattr(each, "__code__", None) for each in gc.callbacks}
    while frame is not None and frame.f_globals.get("__name__") not in _LOOP_MODULES:
        if frame.f_code.co_name == "__del__" or frame.f_code in listeners:
            return True
        frame = frame.f_back
    return False


_LOOP_MODULE = "penstock.sdk.replay.loop"
_LOOP_MODULES = frozenset({_LOOP_MODULE, "temporalio.worker._workflow_instance"})
"""Modules that call workflow code: ours, and that of the Temporal engine, which also reads clocks of its own."""
_LIBRARY = str(Path(os.__file__).parent)


def _is_standard_library(frame: FrameType) -> bool:
    filename = frame.f_code.co_filename
    return filename.startswith((_LIBRARY, "<frozen")) and "site-packages" not in filename


def _refuse(what: str, instead: str) -> None:
    violation = DeterminismViolationError(f"{what}: {instead}.")
    _state.violation = violation
    raise violation
