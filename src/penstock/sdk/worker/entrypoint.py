"""Run workers as a program: until a signal or an error stops them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from penstock.gc_tuning import frozen_startup_heap
from penstock.sdk.worker.error_policy import log
from penstock.sdk.worker.worker import Worker

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPEATED_SIGNAL_SECONDS = 0.2
"""Signals within this time count as one: a terminal and a supervisor may both send it."""


def run_worker(*workers: Worker | Callable[[], Awaitable[Worker]]) -> signal.Signals | None:
    """Start an event loop and run workers in it until Ctrl-C or SIGTERM shuts them down; a second signal stops them
    at once.

    Uses uvloop if it is installed.

    Args:
        workers: workers, or async functions that return one. Connect the client inside such a function, because a
            client belongs to one event loop.

    Returns:
        The second signal, if there was one.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_make_and_run(workers))


async def run_until_signalled(*workers: Worker) -> signal.Signals | None:
    """Run workers in the current event loop until Ctrl-C or SIGTERM.

    Args:
        workers: the workers to run. They must not be running yet.

    Returns:
        The second signal, if one stopped the workers at once.
    """
    loop = asyncio.get_running_loop()
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    first_at: float | None = None
    second_signal: signal.Signals | None = None

    def stop(number: signal.Signals) -> None:
        nonlocal first_at, second_signal
        if first_at is not None:
            if loop.time() - first_at < REPEATED_SIGNAL_SECONDS:
                return
            second_signal = number
            for each in running:
                each.cancel()
            return
        first_at = loop.time()
        log.info("Shutting down; send the signal again to stop at once")
        for worker in workers:
            worker.begin_shutdown()

    handled = [number for number in SIGNALS if _install_handler(loop, number, partial(stop, number))]
    try:
        await _all(running, workers)
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
    return second_signal


async def _make_and_run(
    workers: tuple[Worker | Callable[[], Awaitable[Worker]], ...],
) -> signal.Signals | None:
    made = [each if isinstance(each, Worker) else await each() for each in workers]
    with frozen_startup_heap():
        return await run_until_signalled(*made)


async def _all(running: list[asyncio.Task[None]], workers: tuple[Worker, ...]) -> None:
    """Wait for all workers. If one fails, shut down the others and raise its error."""
    try:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        broke = [each for each in done if not each.cancelled() and each.exception() is not None]
        for worker in workers:
            worker.begin_shutdown()
        await asyncio.wait(running)
        for each in broke:
            each.result()
    except asyncio.CancelledError:
        for each in running:
            each.cancel()
        await asyncio.wait(running)
        raise


def _install_handler(
    loop: asyncio.AbstractEventLoop, number: signal.Signals, stop: Callable[[], None]
) -> bool:
    """Install a signal handler, if the platform and the current thread allow it."""
    try:
        loop.add_signal_handler(number, stop)
    except (NotImplementedError, RuntimeError, ValueError):
        return False
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
