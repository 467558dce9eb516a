"""Durable sleeps, conditions, and waiting for handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from penstock.sdk.workflow_port.port import current

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
    await current().sleep(seconds, summary)


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
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    await current().wait_condition(fn, seconds, timeout_summary)


def as_completed(fs: Iterable[Awaitable[T]], *, timeout: float | None = None) -> Iterator[Awaitable[T]]:
    """Like `asyncio.as_completed`, but deterministic for coroutines: they are started in the given order.

    Args:
        fs: awaitables.
        timeout: how long to wait for all of them, in seconds; None is unlimited.
    """
    return current().as_completed(fs, timeout)


async def wait(
    fs: Iterable[Awaitable[T]],
    *,
    timeout: float | None = None,
    return_when: str = asyncio.ALL_COMPLETED,
) -> tuple[list[asyncio.Future[T]], list[asyncio.Future[T]]]:
    """Like `asyncio.wait`, but with lists in the given order, so that code may loop over them in a workflow.

    Args:
        fs: awaitables. Coroutines are started as tasks, in the given order.
        timeout: how long to wait, in seconds; None is unlimited.
        return_when: when to return, one of the constants of asyncio.

    Returns:
        What is done, and what is not.
    """
    given = [asyncio.ensure_future(each) for each in fs]
    done, _ = await asyncio.wait(given, timeout=timeout, return_when=return_when)
    return [each for each in given if each in done], [each for each in given if each not in done]


def all_handlers_finished() -> bool:
    """Whether no signal or update handler is running. Wait for this before the run closes."""
    return current().are_handlers_finished


def current_update_info() -> Any:
    """Return the `UpdateInfo` of the handler that runs, also in tasks that it has started; None elsewhere."""
    return current().current_update()
