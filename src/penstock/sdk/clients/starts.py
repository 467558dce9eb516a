"""Starts of workflows and standalone activities as callers say them, checked before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
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
from penstock.sdk.clients.interceptors import OnLostLease, StartActivityInput, StartWorkflowInput, new_id
from penstock.sdk.dispatch_options import Dispatch, config_getter, resolve_options
from penstock.sdk.id_policies import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy

if TYPE_CHECKING:
    from penstock.sdk.clients.handles import WorkflowHandle

SelfT = TypeVar("SelfT")
ArgT = TypeVar("ArgT")
ResultT = TypeVar("ResultT")
OwnT = TypeVar("OwnT")
ResultT_co = TypeVar("ResultT_co", covariant=True)
P = ParamSpec("P")


class HasRun(Protocol[ResultT_co]):
    """A workflow class whose main method is called `run`."""

    def run(self, *args: Any, **kwargs: Any) -> Awaitable[ResultT_co]: ...


class StartOptions(TypedDict, total=False):
    """How a workflow is started."""

    id: str
    """The workflow id, of up to 128 visible characters; made up where none is given."""
    task_queue: Required[str]
    execution_timeout: timedelta
    """For all runs that continue each other."""
    run_timeout: timedelta
    start_delay: timedelta
    """Its code rests so long before it runs first; its timeouts run from then on."""
    rpc_timeout: timedelta
    """How long the server may take to answer; `TimeoutError` if it takes longer."""
    id_reuse_policy: WorkflowIDReusePolicy
    """Whether the id of a workflow that has ended may be used again; it may, if nothing is said."""
    id_conflict_policy: WorkflowIDConflictPolicy
    """What to do when the workflow that has the id is open; `FAIL`, if nothing is said."""
    memo: Mapping[str, Any]
    search_attributes: Mapping[str, Any]
    priority: Priority
    business_key: str
    build_id: str
    """Only workers of this build take it."""
    start_signal: str | Callable[..., Any]
    """Told to the run as it starts, or to the open one that has the id."""
    start_signal_args: Sequence[Any]
    request_id: str
    """The caller's name for this start: sent again under it, it is the same start."""


class StandaloneActivityOptions(TypedDict, total=False):
    """How a standalone activity is started."""

    id: str
    task_queue: str
    """Where it waits; needed unless the client has a dispatch configuration, which then says."""
    start_to_close_timeout: timedelta
    """For one attempt."""
    schedule_to_start_timeout: timedelta
    """For the wait until a worker takes it: not begun by then, it is not begun any more."""
    schedule_to_close_timeout: timedelta
    """For all attempts, with the pauses between them."""
    heartbeat_timeout: timedelta
    start_delay: timedelta
    """It rests so long before it may start; its clocks run from then on."""
    good_until: datetime | timedelta
    """Not begun by then, or so long after it may begin for the first time, it has expired."""
    on_lost_lease: OnLostLease
    """What it means that its worker died: `redeliver`, as if nothing had been (so if nothing is said), or `fail`."""
    retry_policy: RetryPolicy
    id_reuse_policy: WorkflowIDReusePolicy
    """Whether the id of an activity that has ended may be used again; it may, if nothing is said."""
    id_conflict_policy: WorkflowIDConflictPolicy
    """What to do when the activity that has the id is open; `FAIL`, if nothing is said."""
    priority: Priority
    business_key: str
    build_id: str
    cost_estimate: int
    request_id: str
    routing_key: str | Enum | None
    """What decides where it goes; None: nothing does. Left out: what its definition says of its arguments."""
    dispatch: Dispatch | None
    """None: the configuration of the client has no say in this start."""


class WithStartWorkflowOperation(Generic[OwnT]):
    """The start that goes with an update. An open run that has the id is used as it is."""

    @overload
    def __init__(
        self: WithStartWorkflowOperation[ResultT],
        workflow: Callable[[SelfT], Awaitable[ResultT]],
        **options: Unpack[StartOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WithStartWorkflowOperation[ResultT],
        workflow: Callable[[SelfT, ArgT], Awaitable[ResultT]],
        arg: ArgT,
        **options: Unpack[StartOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WithStartWorkflowOperation[ResultT],
        workflow: Callable[Concatenate[SelfT, P], Awaitable[ResultT]],
        *,
        args: Sequence[Any],
        **options: Unpack[StartOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WithStartWorkflowOperation[ResultT],
        workflow: type[HasRun[ResultT]],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        **options: Unpack[StartOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WithStartWorkflowOperation[Any],
        workflow: str | type[Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: Any = None,
        **options: Unpack[StartOptions],
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
        """The workflow that the update goes to, once it is started; raises what the start has raised."""
        return await asyncio.shield(self._start())

    def use(self) -> None:
        """It is for one call, whose outcome it tells."""
        if self._is_used:
            raise RuntimeError("A WithStartWorkflowOperation is for one call: make another one.")
        self._is_used = True

    def told(self, outcome: WorkflowHandle[Any] | BaseException) -> None:
        """The start went through, or did not."""
        started = self._start()
        if isinstance(outcome, BaseException):
            started.set_exception(outcome)
            started.exception()  # whoever made the call has it already
        else:
            started.set_result(outcome)

    def _start(self) -> asyncio.Future[WorkflowHandle[Any]]:
        if self._started is None:
            self._started = asyncio.get_running_loop().create_future()
        return self._started


class ActivityStart(Generic[OwnT]):
    """One of many standalone activities that are started together."""

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
        activity: Callable[P, Awaitable[ResultT]],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneActivityOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: ActivityStart[ResultT],
        activity: Callable[P, ResultT],
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
        args: Sequence[Any] = (),
        result_type: Any = None,
        **options: Unpack[StandaloneActivityOptions],
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
        _check("start of an activity", options, _ACTIVITY_OPTIONS)
        self._args = called.arguments(arg, args)
        self._routing_key = called.routing_key(self._args, options)
        given: dict[str, Any] = dict(options)
        given["id"] = _checked_id("activity id", given.get("id")) or f"act-{new_id()}"
        given["request_id"] = given.get("request_id") or new_id()
        self._given = given
        self.result_type = result_type or called.result_type

    @property
    def input(self) -> StartActivityInput:
        """What is sent by a client without a dispatch configuration."""
        return self.input_by(None)

    def input_by(self, config: DispatchConfig | None) -> StartActivityInput:
        """What is sent by a client with this configuration."""
        given = dict(self._given)
        if "dispatch" in given:
            config = config_getter(given.pop("dispatch"))()
        how = resolve_options(self._called.name, self._routing_key, given, self._called.defaults, config)
        queue = how.task_queue or (None if config is None else config.worker_config.default_task_queue)
        given |= how.clocks
        given |= {"task_queue": queue, "retry_policy": how.retry_policy, "routing_key": how.routing_key}
        _check_queue("start of an activity", given)
        if how.trace is not None:
            how.trace()
        return StartActivityInput(activity=self._called.name, args=self._args, dispatch=how.told, **given)


def workflow_start(
    called: CallTarget, arg: Any, args: Sequence[Any], options: StartOptions
) -> StartWorkflowInput:
    """What is sent, from what was said. Ids that were not given are made here, so that a repeat is the same start."""
    _check("start of a workflow", options, _START_OPTIONS)
    _check_queue("start of a workflow", options)
    given: dict[str, Any] = dict(options)
    given["id"] = _checked_id("workflow id", given.get("id")) or f"wf-{new_id()}"
    given["request_id"] = given.get("request_id") or new_id()
    signal = given.pop("start_signal", None)
    signal_args = given.pop("start_signal_args", ())
    if signal is not None:
        told = signal_target(signal)
        given |= {"start_signal": told.name, "start_signal_args": told.arguments(UNSET, signal_args)}
    elif signal_args:
        raise TypeError("start_signal_args are for a start_signal, and there is none")
    return StartWorkflowInput(workflow=called.name, args=called.arguments(arg, args), **given)


def budgeted(start: StartWorkflowInput, config: DispatchConfig | None) -> StartWorkflowInput:
    """The start, with the budgets of the configuration where it names none itself.

    A run may not outlast its execution: where one is said and the other configured, what was said stands.
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


def _check(what: str, given: Mapping[str, Any], known: Mapping[str, None]) -> None:
    for name in given:
        if name not in known:
            close = nearest(name, known)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
            raise TypeError(f"A {what} has no option {name!r}{hint}")


def _checked_id(what: str, given: str | None) -> str | None:
    """The id, refused here if no server takes it."""
    problem = identifiers.WORKFLOW_ID.problem(given) if given else None
    if problem is not None:
        raise ValueError(f"{what} {given!r}: {problem}")
    return given


def _check_queue(what: str, given: Mapping[str, Any]) -> None:
    if not given.get("task_queue"):
        raise TypeError(f"A {what} needs task_queue=…, the name under which its workers poll")
