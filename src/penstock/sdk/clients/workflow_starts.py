"""Starting workflows, and handles of existing ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack, overload

from penstock.sdk.call_targets import UNSET, workflow_target
from penstock.sdk.clients.base_client import BaseClient
from penstock.sdk.clients.call_types import (
    ArgT,
    AsyncCallable,
    AsyncMethod0,
    AsyncMethod1,
    ResultT,
    SelfT,
    awaiting_result,
)
from penstock.sdk.clients.handles import WorkflowHandle, handle_of_start
from penstock.sdk.clients.starts import HasRun, NamedStartOptions, StartOptions, budgeted, workflow_start


class WorkflowStarts(BaseClient):
    """The part of `Client` that starts workflows."""

    @overload
    async def start_workflow(
        self, workflow: AsyncMethod0[SelfT, ResultT], **options: Unpack[StartOptions]
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self, workflow: AsyncMethod1[SelfT, ArgT, ResultT], arg: ArgT, **options: Unpack[StartOptions]
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self, workflow: AsyncCallable[ResultT], *, args: Sequence[Any], **options: Unpack[StartOptions]
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self, workflow: type[HasRun[ResultT]], arg: Any = UNSET, **options: Unpack[NamedStartOptions]
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self,
        workflow: str | type[Any],
        arg: Any = UNSET,
        *,
        result_type: type[ResultT],
        **options: Unpack[NamedStartOptions],
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    async def start_workflow(
        self,
        workflow: str | type[Any],
        arg: Any = UNSET,
        *,
        result_type: None = None,
        **options: Unpack[NamedStartOptions],
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
        return handle_of_start(self._context, started, result_type or called.result_type)

    execute_workflow = awaiting_result(start_workflow)

    @overload
    def get_workflow_handle(
        self,
        id: str,
        *,
        run_id: str | None = None,
        first_execution_run_id: str | None = None,
        result_type: type[ResultT],
    ) -> WorkflowHandle[ResultT]: ...
    @overload
    def get_workflow_handle(
        self,
        id: str,
        *,
        run_id: str | None = None,
        first_execution_run_id: str | None = None,
        result_type: None = None,
    ) -> WorkflowHandle[Any]: ...
    def get_workflow_handle(
        self,
        id: str,  # noqa: A002
        *,
        run_id: str | None = None,
        first_execution_run_id: str | None = None,
        result_type: Any = None,
    ) -> WorkflowHandle[Any]:
        """Return a handle of an existing workflow, without contacting the server.

        Args:
            id: the workflow id.
            run_id: a run of that id; None is the current run.
            first_execution_run_id: the first run of a chain: without `run_id`, the handle addresses the current run of
                that chain, and no run of a later start.
            result_type: type of the result.
        """
        return WorkflowHandle(
            self._context,
            id,
            run_id=run_id,
            first_execution_run_id=first_execution_run_id,
            result_type=result_type,
        )

    def get_workflow_handle_for(
        self,
        workflow: AsyncCallable[ResultT] | type[HasRun[ResultT]],
        id: str,  # noqa: A002
        *,
        run_id: str | None = None,
        first_execution_run_id: str | None = None,
    ) -> WorkflowHandle[ResultT]:
        """Return a handle of an existing workflow, typed by its run method.

        Args:
            workflow: the workflow class or its run method.
            id: the workflow id.
            run_id: a run of that id; None is the current run.
            first_execution_run_id: the first run of a chain: without `run_id`, the handle addresses the current run of
                that chain, and no run of a later start.
        """
        return self.get_workflow_handle(
            id,
            run_id=run_id,
            first_execution_run_id=first_execution_run_id,
            result_type=workflow_target(workflow).result_type,
        )
