"""Durable sleeps, conditions, and waiting for handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from penstock.sdk.replay.runtime import current

T = TypeVar("T")


async def sleep(duration: float | timedelta, *, summary: str | None = None) -> None:
    """Sleep durably: the run continues after this time, whatever happens to workers and servers.

    Args:
        duration: a timedelta, or seconds.
        summary: shown in the history.
    """
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if seconds < 0:
        raise ValueError(f"a duration must not be negative: {duration}")
    current()
    await asyncio.sleep(seconds)


async def wait_condition(
    fn: Callable[[], bool], *, timeout: float | timedelta | None = None, timeout_summary: str | None = None
) -> None:
    """Wait until a condition holds. It is evaluated whenever the code has run as far as it can.

    Args:
        fn: the condition. It must not change anything.
        timeout: how long to wait, as a timedelta or seconds; None is unlimited.
        timeout_summary: shown in the history with the timer.

    Raises:
        asyncio.TimeoutError: the timeout expired first.
    """
    runtime = current()
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if fn():
        return
    waiting = runtime.when(fn)
    if seconds is None:
        await waiting
        return
    async with asyncio.timeout(seconds):
        await waiting


def as_completed(fs: Iterable[Awaitable[T]], *, timeout: float | None = None) -> Iterator[Awaitable[T]]:
    """Like `asyncio.as_completed`, but deterministic for coroutines: they are started in the given order.

    Args:
        fs: awaitables.
        timeout: how long to wait for all of them, in seconds; None is unlimited.
    """
    current()
    return asyncio.as_completed([asyncio.ensure_future(each) for each in fs], timeout=timeout)


def all_handlers_finished() -> bool:
    """Whether no signal or update handler is running. Wait for this before the run closes."""
    return bool(current().handlers.are_finished)


def current_update_info() -> Any:
    """Return the update whose handler is running, with `id` and `name`; None elsewhere."""
    current()
    task = asyncio.current_task()
    return getattr(task, "penstock_update", None)
