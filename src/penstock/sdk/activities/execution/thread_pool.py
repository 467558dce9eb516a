"""A thread pool for activities that does not block interpreter shutdown."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class ActivityThreads(Executor):
    """Like `ThreadPoolExecutor`, but with daemon threads: an activity that hangs must not keep the process alive."""

    def __init__(self, max_size: int, name: str = "activity") -> None:
        self._max_size, self._name = max_size, name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._open = 0
        """Jobs that are queued or running."""
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("The threads of this worker are closed")
            self._jobs.put(lambda: _carry_out(future, fn, args, kwargs))
            self._open += 1
            if self._started < min(self._open, self._max_size):
                self._started += 1
                threading.Thread(
                    target=self._serve, name=f"{self._name}-{self._started}", daemon=True
                ).start()
        return future

    def resize(self, max_size: int) -> None:
        """Set the maximum number of threads. Existing threads stay."""
        with self._lock:
            self._max_size = max(self._max_size, max_size)

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Let threads exit when they are idle, without waiting for them."""
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
