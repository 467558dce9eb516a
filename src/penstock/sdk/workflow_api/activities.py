"""Activities and local activities of workflow code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any, TypedDict, TypeVar, Unpack, get_args, overload

from penstock.dispatch import DispatchConfig
from penstock.sdk.call_targets import UNSET, CallTarget, activity_target
from penstock.sdk.clients.interceptors import OnLostLease
from penstock.sdk.converters import Envelope
from penstock.sdk.dispatch_options import Dispatch, config_getter, resolve_options
from penstock.sdk.priority import Priority, priority_fields
from penstock.sdk.replay.commands import CommandKind, StepFuture
from penstock.sdk.replay.determinism_guard import aside
from penstock.sdk.replay.runtime import Runtime, current
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.workflow_api.options import abandon, check_options, delay_ms, one_of

LOCAL_LASTS_MAX = timedelta(minutes=1)
COST_MAX = 1_000_000_000
T = TypeVar("T")
_DEFAULT_RETRY = RetryPolicy()


class ActivityCancellationType(StrEnum):
    """What happens to a cancelled activity, and when the awaiting code continues."""

    TRY_CANCEL = "try_cancel"
    """Cancel the activity and continue immediately, ignoring its outcome."""
    WAIT_CANCELLATION_COMPLETED = "wait_cancellation_completed"
    """Cancel the activity and continue once it has ended, with its result if it completed anyway."""
    ABANDON = "abandon"
    """Do not cancel the activity; continue immediately."""


class ActivityHandle(StepFuture[T]):
    """An activity that was started. Await it for its result.

    `cancel()` cancels the activity according to its `cancellation_type`. Awaiting the handle then raises
    `ActivityError`, caused by `CancelledError`.
    """

    result_type: Any = None


class ActivityOptions(TypedDict, total=False):
    """Options of an activity call. All are optional."""

    args: Sequence[Any]
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


def _timeouts(given: Mapping[str, Any]) -> dict[str, int]:
    fields: dict[str, int] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, timedelta) or value <= timedelta(0):
            raise ValueError(f"{name} must be a positive timedelta, not {value!r}")
        milliseconds = max(1, round(value / timedelta(milliseconds=1)))
        fields[name] = -(-milliseconds // 1000)
        fields[f"{name}_ms"] = milliseconds
    return fields


@overload
def start_activity(
    activity: Callable[..., Awaitable[T]], arg: Any = ..., **options: Unpack[ActivityOptions]
) -> ActivityHandle[T]: ...
@overload
def start_activity(
    activity: Callable[..., T], arg: Any = ..., **options: Unpack[ActivityOptions]
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
    runtime = current()
    called = activity_target(activity)
    arguments = called.arguments(arg, options.get("args", ()))
    routing_key = called.routing_key(arguments, options)
    config = _configuration(runtime, options)
    encoded = runtime.converter.encode_arguments(arguments, f'activity "{called.name}"')
    return _scheduled(runtime, called, options, encoded, routing_key, config)


@aside
def _scheduled(
    runtime: Runtime,
    called: CallTarget,
    options: ActivityOptions,
    arguments: Envelope,
    routing_key: str | None,
    config: DispatchConfig | None,
) -> ActivityHandle[Any]:
    """Issue the command for an activity whose options are resolved."""
    resolved = resolve_options(called.name, routing_key, options, called.defaults, config)
    body: dict[str, Any] = {
        "activity_type": called.name,
        "arguments": arguments,
        "retry_policy": (resolved.retry_policy or _DEFAULT_RETRY).on_the_wire(),
        **_timeouts(resolved.clocks),
        **priority_fields(options.get("priority")),
        **_start_options(options),
    }
    fields = {
        "queue": resolved.task_queue,
        "summary": options.get("summary"),
        "routing_key": resolved.routing_key,
        "dispatch": resolved.provenance,
    }
    body |= {name: value for name, value in fields.items() if value is not None}
    how = ActivityCancellationType(options.get("cancellation_type", ActivityCancellationType.TRY_CANCEL))
    handle: ActivityHandle[Any] = runtime.step(
        CommandKind.ACTIVITY,
        body,
        name=called.name,
        facts={"activity_type": called.name},
        give_up=_cancelling_activity(runtime, how),
        future=ActivityHandle,
    )
    handle.cancelled_error = runtime.activity_cancelled
    handle.command.trace = resolved.trace
    given = options.get("result_type")
    handle.result_type = called.result_type if given is None else given
    return handle


def _cancelling_activity(
    runtime: Runtime, how: ActivityCancellationType
) -> Callable[[StepFuture[Any]], bool] | None:
    """Return what cancelling an activity does; None for the default, to cancel and continue."""
    if how is ActivityCancellationType.ABANDON:
        return abandon
    return runtime.request_cancel if how is ActivityCancellationType.WAIT_CANCELLATION_COMPLETED else None


def _start_options(options: ActivityOptions) -> dict[str, Any]:
    """Return the options of a call beyond its dispatch, as fields of a standalone start."""
    fields: dict[str, Any] = {}
    if options.get("cost_estimate") is not None:
        fields["cost_estimate"] = _cost(options["cost_estimate"])
    if options.get("start_delay") is not None:
        fields["start_delay_ms"] = delay_ms(options["start_delay"])
    if options.get("good_until") is not None:
        fields |= _good_until(options["good_until"])
    if options.get("on_lost_lease") is not None:
        fields["on_lost_lease"] = one_of("on_lost_lease", options["on_lost_lease"], get_args(OnLostLease))
    if options.get("build_id") is not None:
        fields["build_id"] = options["build_id"]
    return fields


def _cost(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= COST_MAX:
        raise ValueError(f"cost_estimate must be a whole number from 0 to {COST_MAX}, not {given!r}")
    return given


def _good_until(given: Any) -> dict[str, Any]:
    if isinstance(given, timedelta) and given > timedelta(0):
        return {"good_for_ms": -(-given // timedelta(milliseconds=1))}
    if isinstance(given, datetime) and given.tzinfo is not None:
        return {"good_until": given.astimezone(UTC).isoformat()}
    raise ValueError(f"good_until must be a positive timedelta or a datetime with a time zone, not {given!r}")


def _configuration(runtime: Runtime, options: ActivityOptions) -> DispatchConfig | None:
    """Return the configuration of the call or of the worker; None in replay: the history has resolved options."""
    if "dispatch" not in options:
        return runtime.dispatch()
    named = config_getter(options["dispatch"])()
    return None if runtime.is_replaying else named


@overload
async def execute_activity(
    activity: Callable[..., Awaitable[T]], arg: Any = ..., **options: Unpack[ActivityOptions]
) -> T: ...
@overload
async def execute_activity(
    activity: Callable[..., T], arg: Any = ..., **options: Unpack[ActivityOptions]
) -> T: ...
@overload
async def execute_activity(activity: str, arg: Any = ..., **options: Unpack[ActivityOptions]) -> Any: ...
async def execute_activity(activity: Any, arg: Any = UNSET, **options: Unpack[ActivityOptions]) -> Any:
    """Run an activity and return its result. Takes the arguments of `start_activity`.

    Raises:
        ActivityError: the activity failed, timed out or was cancelled; its cause is the error.
    """
    return await start_activity(activity, arg, **options)


start_activity_method = start_activity
execute_activity_method = execute_activity


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
) -> StepFuture[Any]:
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
    runtime = current()
    called = activity_target(activity)
    arguments = called.arguments(arg, args)
    envelope = runtime.converter.encode_arguments(arguments, f'activity "{called.name}"')
    defaults = called.defaults
    whole = schedule_to_close_timeout or defaults.schedule_to_close_timeout
    options = {
        "retry_policy": retry_policy or defaults.retry_policy or RetryPolicy(),
        "schedule_to_close_timeout": whole or LOCAL_LASTS_MAX,
        "start_to_close_timeout": start_to_close_timeout or defaults.start_to_close_timeout,
        "summary": summary,
    }
    hint = called.result_type if result_type is None else result_type
    return runtime.start_local_activity(called.name, envelope, options, hint)


async def execute_local_activity(activity: Any, arg: Any = UNSET, **options: Any) -> Any:
    """Run a local activity and return its result. Takes the arguments of `start_local_activity`.

    Raises:
        ActivityError: the activity failed, timed out or was cancelled; its cause is the error.
    """
    return await start_local_activity(activity, arg, **options)
