"""`Client`: starts workflows and standalone activities, finds them, and acts on many at once."""

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
    """A client of one namespace. It belongs to one event loop and may be shared between tasks.

    Create it with `Client.connect`, and close it or use it as an async context manager.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        data_converter: DataConverter = DEFAULT,
        interceptors: Sequence[ClientInterceptor] = (),
        dispatch: Dispatch | None = None,
    ) -> None:
        """Create a client on an existing transport. Most callers want `Client.connect`.

        Args:
            transport: how requests reach the server.
            namespace: namespace of all requests.
            data_converter: encodes arguments and decodes results.
            interceptors: client interceptors, outermost first.
            dispatch: dispatch configuration for starts, and for workers created with this client.
        """
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
        """Connect to a server. Arguments take precedence over the environment, and that over a profile.

        Args:
            url: address of the server, `http://127.0.0.1:8080` unless configured. Several addresses of servers that
                share a database may be given as a list or separated by commas: requests go to one of them, and to the
                next when it fails. A request that may have had an effect is resent only if it is idempotent.
            namespace: namespace of all requests.
            token: token for a server that authenticates by tokens.
            control_token: token for client requests, in place of `token`.
            worker_token: token for worker requests, in place of `token`.
            signature_key: key for a server that requires signatures, as `operator:secret`. The part before the colon
                is operator, admin, worker or shared. Keys are never sent.
            worker_signature_key: key for worker requests, in place of `signature_key`.
            signature_profile: what is signed, `penstock` or `body`; the server's `DW_SIGNATURE_PROFILE`.
            profile: name of a profile in the profiles file.
            data_converter: encodes arguments and decodes results.
            interceptors: client interceptors, outermost first.
            ssl: TLS context; True verifies certificates with the default context, False disables verification.
            insecure: whether tokens may be sent over plain http to another machine.
            retry_for: how long each request is retried while no server is reachable.
            lazy: do not contact the server now. Otherwise an unreachable server raises `Unreachable`.
            dispatch: dispatch configuration that supplies timeouts which starts leave out. Workers created with this
                client use it too.
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
            retries=RequestRetries(retry_for.total_seconds()),
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
        """Start a workflow. Once this returns, the workflow is durable.

        The handle is bound to this start, even if the id is reused later.

        Args:
            workflow: the workflow class, its run method, or its name.
            arg: the only argument of the run method.
            args: the arguments, if there are several.
            result_type: type of the result, if the workflow is given by name.
            options: how to start it, see `StartOptions`: `id`, `task_queue`, timeouts, policies and others.

        Raises:
            WorkflowAlreadyStartedError: the id is in use and the policies do not allow the start.
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
        """Start a workflow and wait for its result. Takes the arguments of `start_workflow`.

        Raises:
            WorkflowFailureError: the workflow failed, was cancelled or terminated, or timed out.
            WorkflowAlreadyStartedError: the id is in use and the policies do not allow the start.
        """
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
        """Return a handle of an existing workflow, without contacting the server.

        Args:
            id: the workflow id.
            run_id: a run of that id; None is the current run.
            result_type: type of the result.
        """
        return WorkflowHandle(self._context, id, run_id=run_id, result_type=result_type)

    def get_workflow_handle_for(
        self,
        workflow: Callable[Concatenate[SelfT, P], Awaitable[ResultT]] | type[HasRun[ResultT]],
        id: str,  # noqa: A002
        *,
        run_id: str | None = None,
    ) -> WorkflowHandle[ResultT]:
        """Return a handle of an existing workflow, typed by its run method.

        Args:
            workflow: the workflow class or its run method.
            id: the workflow id.
            run_id: a run of that id; None is the current run.
        """
        return WorkflowHandle(
            self._context, id, run_id=run_id, result_type=workflow_target(workflow).result_type
        )

    # Update-with-start

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
        """Start a workflow unless its id has an open run, then send an update to that run.

        These are two requests. If the second fails, the workflow has been started anyway; a repeated call with the
        same workflow id and update `id` has no additional effect.

        Args:
            update: the update method, or its name.
            arg: the only argument of the update.
            args: the arguments, if there are several.
            start_workflow_operation: the start of the workflow. It can be used for one call.
            wait_for: stage to wait for, `accepted` or `completed`.
            id: the update id; None generates one.
            result_type: type of the result, if the update is given by name.
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
        """Start a workflow unless its id has an open run, send an update to that run, and wait for the update's
        result.

        Takes the arguments of `start_update_with_start_workflow`, except `wait_for`.
        """
        handle = await self._start_with(start_workflow_operation)
        return await handle.execute_update(update, arg, args=args, id=id, result_type=result_type)

    async def _start_with(self, operation: WithStartWorkflowOperation[Any]) -> WorkflowHandle[Any]:
        operation.use()
        try:
            started = await self._context.outbound.start_workflow(budgeted(operation.input, self.dispatch()))
        except Exception as error:
            operation.set_outcome(error)
            raise
        handle: WorkflowHandle[Any] = WorkflowHandle(
            self._context,
            started.id,
            first_execution_run_id=started.run_id,
            is_new=started.is_new,
            result_type=operation.result_type,
        )
        operation.set_outcome(handle)
        return handle

    # Visibility and batch operations

    async def list_workflows(
        self, query: str | None = None, *, page_size: int = PAGE, limit: int | None = None
    ) -> AsyncIterator[WorkflowExecution]:
        """Yield the runs that match a query, newest first. Pages are fetched on demand.

        Args:
            query: a visibility query; None matches all runs.
            page_size: runs per request.
            limit: maximum number of runs; None is all.
        """
        found = 0
        async for body in self._pages(route("workflows"), "workflows", {"query": query}, page_size):
            if limit is not None and found >= limit:
                return
            found += 1
            yield WorkflowExecution.read(body)

    async def count_workflows(
        self, query: str | None = None, *, by_status: bool = False
    ) -> WorkflowExecutionCount:
        """Return how many runs match a query.

        Args:
            query: a visibility query; None matches all runs.
            by_status: whether to count each status separately, too.
        """
        response = await self.transport.control(
            "GET",
            route("workflows", "count"),
            idempotent=True,
            query={"query": query, "group_by": "status" if by_status else None},
        )
        return WorkflowExecutionCount(response["count"], response["complete"], response.get("groups") or {})

    async def preview_batch(self, query: str) -> BatchPreview:
        """Return the open runs that a batch operation with this query would act on. Nothing is changed.

        Args:
            query: a visibility query.
        """
        return await batch_operations.preview(self.transport, query)

    async def cancel_workflows(
        self, query: str, *, reason: str | None = None, request_id: str | None = None
    ) -> BatchResult:
        """Cancel all open runs that match a query.

        Args:
            query: a visibility query.
            reason: recorded with each run.
            request_id: identifies the operation, so that a repeated call has no additional effect; None generates
                one.
        """
        return await batch_operations.carry_out(self.transport, "cancel", query, request_id, reason=reason)

    async def terminate_workflows(
        self, query: str, *, reason: str | None = None, request_id: str | None = None
    ) -> BatchResult:
        """Terminate all open runs that match a query.

        Args:
            query: a visibility query.
            reason: recorded with each run.
            request_id: identifies the operation, so that a repeated call has no additional effect; None generates
                one.
        """
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
        """Send a signal to all open runs that match a query.

        Args:
            query: a visibility query.
            signal: the signal method, or its name.
            arg: the only argument of the signal.
            args: the arguments, if there are several.
            request_id: identifies the operation: each run receives the signal once; None generates one.
        """
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
        """Start an activity without a workflow: a durable task with retries and timeouts.

        Args:
            activity: the activity, or its name.
            arg: the only argument of the activity.
            args: the arguments, if there are several.
            result_type: type of the result, if the activity is given by name.
            options: how to start it, see `StandaloneActivityOptions`: `id`, `task_queue`, timeouts, policies and
                others.
        """
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
        """Start a standalone activity and wait for its result. Takes the arguments of `start_activity`.

        Raises:
            ActivityFailureError: all attempts failed, or the activity was cancelled.
        """
        handle = await self.start_activity(activity, arg, args=args, result_type=result_type, **options)
        return await handle.result()

    async def start_activities(
        self, starts: Sequence[ActivityStart[ResultT]], *, return_exceptions: bool = False
    ) -> list[ActivityHandle[ResultT]]:
        """Start many standalone activities in few requests. Each succeeds or is refused on its own.

        Args:
            starts: the activities to start.
            return_exceptions: return refusals in place of handles. Otherwise the first one is raised, after all
                starts were sent.
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
        """Return a handle of an existing standalone activity, without contacting the server.

        Args:
            id: the activity id.
            run_id: a run of that id; None is the latest.
            result_type: type of the result.
        """
        return ActivityHandle(self._context, id, run_id=run_id, result_type=result_type)

    async def list_activities(
        self, *, status: str | None = None, page_size: int = PAGE, limit: int | None = None
    ) -> AsyncIterator[ActivityExecutionDescription]:
        """Yield standalone activities, newest first. Pages are fetched on demand.

        Args:
            status: running, completed or failed; None is all.
            page_size: activities per request.
            limit: maximum number of activities; None is all.
        """
        found = 0
        async for body in self._pages(route("activities"), "activities", {"status": status}, page_size):
            if limit is not None and found >= limit:
                return
            found += 1
            yield ActivityExecutionDescription.read(body, self.data_converter)

    async def _pages(self, path: str, what: str, query: Json, page_size: int) -> AsyncIterator[Json]:
        token: str | None = None
        while True:
            page_query = query | {"page_size": page_size, "next_page_token": token}
            page = await self.transport.control("GET", path, idempotent=True, query=page_query)
            for body in page[what]:
                yield body
            token = page["next_page_token"]
            if token is None:
                return


async def _introduce(transport: HttpTransport, options: ConnectOptions) -> None:
    """Request the server's info. Any role may; a client with only worker credentials asks as a worker."""
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
