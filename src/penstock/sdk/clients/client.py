"""The client: starts workflows and standalone activities, finds them, and acts on many at once."""

from __future__ import annotations

import ssl as tls
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from penstock.sdk.call_targets import UNSET, signal_target, workflow_target
from penstock.sdk.clients import batch_operations
from penstock.sdk.clients.batch_operations import BatchPreview, BatchResult
from penstock.sdk.clients.descriptions import (
    ActivityExecutionDescription,
    WorkflowExecution,
    WorkflowExecutionCount,
)
from penstock.sdk.clients.handles import ActivityHandle, ClientContext, WorkflowHandle, WorkflowUpdateHandle
from penstock.sdk.clients.interceptors import ClientInterceptor, HttpOutbound, UpdateStage, chain
from penstock.sdk.clients.starts import (
    ActivityStart,
    HasRun,
    StandaloneActivityOptions,
    StartOptions,
    WithStartWorkflowOperation,
    budgeted,
    workflow_start,
)
from penstock.sdk.connection.connect_options import ConnectOptions
from penstock.sdk.connection.transport import (
    CONTROL_PLANE,
    HttpTransport,
    Json,
    RequestRetries,
    Transport,
    route,
)
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.dispatch_options import ConfigGetter, Dispatch, config_getter
from penstock.sdk.failures import ServerRefused, Unreachable

SelfT = TypeVar("SelfT")
OtherT = TypeVar("OtherT")
ArgT = TypeVar("ArgT")
ResultT = TypeVar("ResultT")
P = ParamSpec("P")

PAGE = 200


class Client:
    """A connection to a server, in one namespace, used in one event loop. Safe to share between tasks."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        data_converter: DataConverter = DEFAULT,
        interceptors: Sequence[ClientInterceptor] = (),
        dispatch: Dispatch | None = None,
    ) -> None:
        """Most callers want `Client.connect`."""
        self.interceptors = tuple(interceptors)
        self.dispatch: ConfigGetter = config_getter(dispatch)
        outbound = chain(self.interceptors, HttpOutbound(transport, data_converter))
        self._context = ClientContext(transport, outbound, data_converter, namespace)

    @classmethod
    async def connect(
        cls,
        url: str | Sequence[str] | None = None,
        *,
        namespace: str | None = None,
        token: str | None = None,
        control_token: str | None = None,
        worker_token: str | None = None,
        signature_key: str | None = None,
        worker_signature_key: str | None = None,
        signature_profile: str | None = None,
        profile: str | None = None,
        data_converter: DataConverter = DEFAULT,
        interceptors: Sequence[ClientInterceptor] = (),
        ssl: tls.SSLContext | bool = True,
        insecure: bool | None = None,
        retry_for: timedelta = timedelta(seconds=30),
        lazy: bool = False,
        dispatch: Dispatch | None = None,
    ) -> Self:
        """Connect to a server: the one given, else that of the environment, of a profile, or of this machine.

        `url` may be a list, or a text with commas, of the addresses of servers that share a database: requests go to
        one of them, and to the next one when it fails. A request that may have been carried out is sent again only if
        it is idempotent.

        A server with tokens wants `token`, or `control_token` and `worker_token` for the two planes. A server with
        signatures wants `signature_key="operator:…"` (whose key it is stands before the colon: operator, admin, worker
        or shared) and `worker_signature_key` for workers; the keys are never sent. Its `DW_SIGNATURE_PROFILE` is
        given as `signature_profile`.

        Asks the server what it is, and raises `Unreachable` if it is away or no Penstock server; `lazy` leaves
        that to the first call. `retry_for` is how long each request is tried again while the server is away.
        `dispatch` gives starts the budgets that they leave out, and is that of workers which are made with the client.
        """
        options = ConnectOptions.resolve(
            url=url,
            namespace=namespace,
            token=token,
            control_token=control_token,
            worker_token=worker_token,
            signature_key=signature_key,
            worker_signature_key=worker_signature_key,
            signature_profile=signature_profile,
            insecure=insecure,
            profile=profile,
        )
        transport = HttpTransport(
            options.url,
            namespace=options.namespace,
            token=options.token,
            control_token=options.control_token,
            worker_token=options.worker_token,
            control_key=options.control_key,
            worker_key=options.worker_key,
            ssl=ssl,
            insecure=options.insecure,
            patience=RequestRetries(retry_for.total_seconds()),
        )
        client = cls(
            transport,
            namespace=options.namespace,
            data_converter=data_converter,
            interceptors=interceptors,
            dispatch=dispatch,
        )
        if not lazy:
            try:
                await _introduce(transport, options)
            except BaseException:
                await transport.close()
                raise
        return client

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Client({self.transport!r})"

    @property
    def transport(self) -> Transport:
        return self._context.transport

    @property
    def namespace(self) -> str:
        return self._context.namespace

    @property
    def data_converter(self) -> DataConverter:
        return self._context.converter

    # Workflows

    @overload
    async def start_workflow(
        self, workflow: Callable[[SelfT], Awaitable[ResultT]], **options: Unpack[StartOptions]
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self,
        workflow: Callable[[SelfT, ArgT], Awaitable[ResultT]],
        arg: ArgT,
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self,
        workflow: Callable[Concatenate[SelfT, P], Awaitable[ResultT]],
        *,
        args: Sequence[Any],
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self,
        workflow: type[HasRun[ResultT]],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self,
        workflow: str | type[Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: type[ResultT],
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self,
        workflow: str | type[Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: None = None,
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[Any]: ...
    async def start_workflow(
        self,
        workflow: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: Any = None,
        **options: Unpack[StartOptions],
    ) -> WorkflowHandle[Any]:
        """Start a workflow: its class, its run method or its name. From the answer on it is durable.

        The handle is bound to this start, also if the id is used again later. Raises `WorkflowAlreadyStartedError` if
        the id is in use and the policies do not allow the start.
        """
        called = workflow_target(workflow)
        start = budgeted(workflow_start(called, arg, args, options), self.dispatch())
        started = await self._context.outbound.start_workflow(start)
        return WorkflowHandle(
            self._context,
            started.id,
            first_execution_run_id=started.run_id,
            is_new=started.is_new,
            result_type=result_type or called.result_type,
        )

    @overload
    async def execute_workflow(
        self, workflow: Callable[[SelfT], Awaitable[ResultT]], **options: Unpack[StartOptions]
    ) -> ResultT: ...
    @overload
    async def execute_workflow(
        self,
        workflow: Callable[[SelfT, ArgT], Awaitable[ResultT]],
        arg: ArgT,
        **options: Unpack[StartOptions],
    ) -> ResultT: ...
    @overload
    async def execute_workflow(
        self,
        workflow: Callable[Concatenate[SelfT, P], Awaitable[ResultT]],
        *,
        args: Sequence[Any],
        **options: Unpack[StartOptions],
    ) -> ResultT: ...
    @overload
    async def execute_workflow(
        self,
        workflow: type[HasRun[ResultT]],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        **options: Unpack[StartOptions],
    ) -> ResultT: ...
    @overload
    async def execute_workflow(
        self,
        workflow: str | type[Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: type[ResultT],
        **options: Unpack[StartOptions],
    ) -> ResultT: ...
    @overload
    async def execute_workflow(
        self,
        workflow: str | type[Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: None = None,
        **options: Unpack[StartOptions],
    ) -> Any: ...
    async def execute_workflow(
        self,
        workflow: Any,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: Any = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        """Start a workflow and wait for its result."""
        handle = await self.start_workflow(workflow, arg, args=args, result_type=result_type, **options)
        return await handle.result()

    @overload
    def get_workflow_handle(
        self, id: str, *, run_id: str | None = None, result_type: type[ResultT]
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    def get_workflow_handle(
        self, id: str, *, run_id: str | None = None, result_type: None = None
    ) -> WorkflowHandle[Any]: ...
    def get_workflow_handle(
        self,
        id: str,  # noqa: A002
        *,
        run_id: str | None = None,
        result_type: Any = None,
    ) -> WorkflowHandle[Any]:
        """A handle of a workflow that exists already. Nothing is asked of the server yet."""
        return WorkflowHandle(self._context, id, run_id=run_id, result_type=result_type)

    def get_workflow_handle_for(
        self,
        workflow: Callable[Concatenate[SelfT, P], Awaitable[ResultT]] | type[HasRun[ResultT]],
        id: str,  # noqa: A002
        *,
        run_id: str | None = None,
    ) -> WorkflowHandle[ResultT]:
        """The same, with the result type of a workflow's run method."""
        return WorkflowHandle(
            self._context, id, run_id=run_id, result_type=workflow_target(workflow).result_type
        )

    # Updates with a start

    @overload
    async def start_update_with_start_workflow(
        self,
        update: Callable[[SelfT], Awaitable[ResultT]],
        *,
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        wait_for: UpdateStage = "accepted",
        id: str | None = None,
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: Callable[[SelfT], ResultT],
        *,
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        wait_for: UpdateStage = "accepted",
        id: str | None = None,
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: Callable[[SelfT, ArgT], Awaitable[ResultT]],
        arg: ArgT,
        *,
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        wait_for: UpdateStage = "accepted",
        id: str | None = None,
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: Callable[[SelfT, ArgT], ResultT],
        arg: ArgT,
        *,
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        wait_for: UpdateStage = "accepted",
        id: str | None = None,
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: Callable[Concatenate[SelfT, P], Awaitable[ResultT]],
        *,
        args: Sequence[Any],
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        wait_for: UpdateStage = "accepted",
        id: str | None = None,
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: Callable[Concatenate[SelfT, P], ResultT],
        *,
        args: Sequence[Any],
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        wait_for: UpdateStage = "accepted",
        id: str | None = None,
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        wait_for: UpdateStage = "accepted",
        id: str | None = None,
        result_type: type[ResultT],
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        wait_for: UpdateStage = "accepted",
        id: str | None = None,
        result_type: None = None,
    ) -> WorkflowUpdateHandle[Any]: ...
    async def start_update_with_start_workflow(
        self,
        update: Any,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        start_workflow_operation: WithStartWorkflowOperation[Any],
        wait_for: UpdateStage = "accepted",
        id: str | None = None,  # noqa: A002
        result_type: Any = None,
    ) -> WorkflowUpdateHandle[Any]:
        """Start a workflow unless its id has an open run, then ask that run to change.

        These are two requests. If the second does not get through, the workflow has started all the same; called
        again with the same workflow id and update `id`, nothing happens twice.
        """
        handle = await self._start_with(start_workflow_operation)
        return await handle.start_update(
            update, arg, args=args, wait_for=wait_for, id=id, result_type=result_type
        )

    @overload
    async def execute_update_with_start_workflow(
        self,
        update: Callable[[SelfT], Awaitable[ResultT]],
        *,
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        id: str | None = None,
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: Callable[[SelfT], ResultT],
        *,
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        id: str | None = None,
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: Callable[[SelfT, ArgT], Awaitable[ResultT]],
        arg: ArgT,
        *,
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        id: str | None = None,
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: Callable[[SelfT, ArgT], ResultT],
        arg: ArgT,
        *,
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        id: str | None = None,
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: Callable[Concatenate[SelfT, P], Awaitable[ResultT]],
        *,
        args: Sequence[Any],
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        id: str | None = None,
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: Callable[Concatenate[SelfT, P], ResultT],
        *,
        args: Sequence[Any],
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        id: str | None = None,
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        id: str | None = None,
        result_type: type[ResultT],
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        start_workflow_operation: WithStartWorkflowOperation[OtherT],
        id: str | None = None,
        result_type: None = None,
    ) -> Any: ...
    async def execute_update_with_start_workflow(
        self,
        update: Any,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        start_workflow_operation: WithStartWorkflowOperation[Any],
        id: str | None = None,  # noqa: A002
        result_type: Any = None,
    ) -> Any:
        """The same, and wait for the update's answer."""
        handle = await self._start_with(start_workflow_operation)
        return await handle.execute_update(update, arg, args=args, id=id, result_type=result_type)

    async def _start_with(self, operation: WithStartWorkflowOperation[Any]) -> WorkflowHandle[Any]:
        operation.use()
        try:
            started = await self._context.outbound.start_workflow(budgeted(operation.input, self.dispatch()))
        except Exception as error:
            operation.told(error)
            raise
        handle: WorkflowHandle[Any] = WorkflowHandle(
            self._context,
            started.id,
            first_execution_run_id=started.run_id,
            is_new=started.is_new,
            result_type=operation.result_type,
        )
        operation.told(handle)
        return handle

    # Finding runs, and acting on many

    async def list_workflows(
        self, query: str | None = None, *, page_size: int = PAGE, limit: int | None = None
    ) -> AsyncIterator[WorkflowExecution]:
        """The runs that a query finds, the newest first; pages are fetched as they are needed."""
        found = 0
        async for body in self._pages(route("workflows"), "workflows", {"query": query}, page_size):
            if limit is not None and found >= limit:
                return
            found += 1
            yield WorkflowExecution.read(body)

    async def count_workflows(
        self, query: str | None = None, *, by_status: bool = False
    ) -> WorkflowExecutionCount:
        """How many runs a query finds."""
        answer = await self.transport.control(
            "GET",
            route("workflows", "count"),
            idempotent=True,
            query={"query": query, "group_by": "status" if by_status else None},
        )
        return WorkflowExecutionCount(answer["count"], answer["complete"], answer.get("groups") or {})

    async def preview_batch(self, query: str) -> BatchPreview:
        """Which open runs the operations below would act on. Nothing is done."""
        return await batch_operations.preview(self.transport, query)

    async def cancel_workflows(
        self, query: str, *, reason: str | None = None, request_id: str | None = None
    ) -> BatchResult:
        """Cancel all open runs that a query finds."""
        return await batch_operations.carry_out(self.transport, "cancel", query, request_id, reason=reason)

    async def terminate_workflows(
        self, query: str, *, reason: str | None = None, request_id: str | None = None
    ) -> BatchResult:
        """Terminate all open runs that a query finds."""
        return await batch_operations.carry_out(self.transport, "terminate", query, request_id, reason=reason)

    async def signal_workflows(
        self,
        query: str,
        signal: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        request_id: str | None = None,
    ) -> BatchResult:
        """Signal all open runs that a query finds; under one `request_id` each hears it once."""
        called = signal_target(signal)
        arguments = self.data_converter.encode_arguments(
            called.arguments(arg, args), f'signal "{called.name}"'
        )
        return await batch_operations.carry_out(
            self.transport, "signal", query, request_id, signal_name=called.name, input=arguments
        )

    # Standalone activities

    @overload
    async def start_activity(
        self, activity: Callable[[], Awaitable[ResultT]], **options: Unpack[StandaloneActivityOptions]
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self, activity: Callable[[], ResultT], **options: Unpack[StandaloneActivityOptions]
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: Callable[[ArgT], Awaitable[ResultT]],
        arg: ArgT,
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: Callable[[ArgT], ResultT],
        arg: ArgT,
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: Callable[P, Awaitable[ResultT]],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: Callable[P, ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: str,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: type[ResultT],
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: str,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: None = None,
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[Any]: ...
    async def start_activity(
        self,
        activity: Any,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: Any = None,
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[Any]:
        """Start an activity without a workflow: a task that is durable, retried and watched over like any other."""
        start = ActivityStart(activity, arg, args=args, result_type=result_type, **options)
        started = await self._context.outbound.start_activity(start.input_by(self.dispatch()))
        return ActivityHandle(
            self._context,
            started.id,
            run_id=started.run_id,
            is_new=started.is_new,
            result_type=start.result_type,
        )

    @overload
    async def execute_activity(
        self, activity: Callable[[], Awaitable[ResultT]], **options: Unpack[StandaloneActivityOptions]
    ) -> ResultT: ...
    @overload
    async def execute_activity(
        self, activity: Callable[[], ResultT], **options: Unpack[StandaloneActivityOptions]
    ) -> ResultT: ...
    @overload
    async def execute_activity(
        self,
        activity: Callable[[ArgT], Awaitable[ResultT]],
        arg: ArgT,
        **options: Unpack[StandaloneActivityOptions],
    ) -> ResultT: ...
    @overload
    async def execute_activity(
        self,
        activity: Callable[[ArgT], ResultT],
        arg: ArgT,
        **options: Unpack[StandaloneActivityOptions],
    ) -> ResultT: ...
    @overload
    async def execute_activity(
        self,
        activity: Callable[P, Awaitable[ResultT]],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneActivityOptions],
    ) -> ResultT: ...
    @overload
    async def execute_activity(
        self,
        activity: Callable[P, ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneActivityOptions],
    ) -> ResultT: ...
    @overload
    async def execute_activity(
        self,
        activity: str,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: type[ResultT],
        **options: Unpack[StandaloneActivityOptions],
    ) -> ResultT: ...
    @overload
    async def execute_activity(
        self,
        activity: str,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: None = None,
        **options: Unpack[StandaloneActivityOptions],
    ) -> Any: ...
    async def execute_activity(
        self,
        activity: Any,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: Any = None,
        **options: Unpack[StandaloneActivityOptions],
    ) -> Any:
        """Start a standalone activity and wait for its result."""
        handle = await self.start_activity(activity, arg, args=args, result_type=result_type, **options)
        return await handle.result()

    async def start_activities(
        self, starts: Sequence[ActivityStart[ResultT]], *, return_exceptions: bool = False
    ) -> list[ActivityHandle[ResultT]]:
        """Start many standalone activities with few requests. Each succeeds or is refused on its own.

        The first refusal is raised once all were sent; with `return_exceptions` refusals stand in the list, in
        the place of a handle.
        """
        config = self.dispatch()
        outcomes = await self._context.outbound.start_activities([each.input_by(config) for each in starts])
        handles: list[Any] = []
        for start, outcome in zip(starts, outcomes, strict=True):
            if isinstance(outcome, ServerRefused):
                handles.append(outcome)
            else:
                handles.append(
                    ActivityHandle(
                        self._context,
                        outcome.id,
                        run_id=outcome.run_id,
                        is_new=outcome.is_new,
                        result_type=start.result_type,
                    )
                )
        refused = next((each for each in handles if isinstance(each, ServerRefused)), None)
        if refused is not None and not return_exceptions:
            raise refused
        return handles

    @overload
    def get_activity_handle(
        self, id: str, *, run_id: str | None = None, result_type: type[ResultT]
    ) -> ActivityHandle[ResultT]: ...
    @overload
    def get_activity_handle(
        self, id: str, *, run_id: str | None = None, result_type: None = None
    ) -> ActivityHandle[Any]: ...
    def get_activity_handle(
        self,
        id: str,  # noqa: A002
        *,
        run_id: str | None = None,
        result_type: Any = None,
    ) -> ActivityHandle[Any]:
        """A handle of a standalone activity that exists already: its newest run, or the named one."""
        return ActivityHandle(self._context, id, run_id=run_id, result_type=result_type)

    async def list_activities(
        self, *, status: str | None = None, page_size: int = PAGE, limit: int | None = None
    ) -> AsyncIterator[ActivityExecutionDescription]:
        """Standalone activities, the newest first; `status` is running, completed or failed."""
        found = 0
        async for body in self._pages(route("activities"), "activities", {"status": status}, page_size):
            if limit is not None and found >= limit:
                return
            found += 1
            yield ActivityExecutionDescription.read(body, self.data_converter)

    async def _pages(self, path: str, what: str, query: Json, page_size: int) -> AsyncIterator[Json]:
        token: str | None = None
        while True:
            asked = query | {"page_size": page_size, "next_page_token": token}
            page = await self.transport.control("GET", path, idempotent=True, query=asked)
            for body in page[what]:
                yield body
            token = page["next_page_token"]
            if token is None:
                return


async def _introduce(transport: HttpTransport, options: ConnectOptions) -> None:
    """Ask the server what it is. Any role may; a process that is a worker only asks as one."""
    path = route("cluster", "info")
    is_worker = options.worker_token or options.worker_signature_key
    if is_worker and not (options.token or options.control_token or options.signature_key):
        info = await transport.work(path, {}, idempotent=True, method="GET")
    else:
        info = await transport.control("GET", path, idempotent=True)
    spoken = info.get("control_plane")
    if not isinstance(spoken, dict) or "version" not in spoken:
        raise Unreachable(
            f"{transport.url} answered, but not as a Penstock server does."
            " Check the address and the port: another program may be listening there."
        )
    if str(spoken["version"]) != CONTROL_PLANE[1]:
        raise Unreachable(
            f"{transport.url} speaks version {spoken['version']} of the control plane, and this client version"
            f" {CONTROL_PLANE[1]}. Use a client of the server's version."
        )
