"""Options and arguments of starts, validated before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Protocol,
    Required,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from penstock.core import identifiers
from penstock.dispatch import DispatchConfig
from penstock.schema.nearest import nearest
from penstock.sdk.call_targets import UNSET, CallTarget, activity_target, signal_target, workflow_target
from penstock.sdk.clients.call_types import (
    ArgT,
    AsyncCallable,
    AsyncMethod0,
    AsyncMethod1,
    NamedCallArgs,
    ResultT,
    ResultT_co,
    SelfT,
)
from penstock.sdk.clients.interceptors import (
    OnLostLease,
    StartActivityInput,
    StartWorkflowInput,
    UniqueConflictPolicy,
    UniqueUntil,
    new_id,
)
from penstock.sdk.dispatch_options import Dispatch, config_getter, resolve_options
from penstock.sdk.id_policies import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.search_attributes import GivenAttributes, attributes_by_name

if TYPE_CHECKING:
    from penstock.sdk.clients.handles import WorkflowHandle

OwnT = TypeVar("OwnT")


class HasRun(Protocol[ResultT_co]):
    """A workflow class whose run method is named `run`."""

    def run(self, *args: Any, **kwargs: Any) -> Awaitable[ResultT_co]: ...


class UniqueOptions(TypedDict, total=False):
    """How a start meets others with its unique key."""

    unique_key: str
    """At most one run of the type holds it; a start that finds it held returns a handle of that run."""
    unique_until: UniqueUntil
    """How long the run holds the key: until it is done (the default), or until a worker has started it."""
    unique_conflict_policy: UniqueConflictPolicy
    """If the key is held: use the run that holds it (the default), or raise `ServerRefused` (`unique_key_held`)."""
    debounce: timedelta
    """Begin when no other start of the key has come for so long. The input of the latest start counts."""
    debounce_max: timedelta
    """Begin at the latest so long after the first start; ten times `debounce` by default."""


class RunOptions(UniqueOptions, total=False):
    """How a workflow runs, started at once or by a schedule."""

    task_queue: Required[str]
    execution_timeout: timedelta
    """Timeout of the whole chain of runs."""
    run_timeout: timedelta
    memo: Mapping[str, Any]
    search_attributes: GivenAttributes
    priority: Priority
    business_key: str
    build_id: str
    """Only workers of this build run it."""


class StartOptions(RunOptions, total=False):
    """How a workflow is started."""

    id: str
    """The workflow id, up to 128 printable characters; generated if not given."""
    concurrency_key: str
    """The key whose cap on runs counts it: beyond the cap it waits to start, or the start is refused."""
    start_delay: timedelta
    """Delay before the first workflow task. Timeouts start after it."""
    rpc_timeout: timedelta
    """How long the server may take to answer before `TimeoutError` is raised."""
    id_reuse_policy: WorkflowIDReusePolicy
    """Whether the id of a closed workflow may be reused; it may by default."""
    id_conflict_policy: WorkflowIDConflictPolicy
    """What to do if the id belongs to an open workflow; `FAIL` by default."""
    start_signal: str | Callable[..., Any]
    """A signal sent to the new run, or to the open run that has the id."""
    start_signal_args: Sequence[Any]
    request_id: str
    """Identifies this start: sent again with the same id, it is the same start."""


class StandaloneRunOptions(UniqueOptions, total=False):
    """How a standalone activity runs, started at once or by a schedule."""

    task_queue: str
    """The task queue; required unless the client's dispatch configuration supplies it."""
    start_to_close_timeout: timedelta
    """Timeout of one attempt."""
    schedule_to_start_timeout: timedelta
    """Maximum time until a worker starts it. After that it is not started."""
    schedule_to_close_timeout: timedelta
    """Timeout of all attempts, including the pauses between them."""
    heartbeat_timeout: timedelta
    on_lost_lease: OnLostLease
    """What happens if its worker dies: `redeliver` runs it again (the default), `fail` fails it."""
    retry_policy: RetryPolicy
    priority: Priority
    business_key: str
    build_id: str
    cost_estimate: int
    routing_key: str | Enum | None
    """The routing key; None is none. Left out, it is computed from the arguments as the definition says."""


class StandaloneActivityOptions(StandaloneRunOptions, total=False):
    """How a standalone activity is started."""

    id: str
    start_delay: timedelta
    """Delay before the first attempt. Timeouts start after it."""
    good_until: datetime | timedelta
    """Latest start, as a time or as a duration after it first may start. After that it has expired."""
    id_reuse_policy: WorkflowIDReusePolicy
    """Whether the id of an activity that has ended may be reused; it may by default."""
    id_conflict_policy: WorkflowIDConflictPolicy
    """What to do if the id belongs to an open activity; `FAIL` by default."""
    request_id: str
    dispatch: Dispatch | None
    """None ignores the client's dispatch configuration for this start."""


class NamedStartOptions(StartOptions, NamedCallArgs):
    """How a workflow that is given by its name or class is started."""


class NamedActivityOptions(StandaloneActivityOptions, NamedCallArgs):
    """How a standalone activity that is given by its name is started."""


class WithStartWorkflowOperation(Generic[OwnT]):
    """The workflow start of an update-with-start. An open run that has the id is used as it is.

    Args:
        workflow: the workflow class, its run method, or its name.
        arg: the only argument of the run method.
        args: the arguments, if there are several.
        result_type: type of the workflow's result, if the workflow is given by name.
        options: how to start it, see `StartOptions`.
    """

    @overload
    def __init__(
        self: WithStartWorkflowOperation[ResultT],
        workflow: AsyncMethod0[SelfT, ResultT],
        **options: Unpack[StartOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WithStartWorkflowOperation[ResultT],
        workflow: AsyncMethod1[SelfT, ArgT, ResultT],
        arg: ArgT,
        **options: Unpack[StartOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WithStartWorkflowOperation[ResultT],
        workflow: AsyncCallable[ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StartOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WithStartWorkflowOperation[ResultT],
        workflow: type[HasRun[ResultT]],
        arg: Any = UNSET,
        **options: Unpack[NamedStartOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WithStartWorkflowOperation[Any],
        workflow: str | type[Any],
        arg: Any = UNSET,
        *,
        result_type: Any = None,
        **options: Unpack[NamedStartOptions],
    ) -> None: ...
    def __init__(
        self,
        workflow: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: Any = None,
        **options: Unpack[StartOptions],
    ) -> None:
        self.called = workflow_target(workflow)
        options.setdefault("id_conflict_policy", WorkflowIDConflictPolicy.USE_EXISTING)
        self.input = workflow_start(self.called, arg, args, options)
        self.result_type = result_type or self.called.result_type
        self._started: asyncio.Future[WorkflowHandle[Any]] | None = None
        self._is_used = False

    async def workflow_handle(self) -> WorkflowHandle[OwnT]:
        """Return the handle of the workflow once it has started. Raises the error of the start."""
        return await asyncio.shield(self._start())

    def use(self) -> None:
        """Mark it as used: it belongs to one call."""
        if self._is_used:
            raise RuntimeError("A WithStartWorkflowOperation is for one call: make another one.")
        self._is_used = True

    def set_outcome(self, outcome: WorkflowHandle[Any] | BaseException) -> None:
        """Record the outcome of the start."""
        started = self._start()
        if isinstance(outcome, BaseException):
            started.set_exception(outcome)
            started.exception()  # the caller has it already
        else:
            started.set_result(outcome)

    def _start(self) -> asyncio.Future[WorkflowHandle[Any]]:
        if self._started is None:
            self._started = asyncio.get_running_loop().create_future()
        return self._started


class ActivityStart(Generic[OwnT]):
    """One of many standalone activities that are started together.

    Args:
        activity: the activity, or its name.
        arg: the only argument of the activity.
        args: the arguments, if there are several.
        result_type: type of the result, if the activity is given by name.
        options: how to start it, see `StandaloneActivityOptions`.
    """

    @overload
    def __init__(
        self: ActivityStart[ResultT],
        activity: Callable[[], Awaitable[ResultT]],
        **options: Unpack[StandaloneActivityOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ActivityStart[ResultT],
        activity: Callable[[], ResultT],
        **options: Unpack[StandaloneActivityOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ActivityStart[ResultT],
        activity: Callable[[ArgT], Awaitable[ResultT]],
        arg: ArgT,
        **options: Unpack[StandaloneActivityOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ActivityStart[ResultT],
        activity: Callable[[ArgT], ResultT],
        arg: ArgT,
        **options: Unpack[StandaloneActivityOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ActivityStart[ResultT],
        activity: AsyncCallable[ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneActivityOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ActivityStart[ResultT],
        activity: Callable[..., ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneActivityOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ActivityStart[Any],
        activity: str,
        arg: Any = UNSET,
        *,
        result_type: Any = None,
        **options: Unpack[NamedActivityOptions],
    ) -> None: ...
    def __init__(
        self,
        activity: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: Any = None,
        **options: Unpack[StandaloneActivityOptions],
    ) -> None:
        self._called = called = activity_target(activity)
        check_options("start of an activity", options, _ACTIVITY_OPTIONS)
        self._args = called.arguments(arg, args)
        self._routing_key = called.routing_key(self._args, options)
        given: dict[str, Any] = dict(options)
        given["id"] = _checked_id("activity id", given.get("id")) or f"act-{new_id()}"
        given["request_id"] = given.get("request_id") or new_id()
        self._given = given
        self.result_type = result_type or called.result_type

    @property
    def input(self) -> StartActivityInput:
        """The request of a client without a dispatch configuration."""
        return self.input_by(None)

    def input_by(self, config: DispatchConfig | None) -> StartActivityInput:
        """The request of a client with this configuration."""
        given = dict(self._given)
        if "dispatch" in given:
            config = config_getter(given.pop("dispatch"))()
        how = resolve_options(self._called.name, self._routing_key, given, self._called.defaults, config)
        queue = how.task_queue or (None if config is None else config.worker_config.default_task_queue)
        given |= how.clocks
        given |= {"task_queue": queue, "retry_policy": how.retry_policy, "routing_key": how.routing_key}
        check_queue("start of an activity", given)
        if how.trace is not None:
            how.trace()
        return StartActivityInput(
            activity=self._called.name, args=self._args, dispatch=how.provenance, **given
        )


def workflow_start(
    called: CallTarget, arg: Any, args: Sequence[Any], options: StartOptions
) -> StartWorkflowInput:
    """Build the request. Ids that were not given are generated here, so that a resent request is the same start."""
    check_options("start of a workflow", options, _START_OPTIONS)
    check_queue("start of a workflow", options)
    given: dict[str, Any] = dict(options)
    given["id"] = _checked_id("workflow id", given.get("id")) or f"wf-{new_id()}"
    given["request_id"] = given.get("request_id") or new_id()
    given["search_attributes"] = attributes_by_name(given.get("search_attributes"))
    signal = given.pop("start_signal", None)
    signal_args = given.pop("start_signal_args", ())
    if signal is not None:
        target = signal_target(signal)
        given |= {"start_signal": target.name, "start_signal_args": target.arguments(UNSET, signal_args)}
    elif signal_args:
        raise TypeError("start_signal_args are for a start_signal, and there is none")
    return StartWorkflowInput(workflow=called.name, args=called.arguments(arg, args), **given)


def budgeted(start: StartWorkflowInput, config: DispatchConfig | None) -> StartWorkflowInput:
    """Add the timeouts of the configuration that the start does not set.

    A run timeout may not exceed the execution timeout: if one is set by the call and the other by the configuration,
    the one from the call is kept.
    """
    if config is None:
        return start
    budgets = config.worker_config
    execution, run = start.execution_timeout, start.run_timeout
    if execution is None and budgets.workflow_execution_timeout is not None:
        execution = max(budgets.workflow_execution_timeout, run or timedelta(0))
    if run is None and budgets.run_timeout is not None:
        run = min(budgets.run_timeout, execution or budgets.run_timeout)
    return replace(
        start,
        execution_timeout=execution,
        run_timeout=run,
        start_delay=budgets.start_delay if start.start_delay is None else start.start_delay,
        rpc_timeout=budgets.rpc_timeout if start.rpc_timeout is None else start.rpc_timeout,
    )


_START_OPTIONS: Final = dict.fromkeys(StartOptions.__annotations__)
_ACTIVITY_OPTIONS: Final = dict.fromkeys(StandaloneActivityOptions.__annotations__)


def check_options(what: str, given: Mapping[str, Any], known: Mapping[str, None]) -> None:
    for name in given:
        if name not in known:
            close = nearest(name, known)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
            raise TypeError(f"A {what} has no option {name!r}{hint}")


def _checked_id(what: str, given: str | None) -> str | None:
    """Validate an id."""
    problem = identifiers.WORKFLOW_ID.problem(given) if given else None
    if problem is not None:
        raise ValueError(f"{what} {given!r}: {problem}")
    return given


def check_queue(what: str, given: Mapping[str, Any]) -> None:
    if not given.get("task_queue"):
        raise TypeError(f"A {what} needs task_queue=…, the name under which its workers poll")
