"""Child workflows, and signals and cancel requests to other workflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

from penstock.sdk.call_targets import UNSET, signal_target, workflow_target
from penstock.sdk.clients.call_types import ArgT, AsyncCallable, AsyncMethod0, AsyncMethod1, SelfT
from penstock.sdk.clients.starts import HasRun
from penstock.sdk.id_policies import WorkflowIDReusePolicy
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.search_attributes import GivenAttributes, attributes_by_name
from penstock.sdk.workflow_api.options import check_options
from penstock.sdk.workflow_port.handles import (
    ChildWorkflowCancellationType,
    ChildWorkflowHandle,
    ParentClosePolicy,
)
from penstock.sdk.workflow_port.port import current

T = TypeVar("T")


class ChildWorkflowCallOptions(TypedDict, total=False):
    """Options of a child workflow beside its arguments."""

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
    search_attributes: GivenAttributes | None
    business_key: str | None
    build_id: str | None
    """Only workers of this build run it."""
    start_delay: timedelta | None
    """Delay before its first workflow task. Timeouts start after it."""


class ChildWorkflowOptions(ChildWorkflowCallOptions, total=False):
    """Options of a child workflow. All are optional."""

    args: Sequence[Any]


@overload
async def start_child_workflow(
    workflow: AsyncMethod0[SelfT, T], **options: Unpack[ChildWorkflowCallOptions]
) -> ChildWorkflowHandle[T]: ...
@overload
async def start_child_workflow(
    workflow: AsyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[ChildWorkflowCallOptions]
) -> ChildWorkflowHandle[T]: ...
@overload
async def start_child_workflow(
    workflow: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[ChildWorkflowCallOptions]
) -> ChildWorkflowHandle[T]: ...
@overload
async def start_child_workflow(
    workflow: type[HasRun[T]], arg: Any = ..., **options: Unpack[ChildWorkflowOptions]
) -> ChildWorkflowHandle[T]: ...
@overload
async def start_child_workflow(
    workflow: str | type[Any], arg: Any = ..., **options: Unpack[ChildWorkflowOptions]
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
    check_options("start_child_workflow", options, ChildWorkflowOptions)
    port = current()
    called = workflow_target(workflow)
    arguments = called.arguments(arg, options.get("args", ()))
    child_id = options.get("id") or str(port.uuid4())
    if options.get("search_attributes") is not None:
        options["search_attributes"] = attributes_by_name(options["search_attributes"])
    handle: ChildWorkflowHandle[Any] = await port.start_child(called, arguments, child_id, options)
    return handle


@overload
async def execute_child_workflow(
    workflow: AsyncMethod0[SelfT, T], **options: Unpack[ChildWorkflowCallOptions]
) -> T: ...
@overload
async def execute_child_workflow(
    workflow: AsyncMethod1[SelfT, ArgT, T], arg: ArgT, **options: Unpack[ChildWorkflowCallOptions]
) -> T: ...
@overload
async def execute_child_workflow(
    workflow: AsyncCallable[T], *, args: Sequence[Any], **options: Unpack[ChildWorkflowCallOptions]
) -> T: ...
@overload
async def execute_child_workflow(
    workflow: type[HasRun[T]], arg: Any = ..., **options: Unpack[ChildWorkflowOptions]
) -> T: ...
@overload
async def execute_child_workflow(
    workflow: str | type[Any], arg: Any = ..., **options: Unpack[ChildWorkflowOptions]
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
    """Another workflow of the same namespace.

    Args:
        workflow_id: its workflow id.
        run_id: a run of that id; None is the current run.
    """

    def __init__(self, workflow_id: str, run_id: str | None = None) -> None:
        self.id = workflow_id
        self.run_id = run_id

    async def signal(self, signal: Any, arg: Any = UNSET, *, args: Sequence[Any] = ()) -> None:
        """Send a signal. Returns once it is recorded there; raises if the workflow does not exist or is closed.

        Args:
            signal: the signal method, or its name.
            arg: the only argument of the signal.
            args: the arguments, if there are several.
        """
        called = signal_target(signal)
        await current().signal_workflow(self.id, self.run_id, called, called.arguments(arg, args))

    async def cancel(self, reason: str | None = None) -> None:
        """Request cancellation. Returns once the request is recorded there.

        Args:
            reason: recorded with the request.
        """
        await current().cancel_workflow(self.id, self.run_id, reason)


def get_external_workflow_handle(
    workflow_id: str, *, run_id: str | None = None
) -> ExternalWorkflowHandle[Any]:
    """Return a handle of another workflow in this namespace.

    Args:
        workflow_id: its workflow id.
        run_id: a run of that id; None is the current run.
    """
    current()
    return ExternalWorkflowHandle(workflow_id, run_id)


def get_external_workflow_handle_for(
    workflow: Any, workflow_id: str, *, run_id: str | None = None
) -> ExternalWorkflowHandle[Any]:
    """Return a handle of another workflow in this namespace.

    Args:
        workflow: the workflow class or its run method.
        workflow_id: its workflow id.
        run_id: a run of that id; None is the current run.
    """
    workflow_target(workflow)
    return get_external_workflow_handle(workflow_id, run_id=run_id)
