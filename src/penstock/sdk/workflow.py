"""The public API for workflow code: `from penstock import workflow`.

Workflow code is ordinary async Python on a deterministic event loop. It is replayed from its history whenever a
worker needs it, so it must be deterministic: time, randomness and everything external come from the functions below
and from activities.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import random as dice
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from functools import partial
from typing import Any, Generic, NoReturn, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, get_args, overload

import msgspec

from penstock.dispatch import DispatchConfig
from penstock.sdk.call_targets import UNSET, CallTarget, activity_target, signal_target, workflow_target
from penstock.sdk.clients.interceptors import OnLostLease
from penstock.sdk.converters import DEFAULT as PLAIN
from penstock.sdk.converters import Envelope
from penstock.sdk.dispatch_options import Dispatch, config_getter, resolve_options
from penstock.sdk.id_policies import WorkflowIDReusePolicy
from penstock.sdk.priority import Priority, priority_fields
from penstock.sdk.replay.commands import CommandKind, StepFuture
from penstock.sdk.replay.continue_as_new import ContinueAsNewError
from penstock.sdk.replay.determinism_guard import aside, unguarded
from penstock.sdk.replay.errors import (
    DeterminismViolationError,
    NonDeterminismError,
    NotInWorkflowError,
    ReadOnlyError,
)
from penstock.sdk.replay.events import DEPRECATED, PATCHED
from penstock.sdk.replay.info import Info, ParentInfo
from penstock.sdk.replay.runtime import Runtime, current, maybe_current
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.workflows import definitions
from penstock.sdk.workflows.definitions import Handler

__all__ = [
    "ActivityCancellationType",
    "ActivityHandle",
    "ActivityOptions",
    "ChildWorkflowCancellationType",
    "ChildWorkflowHandle",
    "ChildWorkflowOptions",
    "ContinueAsNewError",
    "DeterminismViolationError",
    "ExternalWorkflowHandle",
    "Info",
    "NonDeterminismError",
    "NotInWorkflowError",
    "ParentClosePolicy",
    "ParentInfo",
    "ReadOnlyError",
    "UpdateMethod",
    "all_handlers_finished",
    "as_completed",
    "continue_as_new",
    "current_update_info",
    "defn",
    "deprecate_patch",
    "execute_activity",
    "execute_activity_method",
    "execute_child_workflow",
    "execute_local_activity",
    "get_external_workflow_handle",
    "get_external_workflow_handle_for",
    "in_workflow",
    "info",
    "init",
    "instance",
    "logger",
    "memo",
    "memo_value",
    "now",
    "patched",
    "query",
    "random",
    "run",
    "set_query_handler",
    "set_signal_handler",
    "set_update_handler",
    "signal",
    "sleep",
    "start_activity",
    "start_activity_method",
    "start_child_workflow",
    "start_local_activity",
    "time",
    "time_ns",
    "unsafe",
    "update",
    "upsert_memo",
    "upsert_search_attributes",
    "uuid4",
    "wait_condition",
]

LOCAL_LASTS_MAX = timedelta(minutes=1)
COST_MAX = 1_000_000_000
T = TypeVar("T")
C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_UNLESS_SAID = RetryPolicy()


# ── definitions ─────────────────────────────────────────────────────────────────────────────────────────────────


@overload
def defn(cls: C) -> C: ...
@overload
def defn(
    *,
    name: str | None = None,
    dynamic: bool = False,
    sandboxed: bool = True,
    failure_exception_types: Sequence[type[BaseException]] = (),
    pack: str | None = None,
) -> Callable[[C], C]: ...
def defn(
    cls: Any = None,
    *,
    name: str | None = None,
    dynamic: bool = False,
    sandboxed: bool = True,
    failure_exception_types: Sequence[type[BaseException]] = (),
    pack: str | None = None,
) -> Any:
    """Make a class a workflow.

    Args:
        cls: the class, if the decorator is used without arguments.
        name: name of the workflow type; the name of the class unless given.
        dynamic: run for every workflow type that the worker has no other class for.
        sandboxed: whether calls of clocks, random number generators and the like are detected.
        failure_exception_types: exceptions that fail the run. Any other exception that is not a `FailureError` counts
            as a bug: the workflow task fails and is retried.
        pack: name of a group of definitions by which worker scopes select them.
    """

    def decorate(cls: C) -> C:
        definition = definitions.define(
            cls,
            name,
            dynamic=dynamic,
            failure_exception_types=tuple(failure_exception_types),
            is_guarded=sandboxed,
            pack=pack,
        )
        setattr(cls, definitions.DEFINITION, definition)
        definition.run.__penstock_owner__ = cls  # type: ignore[attr-defined]
        return cls

    return decorate if cls is None else decorate(cls)


def run(fn: F) -> F:
    """Mark the async run method of a workflow."""
    if not asyncio.iscoroutinefunction(fn):
        raise definitions.DefinitionError(f"{_called(fn)} must be an async method: write `async def`.")
    setattr(fn, definitions.RUN, True)
    return fn


def init(fn: F) -> F:
    """Mark `__init__` to receive the arguments of the run method as well."""
    setattr(fn, definitions.INIT, True)
    return fn


@overload
def signal(fn: F) -> F: ...
@overload
def signal(*, name: str | None = None, dynamic: bool = False) -> Callable[[F], F]: ...
def signal(fn: Any = None, *, name: str | None = None, dynamic: bool = False) -> Any:
    """Mark a signal handler.

    Args:
        fn: the method, if the decorator is used without arguments.
        name: name of the signal; that of the method unless given.
        dynamic: handle all signals without a handler: `(self, name, *args)`.
    """
    return _handler("signal", fn, name, dynamic=dynamic)


@overload
def query(fn: F) -> F: ...
@overload
def query(*, name: str | None = None, dynamic: bool = False) -> Callable[[F], F]: ...
def query(fn: Any = None, *, name: str | None = None, dynamic: bool = False) -> Any:
    """Mark a query handler. It must return immediately and not change anything.

    Args:
        fn: the method, if the decorator is used without arguments.
        name: name of the query; that of the method unless given.
        dynamic: handle all queries without a handler: `(self, name, *args)`.
    """

    def check(fn: Any) -> None:
        if asyncio.iscoroutinefunction(fn):
            raise definitions.DefinitionError(f"{_called(fn)} answers a query: write `def`, not `async def`.")

    return _handler("query", fn, name, dynamic=dynamic, check=check)


class UpdateMethod(Protocol[P, R_co]):
    """An update handler. `validator` marks the method that may reject the update before it is recorded."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def validator(self, check: F) -> F: ...


@overload
def update(fn: Callable[P, R]) -> UpdateMethod[P, R]: ...
@overload
def update(
    *, name: str | None = None, dynamic: bool = False
) -> Callable[[Callable[P, R]], UpdateMethod[P, R]]: ...
def update(fn: Any = None, *, name: str | None = None, dynamic: bool = False) -> Any:
    """Mark an update handler. `@that_method.validator` marks the method that may reject the update.

    Args:
        fn: the method, if the decorator is used without arguments.
        name: name of the update; that of the method unless given.
        dynamic: handle all updates without a handler: `(self, name, *args)`.
    """

    def add_validator(fn: Any) -> None:
        def validator(check: F) -> F:
            if asyncio.iscoroutinefunction(check):
                raise definitions.DefinitionError(f"{_called(check)} is a validator: write `def`.")
            fn.__penstock_validator__ = check
            return check

        fn.validator = validator

    return _handler("update", fn, name, dynamic=dynamic, check=add_validator)


def _handler(
    kind: str, fn: Any, name: str | None, *, dynamic: bool, check: Callable[[Any], None] | None = None
) -> Any:
    if dynamic and name is not None:
        raise definitions.DefinitionError(f"A dynamic handler of {kind}s hears every name: leave `name` out.")

    def decorate(fn: F) -> F:
        if not callable(fn):
            raise definitions.DefinitionError(f"@workflow.{kind} goes above a method, not above {fn!r}.")
        if check is not None:
            check(fn)
        setattr(fn, definitions.HANDLER, (kind, None if dynamic else (name or fn.__name__)))
        return fn

    return decorate if fn is None else decorate(fn)


def _called(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)


# ── the run itself ──────────────────────────────────────────────────────────────────────────────────────────────


def in_workflow() -> bool:
    return maybe_current() is not None


def info() -> Info:
    """Return information about this run."""
    return current().info


def instance() -> Any:
    """Return the instance of the workflow class."""
    return current().instance


def now() -> datetime:
    """Return the time of this run: that of the last event."""
    return current().now


def time() -> float:
    """Return the time of this run in seconds since the epoch."""
    return current().now.timestamp()


def time_ns() -> int:
    return round(current().now.timestamp() * 1_000_000) * 1_000


def random() -> dice.Random:
    """Return a random number generator that gives the same numbers in every replay."""
    runtime = current()
    runtime.check_writable("workflow.random()")
    return runtime.random


def uuid4() -> uuid.UUID:
    return current().uuid4()


def memo() -> Mapping[str, Any]:
    return dict(current().memo)


def memo_value(key: str, default: Any = UNSET) -> Any:
    """Return one value of the memo.

    Args:
        key: the key in the memo.
        default: returned if the key is missing. Without it, `KeyError` is raised.
    """
    found = current().memo.get(key, default)
    if found is UNSET:
        raise KeyError(f"the memo has no {key!r}")
    return found


def upsert_memo(updates: Mapping[str, Any]) -> None:
    """Add to the memo or replace values.

    Args:
        updates: new values by key; None deletes a key.
    """
    runtime = current()
    entries = dict(updates)
    runtime.ask(CommandKind.MEMO, {"entries": PLAIN.encode(entries, "memo")})
    _merge(runtime.memo, entries)


def upsert_search_attributes(attributes: Mapping[str, Any]) -> None:
    """Change the search attributes of this run.

    Args:
        attributes: new values by name; None deletes an attribute.
    """
    runtime = current()
    values = {name: _attribute(value) for name, value in attributes.items()}
    runtime.ask(CommandKind.SEARCH_ATTRIBUTES, {"attributes": values})
    _merge(runtime.search_attributes, values)


def _attribute(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _merge(into: dict[str, Any], changes: Mapping[str, Any]) -> None:
    into.update(changes)
    for name in [name for name, value in into.items() if value is None]:
        del into[name]


def patched(change_id: str) -> bool:
    """Whether this run takes the patched path. Runs that started before the patch keep the old one.

    Args:
        change_id: name of the change.
    """
    return current().patched(change_id, PATCHED)


def deprecate_patch(change_id: str) -> None:
    """Mark a patch as deprecated: no run takes the old path any more. Remove the call once all runs that made it are
    closed.

    Args:
        change_id: name of the change.
    """
    current().patched(change_id, DEPRECATED)


def continue_as_new(
    arg: Any = UNSET,
    *,
    args: Sequence[Any] = (),
    workflow: Any = None,
    task_queue: str | None = None,
    priority: Priority | None = None,
    run_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
    memo: Mapping[str, Any] | None = None,
    search_attributes: Mapping[str, Any] | None = None,
    task_timeout: None = None,
) -> NoReturn:
    """Close this run and continue as a new one with an empty history. No code after this call runs.

    Options that are left out are inherited from this run.

    Args:
        arg: the only argument of the new run.
        args: the arguments, if there are several.
        workflow: another workflow to continue as: its class, its run method or its name.
        task_queue: the task queue of the new run.
        priority: priority level, fairness key and weight of the new run; fields that are None are inherited.
        run_timeout: timeout of the new run. The execution timeout covers the whole chain and stays.
        retry_policy: for a child workflow, how often the new run is retried. Other runs are not retried.
        memo: replaces the memo of this run.
        search_attributes: replace the search attributes of this run.
        task_timeout: not supported; the time for a workflow task is an option of the worker.

    Raises:
        TypeError: an option that this run cannot have. The workflow task fails with it and is retried, as with any
            bug in workflow code.
    """
    runtime = current()
    if runtime.is_read_only is not None:
        raise ReadOnlyError(f"{runtime.is_read_only} must not end the run.")
    if task_timeout is not None:
        raise TypeError(
            "continue_as_new() does not support task_timeout; set the worker's workflow task timeout instead"
        )
    if retry_policy is not None and runtime.info.parent is None:
        raise TypeError(
            "continue_as_new() supports retry_policy only in child workflows: a run that a client started is not"
            " retried"
        )
    if workflow is None:
        called = CallTarget("workflow", runtime.info.workflow_type)
    else:
        called = workflow_target(workflow)
    arguments = called.arguments(arg, args)
    body: dict[str, Any] = {
        "arguments": runtime.converter.encode_arguments(arguments, f'workflow "{called.name}"'),
        "queue": task_queue or runtime.info.task_queue,
        "workflow_type": called.name,
        **_whole_seconds(run_timeout_seconds=run_timeout),
        **priority_fields(priority),
        **_found_with(memo, search_attributes),
    }
    if retry_policy is not None:
        body["retry_policy"] = retry_policy.on_the_wire()
    raise ContinueAsNewError(body)


def _found_with(
    memo: Mapping[str, Any] | None, search_attributes: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """Return memo and search attributes of a run to start. The server stores both as plain JSON."""
    fields: dict[str, dict[str, Any]] = {}
    if memo is not None:
        fields["memo"] = msgspec.to_builtins(dict(memo), str_keys=True)
    if search_attributes is not None:
        fields["search_attributes"] = {name: _attribute(value) for name, value in search_attributes.items()}
    return fields


# ── waiting ─────────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── activities ──────────────────────────────────────────────────────────────────────────────────────────────────


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


def _abandon(future: StepFuture[Any]) -> bool:
    future.command.given_up = True
    return True


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
    _check_options("start_activity", options, ActivityOptions)
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
    how_sent = resolve_options(called.name, routing_key, options, called.defaults, config)
    body: dict[str, Any] = {
        "activity_type": called.name,
        "arguments": arguments,
        "retry_policy": (how_sent.retry_policy or _UNLESS_SAID).on_the_wire(),
        **_timeouts(how_sent.clocks),
        **priority_fields(options.get("priority")),
        **_start_options(options),
    }
    fields = {
        "queue": how_sent.task_queue,
        "summary": options.get("summary"),
        "routing_key": how_sent.routing_key,
        "dispatch": how_sent.provenance,
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
    handle.command.trace = how_sent.trace
    given = options.get("result_type")
    handle.result_type = called.result_type if given is None else given
    return handle


def _cancelling_activity(
    runtime: Runtime, how: ActivityCancellationType
) -> Callable[[StepFuture[Any]], bool] | None:
    """Return what cancelling an activity does; None for the default, to cancel and continue."""
    if how is ActivityCancellationType.ABANDON:
        return _abandon
    return runtime.request_cancel if how is ActivityCancellationType.WAIT_CANCELLATION_COMPLETED else None


def _start_options(options: ActivityOptions) -> dict[str, Any]:
    """Return the options of a call beyond its dispatch, as fields of a standalone start."""
    fields: dict[str, Any] = {}
    if options.get("cost_estimate") is not None:
        fields["cost_estimate"] = _cost(options["cost_estimate"])
    if options.get("start_delay") is not None:
        fields["start_delay_ms"] = _delay_ms(options["start_delay"])
    if options.get("good_until") is not None:
        fields |= _good_until(options["good_until"])
    if options.get("on_lost_lease") is not None:
        fields["on_lost_lease"] = _one_of("on_lost_lease", options["on_lost_lease"], get_args(OnLostLease))
    if options.get("build_id") is not None:
        fields["build_id"] = options["build_id"]
    return fields


def _cost(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= COST_MAX:
        raise ValueError(f"cost_estimate must be a whole number from 0 to {COST_MAX}, not {given!r}")
    return given


def _delay_ms(given: Any) -> int:
    if not isinstance(given, timedelta) or given < timedelta(0):
        raise ValueError(f"start_delay must be a timedelta that is not negative, not {given!r}")
    return -(-given // timedelta(milliseconds=1))


def _good_until(given: Any) -> dict[str, Any]:
    if isinstance(given, timedelta) and given > timedelta(0):
        return {"good_for_ms": -(-given // timedelta(milliseconds=1))}
    if isinstance(given, datetime) and given.tzinfo is not None:
        return {"good_until": given.astimezone(UTC).isoformat()}
    raise ValueError(f"good_until must be a positive timedelta or a datetime with a time zone, not {given!r}")


def _one_of(name: str, given: Any, known: Sequence[str]) -> Any:
    if given not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {given!r}")
    return given


def _configuration(runtime: Runtime, options: ActivityOptions) -> DispatchConfig | None:
    """Return the configuration of the call or of the worker; None in replay, because the history has the resolved
    options.
    """
    if "dispatch" not in options:
        return runtime.dispatch()
    named = config_getter(options["dispatch"])()
    return None if runtime.is_replaying else named


def _check_options(function: str, options: Mapping[str, Any], known: Any) -> None:
    """Refuse a misspelt option, as Python refuses a misspelt argument."""
    for name in options:
        if name not in known.__annotations__:
            near = difflib.get_close_matches(name, known.__annotations__, 1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


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


# ── children and other workflows ────────────────────────────────────────────────────────────────────────────────


class ParentClosePolicy(StrEnum):
    """What happens to an open child when its parent closes."""

    TERMINATE = "terminate"
    ABANDON = "abandon"
    REQUEST_CANCEL = "request_cancel"


class ChildWorkflowCancellationType(StrEnum):
    """What happens to a cancelled child, and when the awaiting code continues."""

    TRY_CANCEL = "try_cancel"
    """Cancel the child and continue immediately, ignoring its outcome."""
    WAIT_CANCELLATION_COMPLETED = "wait_cancellation_completed"
    """Cancel the child and continue once it has closed, with its result if it completed anyway."""
    WAIT_CANCELLATION_REQUESTED = "wait_cancellation_requested"
    """Cancel the child and continue once the request is in its history."""
    ABANDON = "abandon"
    """Do not cancel the child; continue immediately."""


class ChildWorkflowHandle(StepFuture[T]):
    """A child workflow that was started. Await it for its result.

    `cancel()` cancels the child according to its `cancellation_type`. Awaiting the handle then raises
    `ChildWorkflowError`, caused by `CancelledError`.
    """

    id: str
    result_type: Any = None

    async def signal(self, signal: Any, arg: Any = UNSET, *, args: Sequence[Any] = ()) -> None:
        """Send a signal to the child. Raises if it is closed, even if its id belongs to another workflow by now.

        Args:
            signal: the signal method, or its name.
            arg: the only argument of the signal.
            args: the arguments, if there are several.
        """
        child = get_external_workflow_handle(self.id)
        child._is_child = True
        await child.signal(signal, arg, args=args)


class ChildWorkflowOptions(TypedDict, total=False):
    """Options of a child workflow. All are optional."""

    args: Sequence[Any]
    id: str | None
    """The workflow id; None generates one."""
    id_reuse_policy: WorkflowIDReusePolicy
    """Whether the child may reuse the id of a closed workflow; it may by default."""
    task_queue: str | None
    result_type: Any
    cancellation_type: ChildWorkflowCancellationType
    parent_close_policy: ParentClosePolicy
    """Left out, the child is terminated with its parent."""
    execution_timeout: timedelta | None
    run_timeout: timedelta | None
    retry_policy: RetryPolicy | None
    """None does not retry a child that fails."""
    priority: Priority | None
    memo: Mapping[str, Any] | None
    search_attributes: Mapping[str, Any] | None
    business_key: str | None
    build_id: str | None
    """Only workers of this build run it."""
    start_delay: timedelta | None
    """Delay before its first workflow task. Timeouts start after it."""


@overload
async def start_child_workflow(
    workflow: Callable[..., Awaitable[T]], arg: Any = ..., **options: Unpack[ChildWorkflowOptions]
) -> ChildWorkflowHandle[T]: ...
@overload
async def start_child_workflow(
    workflow: Any, arg: Any = ..., **options: Unpack[ChildWorkflowOptions]
) -> ChildWorkflowHandle[Any]: ...
async def start_child_workflow(
    workflow: Any, arg: Any = UNSET, **options: Unpack[ChildWorkflowOptions]
) -> ChildWorkflowHandle[Any]:
    """Start a workflow as a child of this run and continue. Await the handle for its result.

    A child that cannot be started fails when the handle is awaited: with `WorkflowAlreadyStartedError` if its id is
    in use, or with a `ChildWorkflowError` caused by an `ApplicationError` of type `InvalidWorkflowId`.

    Args:
        workflow: the workflow class, its run method, or its name.
        arg: the only argument of the run method; several are given as `args`.
        options: see `ChildWorkflowOptions`: id, task queue, timeouts, policies and others.
    """
    _check_options("start_child_workflow", options, ChildWorkflowOptions)
    runtime = current()
    called = workflow_target(workflow)
    arguments = called.arguments(arg, options.get("args", ()))
    child_id = options.get("id") or str(runtime.uuid4())
    retry_policy = options.get("retry_policy")
    body: dict[str, Any] = {
        "workflow_type": called.name,
        "workflow_id": child_id,
        "id_reuse_policy": WorkflowIDReusePolicy(
            options.get("id_reuse_policy", WorkflowIDReusePolicy.ALLOW_DUPLICATE)
        ).value,
        "arguments": runtime.converter.encode_arguments(arguments, f'workflow "{called.name}"'),
        "parent_close_policy": ParentClosePolicy(
            options.get("parent_close_policy", ParentClosePolicy.TERMINATE)
        ).value,
        **_whole_seconds(
            execution_timeout_seconds=options.get("execution_timeout"),
            run_timeout_seconds=options.get("run_timeout"),
        ),
        **priority_fields(options.get("priority")),
        **_found_with(options.get("memo"), options.get("search_attributes")),
    }
    delay = options.get("start_delay")
    fields = {
        "queue": options.get("task_queue"),
        "retry_policy": None if retry_policy is None else retry_policy.on_the_wire(),
        "business_key": options.get("business_key"),
        "build_id": options.get("build_id"),
        "start_delay_ms": None if delay is None else _delay_ms(delay),
    }
    body |= {name: value for name, value in fields.items() if value is not None}
    how = ChildWorkflowCancellationType(
        options.get("cancellation_type", ChildWorkflowCancellationType.TRY_CANCEL)
    )
    handle: ChildWorkflowHandle[Any] = runtime.step(
        CommandKind.CHILD,
        body,
        name=called.name,
        facts={"child_workflow_type": called.name},
        give_up=_cancelling_child(runtime, child_id, how),
        future=ChildWorkflowHandle,
    )
    handle.cancelled_error = runtime.child_cancelled
    handle.id = child_id
    given = options.get("result_type")
    handle.result_type = called.result_type if given is None else given
    return handle


def _cancelling_child(
    runtime: Runtime, child_id: str, how: ChildWorkflowCancellationType
) -> Callable[[StepFuture[Any]], bool] | None:
    """Return what cancelling a child does; None for the default, to cancel and continue."""
    if how is ChildWorkflowCancellationType.ABANDON:
        return _abandon
    if how is ChildWorkflowCancellationType.TRY_CANCEL:
        return None

    goes_on_when_requested = how is ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED

    def request_and_wait(future: StepFuture[Any]) -> bool:
        if runtime.is_closing or not future.command.is_taken:
            return runtime.give_up(future)
        if not future.command.given_up:
            future.command.given_up = True
            body = {"workflow_id": child_id, "child_workflow_only": True}
            request = runtime.step(CommandKind.CANCEL_EXTERNAL, body, name=child_id)
            request.add_done_callback(partial(_cancel_requested, future if goes_on_when_requested else None))
        return False

    return request_and_wait


def _cancel_requested(child: StepFuture[Any] | None, request: StepFuture[Any]) -> None:
    """Handle the response to a cancel request. A refusal has no effect: the child is closed, and its outcome
    follows.
    """
    if request.cancelled() or request.exception() is not None or child is None:
        return
    child.fail_as_cancelled()


def _whole_seconds(**given: timedelta | None) -> dict[str, int]:
    return {name: _ceil(name, value) for name, value in given.items() if value is not None}


def _ceil(name: str, value: timedelta) -> int:
    if value <= timedelta(0):
        raise ValueError(f"{name.removesuffix('_seconds')} must be positive, not {value}")
    return -(-value // timedelta(seconds=1))


@overload
async def execute_child_workflow(
    workflow: Callable[..., Awaitable[T]], arg: Any = ..., **options: Unpack[ChildWorkflowOptions]
) -> T: ...
@overload
async def execute_child_workflow(
    workflow: Any, arg: Any = ..., **options: Unpack[ChildWorkflowOptions]
) -> Any: ...
async def execute_child_workflow(
    workflow: Any, arg: Any = UNSET, **options: Unpack[ChildWorkflowOptions]
) -> Any:
    """Run a child workflow and return its result. Takes the arguments of `start_child_workflow`.

    Raises:
        ChildWorkflowError: the child failed, timed out, was cancelled or terminated; its cause is the error.
    """
    handle = await start_child_workflow(workflow, arg, **options)
    return await handle


class ExternalWorkflowHandle(Generic[T]):
    """Another workflow of the same namespace."""

    def __init__(self, workflow_id: str, run_id: str | None = None) -> None:
        self.id = workflow_id
        self.run_id = run_id
        self._is_child = False

    async def signal(self, signal: Any, arg: Any = UNSET, *, args: Sequence[Any] = ()) -> None:
        """Send a signal. Returns once it is recorded there; raises if the workflow does not exist or is closed.

        Args:
            signal: the signal method, or its name.
            arg: the only argument of the signal.
            args: the arguments, if there are several.
        """
        runtime = current()
        called = signal_target(signal)
        arguments = called.arguments(arg, args)
        body = {
            **self._address(),
            "signal_name": called.name,
            "arguments": runtime.converter.encode_arguments(arguments, f'signal "{called.name}"'),
        }
        facts = {"workflow_id": self.id, "signal_name": called.name}
        await runtime.step(CommandKind.SIGNAL_EXTERNAL, body, name=called.name, facts=facts)

    async def cancel(self, reason: str | None = None) -> None:
        """Request cancellation. Returns once the request is recorded there.

        Args:
            reason: recorded with the request.
        """
        body = self._address() | ({} if reason is None else {"reason": reason})
        await current().step(CommandKind.CANCEL_EXTERNAL, body, name=self.id, facts={"workflow_id": self.id})

    def _address(self) -> dict[str, Any]:
        named = {"workflow_id": self.id} | ({} if self.run_id is None else {"run_id": self.run_id})
        return named | ({"child_workflow_only": True} if self._is_child else {})


def get_external_workflow_handle(
    workflow_id: str, *, run_id: str | None = None
) -> ExternalWorkflowHandle[Any]:
    current()
    return ExternalWorkflowHandle(workflow_id, run_id)


def get_external_workflow_handle_for(
    workflow: Any, workflow_id: str, *, run_id: str | None = None
) -> ExternalWorkflowHandle[Any]:
    workflow_target(workflow)
    return get_external_workflow_handle(workflow_id, run_id=run_id)


# ── handlers set at run time ────────────────────────────────────────────────────────────────────────────────────


def set_signal_handler(name: str | None, handler: Callable[..., Any] | None) -> None:
    """Set or remove a signal handler at run time. Buffered signals are delivered to it.

    Args:
        name: name of the signal; None handles all signals without a handler.
        handler: the function; None removes the handler.
    """
    _set("signal", name, handler)


def set_query_handler(name: str | None, handler: Callable[..., Any] | None) -> None:
    _set("query", name, handler)


def set_update_handler(
    name: str | None,
    handler: Callable[..., Any] | None,
    *,
    validator: Callable[..., Any] | None = None,
) -> None:
    _set("update", name, handler, validator)


def _set(
    kind: str,
    name: str | None,
    handler: Callable[..., Any] | None,
    validator: Callable[..., Any] | None = None,
) -> None:
    runtime = current()
    runtime.check_writable(f"workflow.set_{kind}_handler()")
    made: Handler | None = None
    if handler is not None:
        made = definitions.handler_from(kind, name, handler, validator)
    runtime.handlers.set_handler(kind, name, made)


# ── logging ─────────────────────────────────────────────────────────────────────────────────────────────────────


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """Adds the ids of the run to log records, and is silent during replay."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        runtime = maybe_current()
        if runtime is None:
            return msg, kwargs
        current = runtime.info
        extra = dict(kwargs.get("extra") or {})
        extra |= {
            "workflow_id": current.workflow_id,
            "run_id": current.run_id,
            "workflow_type": current.workflow_type,
        }
        kwargs["extra"] = extra
        return f"{msg} (workflow {current.workflow_id}, run {current.run_id})", kwargs

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name that logging has
        runtime = maybe_current()
        if runtime is not None and runtime.is_silent:
            return False
        return super().isEnabledFor(level)


logger = _Logger(logging.getLogger("penstock.workflow"), {})


def _is_news(_: logging.LogRecord) -> bool:
    """Suppress dispatch traces of code that resolves options itself during replay."""
    runtime = maybe_current()
    return runtime is None or not runtime.is_silent


logging.getLogger("penstock.dispatch").addFilter(_is_news)


# ── unsafe ──────────────────────────────────────────────────────────────────────────────────────────────────────


class unsafe:  # noqa: N801 - reads as a word: workflow.unsafe.is_replaying()
    """Functions that workflow code rarely needs and that can break determinism."""

    @staticmethod
    def in_sandbox() -> bool:
        return in_workflow()

    @staticmethod
    def is_replaying() -> bool:
        """Whether the code is being replayed. Never make decisions by it."""
        return current().is_replaying

    @staticmethod
    @contextmanager
    def imports_passed_through() -> Iterator[None]:
        """Does nothing: imports are always passed through. For code shared with other SDKs."""
        yield

    @staticmethod
    @contextmanager
    def sandbox_unrestricted() -> Iterator[None]:
        """Disable the determinism guard for a block."""
        with unguarded():
            yield
