"""Handles of workflows, updates and standalone activities that a client started or looked up."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from penstock.sdk.call_targets import UNSET, query_target, signal_target, update_target
from penstock.sdk.clients.call_types import (
    ArgT,
    AsyncCallable,
    AsyncMethod0,
    AsyncMethod1,
    NamedCallArgs,
    ResultT,
    SelfT,
    SyncMethod0,
    SyncMethod1,
)
from penstock.sdk.clients.descriptions import (
    ActivityExecutionDescription,
    Json,
    WorkflowExecutionDescription,
    WorkflowHistory,
)
from penstock.sdk.clients.interceptors import (
    WAIT_SECONDS,
    EndWorkflowInput,
    OutboundInterceptor,
    QueryWorkflowInput,
    RunInput,
    SignalWorkflowInput,
    StartedWorkflow,
    UpdateStage,
    UpdateState,
    UpdateWorkflowInput,
    WorkflowUpdateStage,
    new_id,
    pace,
    update_stage,
    wait_for_end,
    within,
)
from penstock.sdk.clients.operations.activity_operations import ActivityOperations
from penstock.sdk.clients.operations.workflow_operations import WorkflowOperations
from penstock.sdk.clients.results import activity_result, update_error, workflow_result
from penstock.sdk.connection.transport import Transport, route, route_of
from penstock.sdk.converters import DataConverter
from penstock.sdk.failures import ServerRefused, WorkflowContinuedAsNewError, refusal
from penstock.sdk.workflow_port.info import CURRENT_DETAILS

OwnT = TypeVar("OwnT")
"""The result type of the handle's workflow, update or activity."""

HISTORY_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What handles need to make requests."""

    transport: Transport
    outbound: OutboundInterceptor
    converter: DataConverter
    namespace: str


class RunAddress(TypedDict):
    """The run that a request addresses, see `RunInput`."""

    id: str
    run_id: str | None
    first_execution_run_id: str | None


class ExecuteUpdateOptions(TypedDict, total=False):
    """Options of `WorkflowHandle.execute_update`."""

    id: str | None
    timeout: timedelta | float | None


class NamedExecuteUpdateOptions(ExecuteUpdateOptions, NamedCallArgs):
    """Options of an update that is given by name."""


class StartUpdateOptions(TypedDict, total=False):
    """Options of `WorkflowHandle.start_update`."""

    id: str | None
    wait_for: UpdateStage
    wait_for_stage: WorkflowUpdateStage


class NamedStartUpdateOptions(StartUpdateOptions, NamedCallArgs):
    """Options of an update that is given by name."""


class WorkflowHandle(WorkflowOperations, Generic[OwnT]):
    """A workflow that was started or looked up.

    A handle returned by a start is bound to that start: it addresses the chain of runs from `first_execution_run_id`
    on, and no run of a later start with the same id. A handle of `get_workflow_handle` addresses the current run of
    the id, or the run `run_id`, if set.
    """

    def __init__(
        self,
        context: ClientContext,
        id: str,  # noqa: A002 - the word of the API
        *,
        run_id: str | None = None,
        first_execution_run_id: str | None = None,
        is_new: bool | None = None,
        result_type: Any = None,
    ) -> None:
        self._context: ClientContext = context
        self._result_type = result_type
        self.id = id
        self.run_id = run_id
        self.first_execution_run_id = first_execution_run_id
        """The run that the start created or found; None if the handle was looked up."""
        self.is_new = is_new
        """Whether the start created the run; None if the handle was looked up."""

    def __repr__(self) -> str:
        run = "" if self.run_id is None else f", run_id={self.run_id!r}"
        return f"WorkflowHandle({self.id!r}{run})"

    async def result(self, *, follow_runs: bool = True, timeout: timedelta | float | None = None) -> OwnT:
        """Wait for the workflow to close, following its chain of runs, and return its result.

        Args:
            follow_runs: whether to wait for the last run of the chain. Otherwise a run that continues as new ends the
                wait.
            timeout: how long to wait; None is unlimited.

        Raises:
            WorkflowFailureError: the workflow failed, was cancelled or terminated, or timed out.
            WorkflowContinuedAsNewError: the run continued as new, with `follow_runs=False`.
            TimeoutError: it did not close in time. The workflow continues.
        """
        async with within(timeout, f"Workflow {self.id!r} has not ended"):
            run, transport = self._run, self._context.transport
            if not follow_runs:
                return await self._result_of_one_run()
            response = await wait_for_end(transport, run.path + route("result"), run.chain)
            if run.run_id is not None and response["closed_reason"] == "continued":
                run = RunInput(id=self.id, run_id=None, first_execution_run_id=run.run_id)
                response = await wait_for_end(transport, run.path + route("result"), run.chain)
        found: OwnT = workflow_result(response, self._result_type, self._context.converter)
        return found

    async def _result_of_one_run(self) -> OwnT:
        """Wait for one run to close: that of the handle, the first of the start, or the current run of the id."""
        context = self._context
        run_id = self.run_id or self.first_execution_run_id or (await self.describe()).run_id
        path = route("workflows", self.id, "runs", run_id)
        response = await wait_for_end(context.transport, path + route("result"))
        if response["closed_reason"] == "continued":
            length = (await WorkflowHandle[OwnT](context, self.id, run_id=run_id).describe()).history_length
            last = (await self._history_page(path, max(0, length - 1), wait_new_event=False))["events"]
            raise WorkflowContinuedAsNewError(
                last[-1]["payload"].get("continued_to_run_id") if last else None
            )
        found: OwnT = workflow_result(response, self._result_type, context.converter)
        return found

    @overload
    async def signal(self, signal: SyncMethod0[SelfT, Any], *, request_id: str | None = None) -> None: ...
    @overload
    async def signal(
        self, signal: SyncMethod1[SelfT, ArgT, Any], arg: ArgT, *, request_id: str | None = None
    ) -> None: ...
    @overload
    async def signal(
        self, signal: Callable[..., Any], *, args: Sequence[Any], request_id: str | None = None
    ) -> None: ...
    @overload
    async def signal(
        self, signal: str, arg: Any = UNSET, *, args: Sequence[Any] = (), request_id: str | None = None
    ) -> None: ...
    async def signal(
        self,
        signal: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        request_id: str | None = None,
    ) -> None:
        """Send a signal to the workflow.

        Args:
            signal: the signal method, or its name.
            arg: the only argument of the signal.
            args: the arguments, if there are several.
            request_id: identifies the signal: the workflow receives it once, however often it is sent. None generates
                one.
        """
        called = signal_target(signal)
        await self._context.outbound.signal_workflow(
            SignalWorkflowInput(
                **self._address,
                signal=called.name,
                args=called.arguments(arg, args),
                request_id=request_id or new_id(),
            )
        )

    @overload
    async def query(self, query: SyncMethod0[SelfT, ResultT]) -> ResultT: ...
    @overload
    async def query(self, query: SyncMethod1[SelfT, ArgT, ResultT], arg: ArgT) -> ResultT: ...
    @overload
    async def query(self, query: Callable[..., ResultT], *, args: Sequence[Any]) -> ResultT: ...
    @overload
    async def query(
        self, query: str, arg: Any = UNSET, *, args: Sequence[Any] = (), result_type: type[ResultT]
    ) -> ResultT: ...
    @overload
    async def query(
        self, query: str, arg: Any = UNSET, *, args: Sequence[Any] = (), result_type: None = None
    ) -> Any: ...
    async def query(
        self,
        query: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: Any = None,
    ) -> Any:
        """Query the workflow. Nothing is recorded. A worker must be running, even if the run is closed.

        Args:
            query: the query method, or its name.
            arg: the only argument of the query.
            args: the arguments, if there are several.
            result_type: type of the result, if the query is given by name.

        Raises:
            QueryRejected: there is no such query, or its handler refused or failed.
            QueryFailed: no worker answered in time.
        """
        called = query_target(query)
        return await self._context.outbound.query_workflow(
            QueryWorkflowInput(
                **self._address,
                query=called.name,
                args=called.arguments(arg, args),
                result_type=result_type or called.result_type,
            )
        )

    @overload
    async def execute_update(
        self, update: AsyncMethod0[SelfT, ResultT], **options: Unpack[ExecuteUpdateOptions]
    ) -> ResultT: ...
    @overload
    async def execute_update(
        self, update: SyncMethod0[SelfT, ResultT], **options: Unpack[ExecuteUpdateOptions]
    ) -> ResultT: ...
    @overload
    async def execute_update(
        self, update: AsyncMethod1[SelfT, ArgT, ResultT], arg: ArgT, **options: Unpack[ExecuteUpdateOptions]
    ) -> ResultT: ...
    @overload
    async def execute_update(
        self, update: SyncMethod1[SelfT, ArgT, ResultT], arg: ArgT, **options: Unpack[ExecuteUpdateOptions]
    ) -> ResultT: ...
    @overload
    async def execute_update(
        self, update: AsyncCallable[ResultT], *, args: Sequence[Any], **options: Unpack[ExecuteUpdateOptions]
    ) -> ResultT: ...
    @overload
    async def execute_update(
        self, update: Callable[..., ResultT], *, args: Sequence[Any], **options: Unpack[ExecuteUpdateOptions]
    ) -> ResultT: ...
    @overload
    async def execute_update(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        result_type: type[ResultT],
        **options: Unpack[NamedExecuteUpdateOptions],
    ) -> ResultT: ...
    @overload
    async def execute_update(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        result_type: None = None,
        **options: Unpack[NamedExecuteUpdateOptions],
    ) -> Any: ...
    async def execute_update(
        self,
        update: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        id: str | None = None,  # noqa: A002
        result_type: Any = None,
        timeout: timedelta | float | None = None,
    ) -> Any:
        """Send an update to the workflow and wait for its result.

        Args:
            update: the update method, or its name.
            arg: the only argument of the update.
            args: the arguments, if there are several.
            id: the update id: the workflow executes it once, however often it is sent. None generates one.
            result_type: type of the result, if the update is given by name.
            timeout: how long to wait; None is unlimited.

        Raises:
            UpdateRejectedError: the validator rejected the update.
            UpdateFailedError: the workflow failed to execute it.
            TimeoutError: there was no result in time. The update continues.
        """
        handle = self._update(update, arg, args, id, result_type)
        return await handle.result(timeout=timeout)

    @overload
    async def start_update(
        self, update: AsyncMethod0[SelfT, ResultT], **options: Unpack[StartUpdateOptions]
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update(
        self, update: SyncMethod0[SelfT, ResultT], **options: Unpack[StartUpdateOptions]
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update(
        self, update: AsyncMethod1[SelfT, ArgT, ResultT], arg: ArgT, **options: Unpack[StartUpdateOptions]
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update(
        self, update: SyncMethod1[SelfT, ArgT, ResultT], arg: ArgT, **options: Unpack[StartUpdateOptions]
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update(
        self, update: AsyncCallable[ResultT], *, args: Sequence[Any], **options: Unpack[StartUpdateOptions]
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update(
        self, update: Callable[..., ResultT], *, args: Sequence[Any], **options: Unpack[StartUpdateOptions]
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        result_type: type[ResultT],
        **options: Unpack[NamedStartUpdateOptions],
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        result_type: None = None,
        **options: Unpack[NamedStartUpdateOptions],
    ) -> WorkflowUpdateHandle[Any]: ...
    async def start_update(
        self,
        update: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        wait_for: UpdateStage = "accepted",
        id: str | None = None,  # noqa: A002
        result_type: Any = None,
        wait_for_stage: WorkflowUpdateStage | None = None,
    ) -> WorkflowUpdateHandle[Any]:
        """Send an update to the workflow and wait until it is accepted or completed.

        Args:
            update: the update method, or its name.
            arg: the only argument of the update.
            args: the arguments, if there are several.
            wait_for: stage to wait for, `accepted` or `completed`.
            id: the update id: the workflow executes it once, however often it is sent. None generates one.
            result_type: type of the result, if the update is given by name.
            wait_for_stage: the stage, as code for Temporal says it; in place of `wait_for`.

        Raises:
            UpdateRejectedError: the validator rejected the update.
        """
        if wait_for_stage is not None:
            wait_for = update_stage(wait_for_stage)
        if wait_for not in ("accepted", "completed"):
            raise ValueError(f'wait_for must be "accepted" or "completed", not {wait_for!r}')
        handle = self._update(update, arg, args, id, result_type)
        await handle.reach_stage(wait_for)
        return handle

    def get_update_handle(
        self,
        id: str,  # noqa: A002
        *,
        workflow_run_id: str | None = None,
        result_type: Any = None,
    ) -> WorkflowUpdateHandle[Any]:
        """Return a handle of an update that was sent before, without contacting the server.

        Args:
            id: the update id.
            workflow_run_id: the run that accepted it, if known. Ids of updates are unique in all runs of a workflow id.
            result_type: type of the result.
        """
        return _FoundUpdateHandle(
            self._context,
            UpdateWorkflowInput(
                **(self._address | {"run_id": workflow_run_id or self.run_id}),
                update="",
                args=(),
                update_id=id,
                wait_for="accepted",
            ),
            result_type,
        )

    def get_update_handle_for(
        self,
        update: Callable[..., Any],
        id: str,  # noqa: A002
        *,
        workflow_run_id: str | None = None,
    ) -> WorkflowUpdateHandle[Any]:
        """Return a handle of an update that was sent before, typed by its method.

        Args:
            update: the update method.
            id: the update id.
            workflow_run_id: the run that accepted it, if known.
        """
        hint = update_target(update).result_type
        return self.get_update_handle(id, workflow_run_id=workflow_run_id, result_type=hint)

    @property
    def result_run_id(self) -> str | None:
        """The run from which `result` follows the chain; None for the current run of the id."""
        return self.run_id or self.first_execution_run_id

    async def current_details(self) -> str:
        """Return what the code has said last by `workflow.set_current_details`. A worker must be running."""
        return await self.query(CURRENT_DETAILS, result_type=str)

    def _update(
        self,
        update: str | Callable[..., Any],
        arg: Any,
        args: Sequence[Any],
        id: str | None,  # noqa: A002
        result_type: Any,
    ) -> WorkflowUpdateHandle[Any]:
        called = update_target(update)
        return WorkflowUpdateHandle(
            self._context,
            UpdateWorkflowInput(
                **self._address,
                update=called.name,
                args=called.arguments(arg, args),
                update_id=id or new_id(),
                wait_for="accepted",
            ),
            result_type or called.result_type,
        )

    async def cancel(self, reason: str | None = None, *, request_id: str | None = None) -> None:
        """Request cancellation.

        The code may clean up first, or ignore it; a run whose code cannot handle it closes at once.

        Args:
            reason: recorded with the request.
            request_id: identifies the request, so that a repetition has no effect; None generates one.
        """
        await self._context.outbound.cancel_workflow(self._ending(reason, request_id))

    async def terminate(self, reason: str | None = None, *, request_id: str | None = None) -> None:
        """Close the workflow immediately, without running its code.

        Args:
            reason: recorded with the run.
            request_id: identifies the request, so that a repetition has no effect; None generates one.
        """
        await self._context.outbound.terminate_workflow(self._ending(reason, request_id))

    def _ending(self, reason: str | None, request_id: str | None) -> EndWorkflowInput:
        return EndWorkflowInput(
            **self._address,
            reason=reason,
            request_id=request_id or new_id(),
        )

    async def describe(self) -> WorkflowExecutionDescription:
        """Return the description of the run."""
        return await self._context.outbound.describe_workflow(self._run)

    async def fetch_history(self) -> WorkflowHistory:
        """Return the whole history of the run so far."""
        run_id = self.run_id or (await self.describe()).run_id
        events = [event async for event in self._events(run_id, wait_new_event=False)]
        return WorkflowHistory(self.id, run_id, events)

    async def fetch_history_events(self, *, wait_new_event: bool = False) -> AsyncIterator[Json]:
        """Yield the events of the run.

        Args:
            wait_new_event: also wait for new events, until the run closes.
        """
        run_id = self.run_id or (await self.describe()).run_id
        async for event in self._events(run_id, wait_new_event):
            yield event

    async def _events(self, run_id: str, wait_new_event: bool) -> AsyncIterator[Json]:
        path = route("workflows", self.id, "runs", run_id)
        loop = asyncio.get_running_loop()
        seen = 0
        while True:
            started_at = loop.time()
            page = await self._history_page(path, seen, wait_new_event)
            for event in page["events"]:
                seen = event["sequence"]
                yield event
            if page["next_page_token"] is not None:
                continue
            if not wait_new_event or (page["events"] and page["events"][-1]["event_type"] in _CLOSING):
                return
            if not page["events"]:
                described = await self._context.transport.control("GET", path, idempotent=True)
                if described["is_terminal"] and described["history_length"] <= seen:
                    return
                await pace(loop.time() - started_at)

    async def _history_page(self, path: str, seen: int, wait_new_event: bool) -> Json:
        return await self._context.transport.control(
            "GET",
            path + route("history"),
            idempotent=True,
            timeout_s=2 * WAIT_SECONDS if wait_new_event else None,
            query={
                "page_size": HISTORY_PAGE,
                "next_page_token": page_token(seen) if seen else None,
                "wait_new_event": wait_new_event,
                "derived": False,
            },
        )

    @property
    def _address(self) -> RunAddress:
        return {
            "id": self.id,
            "run_id": self.run_id,
            "first_execution_run_id": self.first_execution_run_id,
        }

    @property
    def _run(self) -> RunInput:
        return RunInput(**self._address)


def handle_of_start(
    context: ClientContext, started: StartedWorkflow, result_type: Any
) -> WorkflowHandle[Any]:
    """Return the handle that is bound to a start."""
    return WorkflowHandle(
        context,
        started.id,
        first_execution_run_id=started.run_id,
        is_new=started.is_new,
        result_type=result_type,
    )


class WorkflowUpdateHandle(Generic[OwnT]):
    """An update that was sent to a workflow."""

    def __init__(self, context: ClientContext, update_input: UpdateWorkflowInput, result_type: Any) -> None:
        self._context = context
        self._input = update_input
        self._result_type = result_type
        self._state: UpdateState | None = None

    def __repr__(self) -> str:
        return f"WorkflowUpdateHandle({self.id!r}, workflow_id={self.workflow_id!r})"

    @property
    def id(self) -> str:
        """The update id: an update sent again with this id is the same update."""
        return self._input.update_id

    @property
    def workflow_id(self) -> str:
        return self._input.id

    @property
    def workflow_run_id(self) -> str | None:
        """The run that accepted the update."""
        return self._input.run_id if self._state is None else self._state.run_id

    async def result(self, *, timeout: timedelta | float | None = None) -> OwnT:
        """Wait for the result of the update.

        Args:
            timeout: how long to wait; None is unlimited.

        Raises:
            UpdateFailedError: the workflow failed to execute the update.
            TimeoutError: there was no result in time. The update continues.
        """
        async with within(
            timeout, f"Update {self._input.update!r} of {self.workflow_id!r} was not completed"
        ):
            state = await self.reach_stage("completed")
        found: OwnT = self._context.converter.decode(state.result, self._result_type)
        return found

    async def reach_stage(self, stage: Literal["accepted", "completed"]) -> UpdateState:
        """Wait until the update has reached a stage."""
        loop = asyncio.get_running_loop()
        while self._state is None or (stage == "completed" and not self._state.is_completed):
            started_at = loop.time()
            self._state = await self._wait_for_stage(stage)
            if stage == "completed" and not self._state.is_completed:
                await pace(loop.time() - started_at)
        return self._state

    async def _wait_for_stage(self, stage: UpdateStage) -> UpdateState:
        update_input = self._input
        try:
            return await self._context.outbound.update_workflow(replace(update_input, wait_for=stage))
        except ServerRefused as refused:
            raise update_error(refused, self._context.converter) from refused.__cause__


class _FoundUpdateHandle(WorkflowUpdateHandle[OwnT]):
    """An update that was sent elsewhere: it is looked up by its id, and never sent."""

    async def _wait_for_stage(self, stage: UpdateStage) -> UpdateState:
        path = route_of("workflows", self.workflow_id) + route("updates", self.id)
        body = await self._context.transport.control("GET", path, idempotent=True)
        if body["update_status"] == "failed":
            raise update_error(refusal(422, body), self._context.converter)
        return UpdateState(body["run_id"], body["update_status"] == "completed", body["result_envelope"])


class ActivityHandle(ActivityOperations, Generic[OwnT]):
    """A standalone activity: the run that a start created or found, or, without `run_id`, the latest run of its id."""

    def __init__(
        self,
        context: ClientContext,
        id: str,  # noqa: A002
        *,
        run_id: str | None = None,
        is_new: bool | None = None,
        result_type: Any = None,
    ) -> None:
        self._context: ClientContext = context
        self._result_type = result_type
        self.id = id
        self.run_id = run_id
        self.is_new = is_new
        """Whether the start created the run; None if the handle was looked up."""

    def __repr__(self) -> str:
        return f"ActivityHandle({self.id!r})"

    async def result(self, *, timeout: timedelta | float | None = None) -> OwnT:
        """Wait for the activity to end and return its result.

        Args:
            timeout: how long to wait; None is unlimited.

        Raises:
            ActivityFailureError: all attempts failed, or the activity was cancelled.
            TimeoutError: it did not end in time. The activity continues.
        """
        async with within(timeout, f"Activity {self.id!r} has not ended"):
            path = route("activities", self.id, "result")
            which = None if self.run_id is None else {"run_id": self.run_id}
            response = await wait_for_end(self._context.transport, path, which)
        found: OwnT = activity_result(response, self._result_type, self._context.converter)
        return found

    async def cancel(self, reason: str | None = None) -> None:
        """Cancel the activity. A worker that runs it is notified with its next heartbeat.

        Args:
            reason: recorded with the activity.
        """
        await self._context.outbound.cancel_activity(self.id, reason, self.run_id)

    async def describe(self) -> ActivityExecutionDescription:
        """Return the description of the activity."""
        return await self._context.outbound.describe_activity(self.id, self.run_id)


_CLOSING = frozenset(
    {
        "WorkflowCompleted",
        "WorkflowFailed",
        "WorkflowCancelled",
        "WorkflowTerminated",
        "WorkflowTimedOut",
        "WorkflowContinuedAsNew",
    }
)


def page_token(sequence: int) -> str:
    """Return the token of the page that starts after an event."""
    return base64.b64encode(str(sequence).encode()).decode()
