"""Child workflows, and signals and cancel requests to other workflows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

from penstock.sdk.call_targets import UNSET, signal_target, workflow_target
from penstock.sdk.id_policies import WorkflowIDReusePolicy
from penstock.sdk.priority import Priority, priority_fields
from penstock.sdk.replay.commands import CommandKind, StepFuture
from penstock.sdk.replay.runtime import Runtime, current
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.workflow_api.options import (
    abandon,
    check_options,
    delay_ms,
    memo_and_attributes,
    whole_seconds,
)

T = TypeVar("T")


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
    check_options("start_child_workflow", options, ChildWorkflowOptions)
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
        **whole_seconds(
            execution_timeout_seconds=options.get("execution_timeout"),
            run_timeout_seconds=options.get("run_timeout"),
        ),
        **priority_fields(options.get("priority")),
        **memo_and_attributes(options.get("memo"), options.get("search_attributes")),
    }
    delay = options.get("start_delay")
    fields = {
        "queue": options.get("task_queue"),
        "retry_policy": None if retry_policy is None else retry_policy.on_the_wire(),
        "business_key": options.get("business_key"),
        "build_id": options.get("build_id"),
        "start_delay_ms": None if delay is None else delay_ms(delay),
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
        return abandon
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
    """Handle the response to a cancel request. A refused one has no effect: the outcome of the child follows."""
    if request.cancelled() or request.exception() is not None or child is None:
        return
    child.fail_as_cancelled()


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
