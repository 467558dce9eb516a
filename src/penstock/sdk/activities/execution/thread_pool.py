"""Threads for activities: so many at most, and none that keeps the program from ending."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class ActivityThreads(Executor):
    """Like the thread pool of the standard library, whose threads are waited for when the program ends.

    An activity that hangs would keep it from ending for ever.
    """

    def __init__(self, most: int, name: str = "activity") -> None:
        self._most, self._name = most, name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._open = 0
        """Jobs that wait or run."""
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("The threads of this worker are closed")
            self._jobs.put(lambda: _carry_out(future, fn, args, kwargs))
            self._open += 1
            if self._started < min(self._open, self._most):
                self._started += 1
                threading.Thread(
                    target=self._serve, name=f"{self._name}-{self._started}", daemon=True
                ).start()
        return future

    def resize(self, most: int) -> None:
        """Allow so many threads from now on; those that are there stay."""
        with self._lock:
            self._most = max(self._most, most)

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Threads end when they have nothing to do; nobody waits for them."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job
            with self._lock:
                self._open -= 1
        self._jobs.put(None)


def _carry_out(future: Future[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(fn(*args, **kwargs))
    except BaseException as error:
        future.set_exception(error)
