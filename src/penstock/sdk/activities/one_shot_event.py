"""An event that is set once, for which coroutines and threads can wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class OneShotEvent:
    def __init__(self) -> None:
        self._is_set = False
        self._event: threading.Event | None = None
        """Created for the first thread that waits."""
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Future[None]] = set()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with self._lock:
            self._is_set = True
            if self._event is not None:
                self._event.set()
            waiting, self._waiting = self._waiting, set()
        for each in waiting:
            with contextlib.suppress(RuntimeError):  # the event loop of that waiter is closed
                each.get_loop().call_soon_threadsafe(_wake, each)

    def wait_sync(self, timeout_s: float | None = None) -> bool:
        """Block this thread. Returns False on timeout."""
        with self._lock:
            if self._is_set:
                return True
            event = self._event = self._event or threading.Event()
        return event.wait(timeout_s)

    async def wait(self) -> None:
        with self._lock:
            if self._is_set:
                return
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(woken)
        try:
            await woken
        finally:
            with self._lock:
                self._waiting.discard(woken)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
