"""Runs async activities in a process without an event loop, one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.sdk.activities.thread_interrupt import ThreadInterrupt

T = TypeVar("T")


class LoopCall(ThreadInterrupt):
    """Runs a coroutine in its own event loop. An interrupt cancels it, even while it waits."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Lock()
        self._cancel_requested = False
        self._cancel: Callable[[], object] | None = None

    def run_async(self, made: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with asyncio.Runner() as runner:
            return runner.run(self._inside(made))

    async def _inside(self, made: Callable[[], Coroutine[Any, Any, T]]) -> T:
        loop, myself = asyncio.get_running_loop(), asyncio.current_task()
        assert myself is not None
        with self._gate:
            self._cancel = lambda: loop.call_soon_threadsafe(myself.cancel)
            if self._cancel_requested:
                myself.cancel()
        try:
            return await made()
        finally:
            with self._gate:
                self._cancel = None

    def interrupt(self) -> None:
        with self._gate:
            self._cancel_requested = True
            if self._cancel is not None:
                self._cancel()
