"""Update-with-start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from penstock.sdk.call_targets import UNSET
from penstock.sdk.clients.base_client import BaseClient
from penstock.sdk.clients.handles import WorkflowHandle, WorkflowUpdateHandle
from penstock.sdk.clients.interceptors import UpdateStage
from penstock.sdk.clients.starts import (
    WithStartWorkflowOperation,
    budgeted,
)

SelfT = TypeVar("SelfT")
OtherT = TypeVar("OtherT")
ArgT = TypeVar("ArgT")
ResultT = TypeVar("ResultT")
P = ParamSpec("P")


class UpdateWithStart(BaseClient):
    """The part of `Client` that sends an update to a workflow that it starts if necessary."""

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
