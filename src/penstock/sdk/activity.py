"""What the code of activities uses: `@activity.defn` makes one, the rest is for while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, MutableMapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, NoReturn, TypeVar, overload

from penstock.sdk.activities.context import CURRENT, current
from penstock.sdk.activities.defaults import ActivityDefaults
from penstock.sdk.activities.definition import ActivityDefinition, ActivityMark, RunsIn, checked_tags, mark
from penstock.sdk.activities.info import ActivityInfo
from penstock.sdk.activities.raw_value import RawValue
from penstock.sdk.activities.routing import RoutingKey, RoutingKeyError, arg
from penstock.sdk.failures import ActivityThrottled
from penstock.sdk.retry import RetryPolicy

__all__ = [
    "ActivityDefinition",
    "ActivityInfo",
    "LoggerAdapter",
    "RawValue",
    "RoutingKeyError",
    "arg",
    "defn",
    "heartbeat",
    "in_activity",
    "info",
    "is_cancelled",
    "is_worker_shutdown",
    "logger",
    "report_cost",
    "shield_thread_cancel_exception",
    "throttled",
    "wait_for_cancelled",
    "wait_for_cancelled_sync",
    "wait_for_worker_shutdown",
    "wait_for_worker_shutdown_sync",
]

F = TypeVar("F", bound=Callable[..., Any])

COST_MAX = 1_000_000_000


@overload
def defn(fn: F) -> F: ...


@overload
def defn(
    *,
    name: str | None = None,
    dynamic: bool = False,
    runs_in: RunsIn | None = None,
    auto_heartbeat: bool | timedelta | None = None,
    routing_key: RoutingKey | None = None,
    tags: Collection[str] = (),
    pack: str | None = None,
    start_to_close_timeout: timedelta | None = None,
    schedule_to_close_timeout: timedelta | None = None,
    schedule_to_start_timeout: timedelta | None = None,
    heartbeat_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
) -> Callable[[F], F]: ...


def defn(
    fn: F | None = None,
    *,
    name: str | None = None,
    dynamic: bool = False,
    runs_in: RunsIn | None = None,
    auto_heartbeat: bool | timedelta | None = None,
    routing_key: RoutingKey | None = None,
    tags: Collection[str] = (),
    pack: str | None = None,
    start_to_close_timeout: timedelta | None = None,
    schedule_to_close_timeout: timedelta | None = None,
    schedule_to_start_timeout: timedelta | None = None,
    heartbeat_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
) -> F | Callable[[F], F]:
    """Make a function an activity; the function stays what it is.

    `async def` runs in the event loop, `def` in a thread, and with `runs_in="process"` in a process. Its name is that
    of the function unless `name` says another. A `dynamic` one takes a `Sequence[RawValue]` and runs for all names
    that its worker knows no activity for. With `auto_heartbeat` the worker heartbeats while the function runs: at an
    interval that fits the timeout (True), or at this one.

    `routing_key` says what of the arguments decides where it goes: a path on the first one (`"job.model"`),
    `arg("model")`, or a pure function of them. `tags` and `pack` are what scopes of workers select by. Timeouts and the
    retry policy hold where neither the dispatch configuration nor the call says otherwise.
    """
    defaults = ActivityDefaults(
        start_to_close_timeout=start_to_close_timeout,
        schedule_to_close_timeout=schedule_to_close_timeout,
        schedule_to_start_timeout=schedule_to_start_timeout,
        heartbeat_timeout=heartbeat_timeout,
        retry_policy=retry_policy,
    )

    def decorate(function: F) -> F:
        told = checked_tags(tags, "@activity.defn")
        mark(
            function, ActivityMark(name, dynamic, runs_in, auto_heartbeat, routing_key, told, pack, defaults)
        )
        return function

    return decorate if fn is None else decorate(fn)


def in_activity() -> bool:
    return CURRENT.get() is not None


def info() -> ActivityInfo:
    return current().info


def heartbeat(*details: Any) -> None:
    """Say that the work goes on, and how far it is: the next attempt finds it in `info().heartbeat_details`.

    Call it as often as you like. What is told last within the throttle interval is sent when that is over.
    """
    context = current()
    with context.shield():  # half a heartbeat would be worse than none
        context.heartbeat(details)


def is_cancelled() -> bool:
    """Whether this attempt was told to stop. The answers to heartbeats tell; without them nobody does."""
    return current().cancelled.is_set()


async def wait_for_cancelled() -> None:
    await current().cancelled.wait()


def wait_for_cancelled_sync(timeout: timedelta | float | None = None) -> bool:
    """Block until the attempt is told to stop; False: the time was over first."""
    return current().cancelled.wait_sync(_seconds(timeout))


def shield_thread_cancel_exception() -> AbstractContextManager[None]:
    """No CancelledError is raised inside; one that was due is raised at the end. For code in threads and processes."""
    return current().shield()


def is_worker_shutdown() -> bool:
    """Whether the worker is about to stop. The activity may go on, and is cancelled when the grace is over."""
    return current().worker_shutdown.is_set()


async def wait_for_worker_shutdown() -> None:
    await current().worker_shutdown.wait()


def wait_for_worker_shutdown_sync(timeout: timedelta | float | None = None) -> bool:
    """Block until the worker is about to stop; False: the time was over first."""
    return current().worker_shutdown.wait_sync(_seconds(timeout))


def throttled(retry_after: timedelta | float | None = None, message: str | None = None) -> NoReturn:
    """Give up because upstream refuses. The attempt is not charged; its budget group rests for as long."""
    raise ActivityThrottled(retry_after, message)


def report_cost(cost: int) -> None:
    """What the attempt really cost, where that differs from its estimate. The last word counts."""
    if isinstance(cost, bool) or not isinstance(cost, int):
        raise TypeError(f"The cost of an activity is a whole number, not {type(cost).__name__}")
    if not 0 <= cost <= COST_MAX:
        raise ValueError(f"The cost of an activity lies between 0 and {COST_MAX:,}, not {cost}")
    current().cost = cost


class LoggerAdapter(logging.LoggerAdapter[logging.Logger]):
    """Adds to each line which activity it is about; outside of activities it adds nothing."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        context = CURRENT.get()
        if context is None:
            return msg, kwargs
        found = context.info
        kwargs["extra"] = {**found.ids, **(kwargs.get("extra") or {})}
        where = f" of workflow {found.workflow_id}" if found.workflow_id else ""
        return (
            f"{msg} (activity {found.activity_type} {found.activity_id}{where}, attempt {found.attempt})",
            kwargs,
        )


logger = LoggerAdapter(logging.getLogger("penstock.activity"), None)


def _seconds(timeout: timedelta | float | None) -> float | None:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
