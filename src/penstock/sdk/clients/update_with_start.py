"""Update-with-start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Required, TypedDict, Unpack, overload

from penstock.sdk.call_targets import UNSET
from penstock.sdk.clients.base_client import BaseClient
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
from penstock.sdk.clients.handles import (
    StartUpdateOptions,
    WorkflowHandle,
    WorkflowUpdateHandle,
    handle_of_start,
)
from penstock.sdk.clients.interceptors import UpdateStage, WorkflowUpdateStage, update_stage
from penstock.sdk.clients.starts import WithStartWorkflowOperation, budgeted


class StartUpdateWithStartOptions(StartUpdateOptions, total=False):
    """Options of `start_update_with_start_workflow`."""

    start_workflow_operation: Required[WithStartWorkflowOperation[Any]]


class NamedStartUpdateWithStartOptions(StartUpdateWithStartOptions, NamedCallArgs):
    """Options of an update that is given by name."""


class ExecuteUpdateWithStartOptions(TypedDict, total=False):
    """Options of `execute_update_with_start_workflow`."""

    id: str | None
    start_workflow_operation: Required[WithStartWorkflowOperation[Any]]


class NamedExecuteUpdateWithStartOptions(ExecuteUpdateWithStartOptions, NamedCallArgs):
    """Options of an update that is given by name."""


class UpdateWithStart(BaseClient):
    """The part of `Client` that sends an update to a workflow that it starts if necessary."""

    @overload
    async def start_update_with_start_workflow(
        self, update: AsyncMethod0[SelfT, ResultT], **options: Unpack[StartUpdateWithStartOptions]
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self, update: SyncMethod0[SelfT, ResultT], **options: Unpack[StartUpdateWithStartOptions]
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: AsyncMethod1[SelfT, ArgT, ResultT],
        arg: ArgT,
        **options: Unpack[StartUpdateWithStartOptions],
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: SyncMethod1[SelfT, ArgT, ResultT],
        arg: ArgT,
        **options: Unpack[StartUpdateWithStartOptions],
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: AsyncCallable[ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StartUpdateWithStartOptions],
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: Callable[..., ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StartUpdateWithStartOptions],
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        result_type: type[ResultT],
        **options: Unpack[NamedStartUpdateWithStartOptions],
    ) -> WorkflowUpdateHandle[ResultT]: ...
    @overload
    async def start_update_with_start_workflow(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        result_type: None = None,
        **options: Unpack[NamedStartUpdateWithStartOptions],
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
        wait_for_stage: WorkflowUpdateStage | None = None,
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
            wait_for_stage: the stage, as code for Temporal says it; in place of `wait_for`.
        """
        if wait_for_stage is not None:
            wait_for = update_stage(wait_for_stage)
        handle = await self._start_with(start_workflow_operation)
        return await handle.start_update(
            update, arg, args=args, wait_for=wait_for, id=id, result_type=result_type
        )

    @overload
    async def execute_update_with_start_workflow(
        self, update: AsyncMethod0[SelfT, ResultT], **options: Unpack[ExecuteUpdateWithStartOptions]
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self, update: SyncMethod0[SelfT, ResultT], **options: Unpack[ExecuteUpdateWithStartOptions]
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: AsyncMethod1[SelfT, ArgT, ResultT],
        arg: ArgT,
        **options: Unpack[ExecuteUpdateWithStartOptions],
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: SyncMethod1[SelfT, ArgT, ResultT],
        arg: ArgT,
        **options: Unpack[ExecuteUpdateWithStartOptions],
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: AsyncCallable[ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[ExecuteUpdateWithStartOptions],
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: Callable[..., ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[ExecuteUpdateWithStartOptions],
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        result_type: type[ResultT],
        **options: Unpack[NamedExecuteUpdateWithStartOptions],
    ) -> ResultT: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: str,
        arg: Any = UNSET,
        *,
        result_type: None = None,
        **options: Unpack[NamedExecuteUpdateWithStartOptions],
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
        handle = handle_of_start(self._context, started, operation.result_type)
        operation.set_outcome(handle)
        return handle
