"""The public API for activity code: `@activity.defn`, and functions for use while an activity runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, MutableMapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from penstock.sdk.activities.context import CURRENT, ActivityCancellationDetails, current
from penstock.sdk.activities.defaults import ActivityDefaults
from penstock.sdk.activities.definition import ActivityDefinition, ActivityMark, RunsIn, checked_tags, mark
from penstock.sdk.activities.info import ActivityInfo, Info
from penstock.sdk.activities.outcomes import CompletesAsync
from penstock.sdk.activities.routing import RoutingKey, RoutingKeyError, arg
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.converters.raw_value import RawValue
from penstock.sdk.failures import ActivityThrottled
from penstock.sdk.retry import RetryPolicy

if TYPE_CHECKING:
    from penstock.sdk.clients.client import Client

__all__ = [
    "ActivityCancellationDetails",
    "ActivityDefinition",
    "ActivityInfo",
    "Info",
    "LoggerAdapter",
    "RawValue",
    "RoutingKeyError",
    "arg",
    "cancellation_details",
    "client",
    "defn",
    "heartbeat",
    "in_activity",
    "info",
    "is_cancelled",
    "is_paused",
    "is_worker_shutdown",
    "logger",
    "payload_converter",
    "raise_complete_async",
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
    """Make a function an activity. The function itself is returned unchanged.

    `async def` functions run in the event loop, `def` functions in a thread. Timeouts and retry policy apply where
    neither the dispatch configuration nor the call sets them.

    Args:
        fn: the function, if the decorator is used without arguments.
        name: name of the activity type; the name of the function unless given.
        dynamic: run for every activity type that the worker has no other activity for. The function takes a
            `Sequence[RawValue]`.
        runs_in: `process` runs the function in a process.
        auto_heartbeat: send heartbeats while the function runs, at an interval that suits the heartbeat timeout
            (True) or at this interval. None takes the worker's option.
        routing_key: what determines the task queue: a path on the first argument (`"job.model"`), `arg("model")`, or
            a pure function of the arguments.
        tags: names by which worker scopes select activities.
        pack: name of a group of definitions by which worker scopes select them.
        start_to_close_timeout: timeout of one attempt.
        schedule_to_close_timeout: timeout of all attempts, including the pauses between them.
        schedule_to_start_timeout: maximum time until a worker starts it.
        heartbeat_timeout: maximum time between two heartbeats.
        retry_policy: when and how often to retry.
    """
    defaults = ActivityDefaults(
        start_to_close_timeout=start_to_close_timeout,
        schedule_to_close_timeout=schedule_to_close_timeout,
        schedule_to_start_timeout=schedule_to_start_timeout,
        heartbeat_timeout=heartbeat_timeout,
        retry_policy=retry_policy,
    )

    def decorate(function: F) -> F:
        checked = checked_tags(tags, "@activity.defn")
        mark(
            function,
            ActivityMark(name, dynamic, runs_in, auto_heartbeat, routing_key, checked, pack, defaults),
        )
        return function

    return decorate if fn is None else decorate(fn)


def in_activity() -> bool:
    """Whether the calling code runs in an activity."""
    return CURRENT.get() is not None


def info() -> ActivityInfo:
    """Return information about the running activity. Raises `RuntimeError` outside of activities."""
    context = current()
    return context.info if context.shown_info is None else context.shown_info()


def heartbeat(*details: Any) -> None:
    """Record a heartbeat. The next attempt finds the details in `info().heartbeat_details`.

    May be called at any rate. Within the throttle interval only the latest details are sent, at its end.

    Args:
        details: how far the activity is, as any encodable values.
    """
    context = current()
    with context.shield():  # a partial heartbeat would be worse than none
        context.heartbeat(details)


def is_cancelled() -> bool:
    """Whether this attempt was asked to stop. Responses to heartbeats say so; without heartbeats it is never known."""
    return current().cancelled.is_set()


def cancellation_details() -> ActivityCancellationDetails | None:
    """Return why this attempt was asked to stop; None if it was not, and for code in a process."""
    return current().stopped


def client() -> Client:
    """Return the client of the worker, to start and signal workflows. For `async def` activities.

    Raises:
        RuntimeError: the code runs in a thread or process, where a client of its own must be connected, or on
            another engine.
    """
    context = current()
    if context.client is None or context.interruption is not None:
        raise RuntimeError(
            "activity.client() is for async activities: the worker's client belongs to its event loop. Connect a"
            " client of your own, such as penstock.SyncClient, where the code runs"
        )
    found: Client = context.client
    return found


def payload_converter() -> DataConverter:
    """Return the data converter of the worker, with `from_payload` for raw values and `to_payload`."""
    return current().converter or DEFAULT


def is_paused() -> bool:
    """Whether an operator has paused this activity, as a heartbeat of this attempt reported.

    The attempt may go on. If it fails, it is retried after the activity was resumed. Code in a process sees False.
    """
    return current().paused.is_set()


async def wait_for_cancelled() -> None:
    """Wait until the attempt is asked to stop."""
    await current().cancelled.wait()


def wait_for_cancelled_sync(timeout: timedelta | float | None = None) -> bool:
    """Block until the attempt is asked to stop.

    Args:
        timeout: how long to wait, in seconds or as a timedelta; None is unlimited.

    Returns:
        False if the timeout expired first.
    """
    return current().cancelled.wait_sync(_seconds(timeout))


def shield_thread_cancel_exception() -> AbstractContextManager[None]:
    """Delay cancellation: no `CancelledError` is raised inside the block, but at its end. For threads and processes."""
    return current().shield()


def is_worker_shutdown() -> bool:
    """Whether the worker shuts down. The activity may continue, and is cancelled after the grace period."""
    return current().worker_shutdown.is_set()


async def wait_for_worker_shutdown() -> None:
    """Wait until the worker shuts down."""
    await current().worker_shutdown.wait()


def wait_for_worker_shutdown_sync(timeout: timedelta | float | None = None) -> bool:
    """Block until the worker shuts down.

    Args:
        timeout: how long to wait, in seconds or as a timedelta; None is unlimited.

    Returns:
        False if the timeout expired first.
    """
    return current().worker_shutdown.wait_sync(_seconds(timeout))


def throttled(retry_after: timedelta | float | None = None, message: str | None = None) -> NoReturn:
    """Stop because a downstream service refuses. No attempt is charged, and the budget group cools down.

    Args:
        retry_after: how long to wait before the next attempt, if the service said so.
        message: what was refused.
    """
    raise ActivityThrottled(retry_after, message)


def raise_complete_async() -> NoReturn:
    """Leave the function; the activity goes on until others complete it by `Client.get_async_activity_handle`.

    The worker's slot is free at once. The timeouts still hold, and caps and limits still count the activity as running.
    """
    context = current()
    why_not = "a local activity" if context.info.is_local else context.no_async_completion
    if why_not is not None:
        raise RuntimeError(
            f"Only an activity that its worker runs itself is completed by others, not {why_not}"
        )
    raise CompletesAsync


def report_cost(cost: int) -> None:
    """Report the actual cost of the attempt, if it differs from the estimate. The last call counts.

    Args:
        cost: in the units of the budget.
    """
    if isinstance(cost, bool) or not isinstance(cost, int):
        raise TypeError(f"The cost of an activity is a whole number, not {type(cost).__name__}")
    if not 0 <= cost <= COST_MAX:
        raise ValueError(f"The cost of an activity lies between 0 and {COST_MAX:,}, not {cost}")
    current().cost = cost


class LoggerAdapter(logging.LoggerAdapter[logging.Logger]):
    """Adds the ids of the running activity to log records; outside of activities it adds nothing."""

    @property
    def base_logger(self) -> logging.Logger:
        """The logger that records go to."""
        return self.logger

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
