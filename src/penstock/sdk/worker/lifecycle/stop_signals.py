"""SIGTERM and Ctrl-C for workers in a plain script.

`asyncio.run` leaves SIGTERM to the system, which kills the process in the middle of its tasks, and turns Ctrl-C into
a `KeyboardInterrupt` with a long, useless traceback. A worker in the main thread therefore handles both, unless the
program does:

- SIGTERM, if its handler is the default one: all workers of the loop shut down gracefully.
- SIGINT, if its handler is that of `asyncio.run` and `Worker.run()` is awaited by the main task: `run()` returns
  after the shutdown. In any other task Ctrl-C stays with asyncio, which cancels the main task and with it the
  workers.

A second signal stops the process at once. Previous handlers are restored when the last worker ends. Code that runs
beside the workers does not notice the signal: if it still runs a second after they have ended, the signal is raised
again for the previous handler.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from penstock.sdk.worker.error_policy import log

REPEATED_SIGNAL_SECONDS: Final = 0.2
"""Signals within this time count as one: a terminal and a supervisor may both send it."""
FORWARD_SECONDS: Final = 1.0
"""How long code beside the workers may take to end on its own before it receives the signal."""
AT_ONCE_SECONDS: Final = 2.0
"""How long tasks may take to be handed back after a second signal, before the process is killed."""


@dataclass(eq=False, slots=True)
class SignalledWorker:
    """A worker that signals shut down."""

    stop: Callable[[signal.Signals], None]
    cancel: Callable[[], object]
    is_main: bool
    """Whether the main task of `asyncio.run` awaits this worker and ends with it."""
    ends_block: bool = False
    """Whether it runs for an `async with` block, which is cancelled with it."""
    second_signal: signal.Signals | None = None
    """The second signal, if there was one."""


@contextmanager
def stopped_by_signals(
    stop: Callable[[signal.Signals], None], *, wanted: bool = True, ends_block: bool = False
) -> Iterator[SignalledWorker | None]:
    """Call `stop` on the first signal and cancel the current task on the second.

    Yields None if signals are not handled.
    """
    task = asyncio.current_task()
    if not wanted or task is None or threading.current_thread() is not threading.main_thread():
        yield None
        return
    member = SignalledWorker(stop, task.cancel, task is _main_task(), ends_block)
    loop = asyncio.get_running_loop()
    listening = _LISTENING.get(loop)
    if listening is None:
        listening = _LISTENING[loop] = _SignalHandlers(loop)
    listening.join(member)
    try:
        yield member
    finally:
        if listening.leave(member):
            _LISTENING.pop(loop, None)


class _SignalHandlers:
    """The signal handlers of one event loop, and the workers that they stop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._members: list[SignalledWorker] = []
        self._before: dict[signal.Signals, Any] = {}
        self._first: signal.Signals | None = None
        self._first_at = 0.0
        self._has_others = False

    def join(self, member: SignalledWorker) -> None:
        self._members.append(member)
        self._has_others |= not (member.is_main or member.ends_block)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._install_handler(signal.SIGTERM)
        if member.is_main:
            self._install_handler(signal.SIGINT)

    def leave(self, member: SignalledWorker) -> bool:
        """Remove a worker. If it was the last one, restore the previous handlers and return True."""
        self._members.remove(member)
        if self._members:
            return False
        self._restore()
        if self._first is not None and self._has_others:
            self._loop.call_later(FORWARD_SECONDS, signal.raise_signal, self._first)
        return True

    def _install_handler(self, number: signal.Signals) -> None:
        before = signal.getsignal(number)
        try:
            self._loop.add_signal_handler(number, self._received, number)
        except (NotImplementedError, RuntimeError, ValueError):
            return  # a platform or a loop without signals
        self._before[number] = before

    def _restore(self) -> None:
        while self._before:
            number, before = self._before.popitem()
            self._loop.remove_signal_handler(number)
            signal.signal(number, before)

    def _received(self, number: signal.Signals) -> None:
        now = self._loop.time()
        if self._first is None:
            self._first, self._first_at = number, now
            log.info(
                "%s received: shutting down, no new tasks are started. Send it again to stop at once",
                number.name,
            )
            for each in tuple(self._members):
                each.stop(number)
        elif now - self._first_at >= REPEATED_SIGNAL_SECONDS:
            self._force_stop(number)

    def _force_stop(self, number: signal.Signals) -> None:
        self._restore()
        if any(not each.is_main for each in self._members):
            signal.raise_signal(number)
            return
        _end_by_force_after(AT_ONCE_SECONDS, number)
        for each in self._members:
            each.second_signal = number
            each.cancel()


_LISTENING: Final[dict[asyncio.AbstractEventLoop, _SignalHandlers]] = {}


def _main_task() -> asyncio.Task[Any] | None:
    """Return the task that `asyncio.run` runs, if its SIGINT handler is installed."""
    handler = signal.getsignal(signal.SIGINT)
    if not isinstance(handler, functools.partial):
        return None
    if not isinstance(getattr(handler.func, "__self__", None), asyncio.Runner):
        return None
    task = handler.keywords.get("main_task")
    return task if isinstance(task, asyncio.Task) else None


def _end_by_force_after(seconds: float, number: signal.Signals) -> None:
    """Kill the process after a delay. Threads that do not end would keep it alive."""
    timer = threading.Timer(seconds, os._exit, (128 + number,))
    timer.daemon = True
    timer.start()
