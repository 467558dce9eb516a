"""Raises an exception in another thread, at most once, and never outside of the function it is meant for."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.sdk.failures import CancelledError

T = TypeVar("T")

MESSAGE = "The activity was cancelled"

_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)


class ThreadInterrupt:
    """Raises `CancelledError` in the thread that is in `run`, at its next line of Python code.

    A thread in a blocking call is interrupted when the call returns. Within `shield` the interrupt waits for its end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._shields = 0
        self._wanted = False

    @property
    def thread(self) -> int | None:
        """The thread that runs the function now."""
        return self._thread

    def run(self, function: Callable[[], T]) -> T:
        """Call the function in this thread. It can be interrupted until it returns."""
        try:
            try:
                self._enter()
                return function()
            finally:
                self._leave()
        except CancelledError:
            self._leave()  # it may have arrived while leaving
            raise

    def interrupt(self) -> None:
        with self._lock:
            if self._wanted:
                return
            self._wanted = True
            if self._thread is not None and not self._shields:
                _raise_in(self._thread)

    @contextmanager
    def shield(self) -> Iterator[None]:
        if self._thread != threading.get_ident():
            yield
            return
        with self._lock:
            self._shields += 1
            already = self._wanted
        try:
            yield
        finally:
            with self._lock:
                self._shields -= 1
                late = self._wanted and not already and not self._shields
        if late:
            raise CancelledError(MESSAGE)

    def _enter(self) -> None:
        with self._lock:
            if self._wanted:
                raise CancelledError(MESSAGE)
            self._thread = threading.get_ident()

    def _leave(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            is_under_way = thread is not None and self._wanted
        if is_under_way:
            _swallow()


def _swallow() -> None:
    """Receive a pending interrupt here.

    It cannot be withdrawn: CPython 3.11 would then check for it forever wherever a profiler hook is set.
    """
    try:
        for _ in range(1_000):
            pass
    except CancelledError:
        pass


def _raise_in(thread: int) -> None:
    _set_async_exc(thread, ctypes.py_object(CancelledError))
