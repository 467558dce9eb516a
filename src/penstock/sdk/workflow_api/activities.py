"""Activities and local activities of workflow code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypedDict, TypeVar, Unpack, overload

from penstock.dispatch import DispatchConfig
from penstock.sdk.call_targets import UNSET, activity_target
from penstock.sdk.clients.call_types import (
    ArgT,
    AsyncCallable,
    AsyncFunction0,
    AsyncFunction1,
    AsyncMethod0,
    AsyncMethod1,
    Function0,
    Function1,
    SelfT,
    SyncMethod0,
    SyncMethod1,
)
from penstock.sdk.clients.interceptors import OnLostLease
from penstock.sdk.dispatch_options import Dispatch, config_getter
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.workflow_api.options import check_options, checked_summary
from penstock.sdk.workflow_port.handles import ActivityCancellationType, ActivityHandle
from penstock.sdk.workflow_port.port import WorkflowPort, current

LOCAL_LASTS_MAX = timedelta(minutes=1)
T = TypeVar("T")


class ActivityCallOptions(TypedDict, total=False):
    """Options of an activity call beside its arguments."""

    task_queue: str | None
    """None is the queue of the workflow."""
    result_type: Any
    schedule_to_close_timeout: timedelta | None
    schedule_to_start_timeout: timedelta | None
    start_to_close_timeout: timedelta | None
    heartbeat_timeout: timedelta | None
    retry_policy: RetryPolicy | None
    """None retries without limit."""
    cancellation_type: ActivityCancellationType
    summary: str | None
    """Shown in the history."""
    priority: Priority | None
    routing_key: str | Enum | None
    """The routing key; None is none. Left out, it is computed from the arguments as the definition says."""
    dispatch: Dispatch | None
    """None ignores the worker's dispatch configuration for this call."""
    cost_estimate: int | None
    """Expected cost for budget groups that count cost, in their units."""
    start_delay: timedelta | None
    """Delay before the first attempt. Timeouts start after it."""
    good_until: datetime | timedelta | None
    """Latest start, as a time or as a duration after it may first start. After that it times out."""
    on_lost_lease: OnLostLease | None
    """What happens if its worker dies: `redeliver` without charging an attempt (the default), or `fail` the attempt.
    """
    build_id: str | None
    """Only workers of this build run it; None is the build that the run is pinned to, if any."""


class ActivityOptions(ActivityCallOptions, total=False):
    """Options of an activity call. All are optional."""

    args: Sequence[Any]


@overload
def start_activity(
    activity: AsyncFunction0[T], **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity(activity: Function0[T], **options: Unpack[ActivityCallOptions]) -> ActivityHandle[T]: ...
@overload
def start_activity(
    activity: AsyncFunction1[ArgT, T], arg: ArgT, **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity(
    activity: Function1[ArgT, T], arg: ArgT, **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity(
    activity: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity(
    activity: Callable[..., T], *, args: Sequence[Any], **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity(
    activity: str, arg: Any = ..., **options: Unpack[ActivityOptions]
) -> ActivityHandle[Any]: ...
def start_activity(
    activity: Any, arg: Any = UNSET, **options: Unpack[ActivityOptions]
) -> ActivityHandle[Any]:
    """Start an activity and continue. Await the handle for its result.

    Queue, timeouts and retries come from the worker's dispatch configuration, the definition and the call; the call
    takes precedence. Without any of them the activity goes to the queue of the workflow and is retried without limit.

    Args:
        activity: the activity, or its name.
        arg: the only argument of the activity; several are given as `args`.
        options: see `ActivityOptions`: task queue, timeouts, retry policy, priority, cancellation type and others.
            `dispatch=None` ignores the dispatch configuration.
    """
    check_options("start_activity", options, ActivityOptions)
    port = current()
    called = activity_target(activity)
    arguments = called.arguments(arg, options.get("args", ()))
    routing_key = called.routing_key(arguments, options)
    handle: ActivityHandle[Any] = port.start_activity(
        called, arguments, options, routing_key, _configuration(port, options)
    )
    return handle


def _configuration(port: WorkflowPort, options: ActivityOptions) -> DispatchConfig | None:
    """Return the configuration of the call or of the worker; None in replay: the history has resolved options."""
    if "dispatch" not in options:
        return port.dispatch()
    named = config_getter(options["dispatch"])()
    return None if port.is_replaying else named


@overload
async def execute_activity(activity: AsyncFunction0[T], **options: Unpack[ActivityCallOptions]) -> T: ...
@overload
async def execute_activity(activity: Function0[T], **options: Unpack[ActivityCallOptions]) -> T: ...
@overload
async def execute_activity(
    activity: AsyncFunction1[ArgT, T], arg: ArgT, **options: Unpack[ActivityCallOptions]
) -> T: ...
@overload
async def execute_activity(
    activity: Function1[ArgT, T], arg: ArgT, **options: Unpack[ActivityCallOptions]
) -> T: ...
@overload
async def execute_activity(
    activity: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[ActivityCallOptions]
) -> T: ...
@overload
async def execute_activity(
    activity: Callable[..., T], *, args: Sequence[Any], **options: Unpack[ActivityCallOptions]
) -> T: ...
@overload
async def execute_activity(activity: str, arg: Any = ..., **options: Unpack[ActivityOptions]) -> Any: ...
async def execute_activity(activity: Any, arg: Any = UNSET, **options: Unpack[ActivityOptions]) -> Any:
    """Run an activity and return its result. Takes the arguments of `start_activity`.

    Raises:
        ActivityError: the activity failed, timed out or was cancelled; its cause is the error.
    """
    return await start_activity(activity, arg, **options)


@overload
def start_activity_method(
    activity: AsyncMethod0[SelfT, T], **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity_method(
    activity: SyncMethod0[SelfT, T], **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity_method(
    activity: AsyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity_method(
    activity: SyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity_method(
    activity: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity_method(
    activity: Callable[..., T], *, args: Sequence[Any], **options: Unpack[ActivityCallOptions]
) -> ActivityHandle[T]: ...
def start_activity_method(
    activity: Any, arg: Any = UNSET, **options: Unpack[ActivityOptions]
) -> ActivityHandle[Any]:
    """Start an activity that is a method of a class.

    Args:
        activity: the method, as `Class.method`.
        arg: the only argument of the activity; several are given as `args`.
        options: see `start_activity`.
    """
    return start_activity(activity, arg, **options)


@overload
async def execute_activity_method(
    activity: AsyncMethod0[SelfT, T], **options: Unpack[ActivityCallOptions]
) -> T: ...
@overload
async def execute_activity_method(
    activity: SyncMethod0[SelfT, T], **options: Unpack[ActivityCallOptions]
) -> T: ...
@overload
async def execute_activity_method(
    activity: AsyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[ActivityCallOptions]
) -> T: ...
@overload
async def execute_activity_method(
    activity: SyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[ActivityCallOptions]
) -> T: ...
@overload
async def execute_activity_method(
    activity: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[ActivityCallOptions]
) -> T: ...
@overload
async def execute_activity_method(
    activity: Callable[..., T], *, args: Sequence[Any], **options: Unpack[ActivityCallOptions]
) -> T: ...
async def execute_activity_method(activity: Any, arg: Any = UNSET, **options: Unpack[ActivityOptions]) -> Any:
    """Run an activity that is a method of a class, and return its result.

    Args:
        activity: the method, as `Class.method`.
        arg: the only argument of the activity; several are given as `args`.
        options: see `execute_activity`.
    """
    return await execute_activity(activity, arg, **options)


def start_activity_class(
    activity: type[Any], arg: Any = UNSET, **options: Unpack[ActivityOptions]
) -> ActivityHandle[Any]:
    """Start the activity of a class whose `__call__` is decorated with `@activity.defn(name=…)`.

    Args:
        activity: the class.
        arg: the only argument of the activity; several are given as `args`.
        options: see `start_activity`.
    """
    return start_activity(_call_of(activity), arg, **options)


async def execute_activity_class(
    activity: type[Any], arg: Any = UNSET, **options: Unpack[ActivityOptions]
) -> Any:
    """Run the activity of a class and return its result. Takes the arguments of `start_activity_class`."""
    return await start_activity(_call_of(activity), arg, **options)


def _call_of(activity: object) -> Any:
    if not isinstance(activity, type) or activity.__call__ is type.__call__:
        raise TypeError(f"{activity!r} is not a class with an activity as its __call__: pass the class")
    return activity.__call__


class LocalActivityCallOptions(TypedDict, total=False):
    """Options of a local activity call beside its arguments."""

    result_type: Any
    schedule_to_close_timeout: timedelta | None
    start_to_close_timeout: timedelta | None
    retry_policy: RetryPolicy | None
    summary: str | None
    """Shown in the history."""


class LocalActivityOptions(LocalActivityCallOptions, total=False):
    """Options of a local activity call. All are optional."""

    args: Sequence[Any]


@overload
def start_local_activity(
    activity: AsyncFunction0[T], **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity(
    activity: Function0[T], **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity(
    activity: AsyncFunction1[ArgT, T], arg: ArgT, **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity(
    activity: Function1[ArgT, T], arg: ArgT, **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity(
    activity: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity(
    activity: Callable[..., T], *, args: Sequence[Any], **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity(
    activity: str, arg: Any = ..., **options: Unpack[LocalActivityOptions]
) -> asyncio.Future[Any]: ...
def start_local_activity(
    activity: Any,
    arg: Any = UNSET,
    *,
    args: Sequence[Any] = (),
    result_type: Any = None,
    schedule_to_close_timeout: timedelta | None = None,
    start_to_close_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
    summary: str | None = None,
) -> asyncio.Future[Any]:
    """Start an activity in the worker that runs this code, within the workflow task: for short work without a queue.

    Until it has ended nothing else of the run progresses: no timer, signal or result is processed, and earlier
    commands are not sent.

    Args:
        activity: the activity, or its name.
        arg: the only argument of the activity.
        args: the arguments, if there are several.
        result_type: type of the result, if the activity is given by name.
        schedule_to_close_timeout: timeout of all attempts; one minute unless given.
        start_to_close_timeout: timeout of one attempt.
        retry_policy: when and how often to retry.
        summary: shown in the history.
    """
    port = current()
    called = activity_target(activity)
    arguments = called.arguments(arg, args)
    defaults = called.defaults
    whole = schedule_to_close_timeout or defaults.schedule_to_close_timeout
    options = {
        "retry_policy": retry_policy or defaults.retry_policy or RetryPolicy(),
        "schedule_to_close_timeout": whole or LOCAL_LASTS_MAX,
        "start_to_close_timeout": start_to_close_timeout or defaults.start_to_close_timeout,
        "summary": checked_summary(summary),
    }
    hint = called.result_type if result_type is None else result_type
    return port.start_local_activity(called, arguments, options, hint)


@overload
async def execute_local_activity(
    activity: AsyncFunction0[T], **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity(
    activity: Function0[T], **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity(
    activity: AsyncFunction1[ArgT, T], arg: ArgT, **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity(
    activity: Function1[ArgT, T], arg: ArgT, **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity(
    activity: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity(
    activity: Callable[..., T], *, args: Sequence[Any], **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity(
    activity: str, arg: Any = ..., **options: Unpack[LocalActivityOptions]
) -> Any: ...
async def execute_local_activity(
    activity: Any, arg: Any = UNSET, **options: Unpack[LocalActivityOptions]
) -> Any:
    """Run a local activity and return its result. Takes the arguments of `start_local_activity`.

    Raises:
        ActivityError: the activity failed, timed out or was cancelled; its cause is the error.
    """
    return await start_local_activity(activity, arg, **options)


@overload
def start_local_activity_method(
    activity: AsyncMethod0[SelfT, T], **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity_method(
    activity: SyncMethod0[SelfT, T], **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity_method(
    activity: AsyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity_method(
    activity: SyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity_method(
    activity: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
@overload
def start_local_activity_method(
    activity: Callable[..., T], *, args: Sequence[Any], **options: Unpack[LocalActivityCallOptions]
) -> asyncio.Future[T]: ...
def start_local_activity_method(
    activity: Any, arg: Any = UNSET, **options: Unpack[LocalActivityOptions]
) -> asyncio.Future[Any]:
    """Start a method of a class as a local activity.

    Args:
        activity: the method, as `Class.method`.
        arg: the only argument of the activity; several are given as `args`.
        options: see `start_local_activity`.
    """
    return start_local_activity(activity, arg, **options)


@overload
async def execute_local_activity_method(
    activity: AsyncMethod0[SelfT, T], **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity_method(
    activity: SyncMethod0[SelfT, T], **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity_method(
    activity: AsyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity_method(
    activity: SyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity_method(
    activity: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[LocalActivityCallOptions]
) -> T: ...
@overload
async def execute_local_activity_method(
    activity: Callable[..., T], *, args: Sequence[Any], **options: Unpack[LocalActivityCallOptions]
) -> T: ...
async def execute_local_activity_method(
    activity: Any, arg: Any = UNSET, **options: Unpack[LocalActivityOptions]
) -> Any:
    """Run a method of a class as a local activity, and return its result.

    Args:
        activity: the method, as `Class.method`.
        arg: the only argument of the activity; several are given as `args`.
        options: see `execute_local_activity`.
    """
    return await execute_local_activity(activity, arg, **options)


def start_local_activity_class(
    activity: type[Any], arg: Any = UNSET, **options: Unpack[LocalActivityOptions]
) -> asyncio.Future[Any]:
    """Start the activity of a class as a local activity.

    Args:
        activity: the class, whose `__call__` is decorated with `@activity.defn(name=…)`.
        arg: the only argument of the activity.
        options: see `start_local_activity`.
    """
    return start_local_activity(_call_of(activity), arg, **options)


async def execute_local_activity_class(
    activity: type[Any], arg: Any = UNSET, **options: Unpack[LocalActivityOptions]
) -> Any:
    """Run the activity of a class as a local activity. Takes the arguments of `start_local_activity_class`."""
    return await start_local_activity_class(activity, arg, **options)
