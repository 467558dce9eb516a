"""Commands of workflow tasks as workers send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from penstock.core.model import ClosePolicy
from penstock.wire.fields import (
    INT_MAX,
    Cost,
    Delay,
    DelayMs,
    Message,
    Milliseconds,
    Name,
    Object,
    RequestId,
    Seconds,
    Summary,
    Text1000,
)
from penstock.wire.requests import Anything, Dispatch, IdReuse, RequestModel, RetryPolicy, WithPriority

AnyWorkflowId = Annotated[str, Meta(max_length=10_000)]
"""A workflow id from workflow code, unchecked. An invalid one fails the step, which the code can catch; rejecting the
whole workflow task would retry it without end."""


class WithTarget(WithPriority, kw_only=True):
    """Queue and arguments of what a command starts, under the names of commands or those of start requests."""

    queue: Name | None = None
    task_queue: Name | None = None
    arguments: Anything = None
    input: Anything = None


class ScheduleActivityCommand(WithTarget, kw_only=True):
    activity_type: Name
    retry_policy: RetryPolicy | None = None
    start_to_close_timeout: Seconds | None = None
    schedule_to_start_timeout: Seconds | None = None
    schedule_to_close_timeout: Seconds | None = None
    heartbeat_timeout: Seconds | None = None
    start_to_close_timeout_ms: Milliseconds | None = None
    schedule_to_start_timeout_ms: Milliseconds | None = None
    schedule_to_close_timeout_ms: Milliseconds | None = None
    heartbeat_timeout_ms: Milliseconds | None = None
    cost_estimate: Cost | None = None
    routing_key: Text1000 | None = None
    dispatch: Dispatch | None = None
    start_delay_seconds: Delay | None = None
    start_delay_ms: DelayMs | None = None
    good_until: Annotated[str, Meta(max_length=40)] | None = None
    good_for_ms: Milliseconds | None = None
    on_lost_lease: Literal["redeliver", "fail"] | None = None
    build_id: Name | None = None


class StartTimerCommand(RequestModel):
    delay_seconds: Delay | None = None
    delay_ms: DelayMs | None = None


class WithSummary(RequestModel):
    summary: Summary | None = None


class CancellationPolicy(RequestModel):
    cancellation_policy: Literal["try_cancel", "wait_cancellation_completed", "abandon"]


class GroupEntry(RequestModel, kw_only=True):
    parallel_group_id: Name
    parallel_group_kind: Name | None = None
    parallel_group_base_sequence: Annotated[int, Meta(ge=1, le=1_000_000)]
    parallel_group_size: Annotated[int, Meta(ge=1, le=1000)]
    parallel_group_index: Annotated[int, Meta(ge=0, le=999)]
    parallel_group_mode: Name | None = None


class SelectEntry(GroupEntry, kw_only=True):
    selection_member_key: Name | Annotated[int, Meta(ge=0, le=INT_MAX)]
    selection_member_index: Annotated[int, Meta(ge=0, le=999)]
    selection_member_base_sequence: Annotated[int, Meta(ge=1, le=1_000_000)]
    selection_member_size: Annotated[int, Meta(ge=1, le=1000)]
    selection_member_kind: Literal["activity", "timer", "child", "condition", "group"]


class GroupPath(RequestModel):
    path: Annotated[list[GroupEntry], Meta(min_length=1, max_length=20)] = msgspec.field(
        name="parallel_group_path"
    )


class CompleteWorkflowCommand(RequestModel):
    result: Anything = None


class FailWorkflowCommand(RequestModel):
    message: Message
    exception_type: Annotated[str, Meta(max_length=1000)] | None = None
    exception_class: Annotated[str, Meta(max_length=1000)] | None = None
    exception: dict[str, Any] | None = None
    non_retryable: bool | None = None
    failed_step_sequence: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    failed_activity_execution_id: Name | None = None


class ContinueAsNewCommand(WithTarget, kw_only=True):
    """Fields that are left out are inherited from the run that ends."""

    workflow_type: Name | None = None
    run_timeout_seconds: Seconds | None = None
    retry_policy: RetryPolicy | None = None
    memo: Object | None = None
    search_attributes: Object | None = None


class LocalActivityCommand(RequestModel):
    IGNORED_FIELDS = frozenset(
        {
            "execution_mode",
            "payload_codec",
            "start_to_close_timeout",
            "schedule_to_close_timeout",
            "heartbeat_timeout",
        }
    )

    activity_type: Name
    outcome: Literal["completed", "failed", "timed_out", "cancelled"]
    arguments: Anything = None
    result: Anything = None
    attempts: Annotated[list[Object], Meta(max_length=1000)] | None = None
    message: Message | None = None
    exception_type: Annotated[str, Meta(max_length=1000)] | None = None
    non_retryable: bool | None = None
    timeout_kind: Name | None = None
    retry_policy: RetryPolicy | None = None
    exception: Object | None = None
    """The full error with its causes."""
    local_number: Annotated[int, Meta(ge=1, le=INT_MAX)] | None = None
    """Number of the local activity in its run; those that run concurrently end in any order."""


class StartChildCommand(WithTarget, kw_only=True):
    workflow_type: Name
    workflow_id: AnyWorkflowId | None = None
    id_reuse_policy: IdReuse | None = None
    """Whether the child may reuse the id of a closed workflow; not by default."""
    parent_close_policy: ClosePolicy | None = None
    retry_policy: RetryPolicy | None = None
    execution_timeout_seconds: Seconds | None = None
    run_timeout_seconds: Seconds | None = None
    memo: Object | None = None
    search_attributes: Object | None = None
    business_key: Name | None = None
    build_id: Name | None = None
    start_delay_seconds: Delay | None = None
    start_delay_ms: DelayMs | None = None


class SideEffectCommand(RequestModel):
    result: Anything = None
    workflow_stream: Object | None = None


class VersionMarkerCommand(RequestModel):
    change_id: Name
    version: Annotated[int, Meta(ge=-INT_MAX, le=INT_MAX)]
    min_supported: Annotated[int, Meta(ge=-INT_MAX, le=INT_MAX)]
    max_supported: Annotated[int, Meta(ge=-INT_MAX, le=INT_MAX)]


class UpsertSearchAttributesCommand(RequestModel):
    attributes: Object


class UpsertMemoCommand(RequestModel):
    entries: Anything


class ConditionWaitCommand(RequestModel):
    condition_key: Annotated[str, Meta(max_length=1000)] | None = None
    condition_definition_fingerprint: Annotated[str, Meta(max_length=1000)] | None = None
    timeout_seconds: Delay | None = None


class SignalWaitCommand(RequestModel):
    signal_name: Name
    timeout_seconds: Delay | None = None


class CompleteUpdateCommand(RequestModel):
    update_id: RequestId
    result: Anything = None


class FailUpdateCommand(RequestModel):
    update_id: RequestId
    message: Message
    exception_type: Annotated[str, Meta(max_length=1000)] | None = None
    exception_class: Annotated[str, Meta(max_length=1000)] | None = None
    exception: dict[str, Any] | None = None
    non_retryable: bool | None = None


class CancelStepCommand(RequestModel):
    step_sequence: Annotated[int, Meta(ge=1, le=INT_MAX)]
    wait: bool | None = None
    """For an activity: wait for its outcome after requesting cancellation."""


class SignalExternalCommand(RequestModel):
    workflow_id: AnyWorkflowId
    signal_name: Name
    run_id: Name | None = None
    arguments: Anything = None
    child_workflow_only: bool | None = None
    """Only if the target is a child of this run, not another workflow that reused the id."""


class CancelExternalCommand(RequestModel):
    workflow_id: AnyWorkflowId
    run_id: Name | None = None
    reason: Text1000 | None = None
    child_workflow_only: bool | None = None


class CancelWorkflowCommand(RequestModel):
    reason: Text1000 | None = None


class CancelSelectionCommand(RequestModel):
    selection_group_id: Name
    member_key: Name | Annotated[int, Meta(ge=0, le=INT_MAX)]
    member_index: Annotated[int, Meta(ge=0, le=999)]
    member_base_sequence: Annotated[int, Meta(ge=1, le=1_000_000)]
    member_size: Annotated[int, Meta(ge=1, le=1000)]
    operation_kind: Name
    operation_identity: Name


COMMAND_SHAPES: Final[Mapping[str, type[RequestModel]]] = {
    "schedule_activity": ScheduleActivityCommand,
    "record_local_activity": LocalActivityCommand,
    "start_timer": StartTimerCommand,
    "start_child_workflow": StartChildCommand,
    "record_side_effect": SideEffectCommand,
    "record_version_marker": VersionMarkerCommand,
    "upsert_search_attributes": UpsertSearchAttributesCommand,
    "upsert_memo": UpsertMemoCommand,
    "open_condition_wait": ConditionWaitCommand,
    "open_signal_wait": SignalWaitCommand,
    "complete_update": CompleteUpdateCommand,
    "fail_update": FailUpdateCommand,
    "cancel_selection_operation": CancelSelectionCommand,
    "complete_workflow": CompleteWorkflowCommand,
    "fail_workflow": FailWorkflowCommand,
    "continue_as_new": ContinueAsNewCommand,
    "cancel_step": CancelStepCommand,
    "signal_external_workflow": SignalExternalCommand,
    "cancel_external_workflow": CancelExternalCommand,
    "cancel_workflow": CancelWorkflowCommand,
}
"""The model of each command, by its `type`."""

_PLACED: Final = frozenset(
    {
        "retry_policy",
        "start_to_close_timeout",
        "schedule_to_start_timeout",
        "schedule_to_close_timeout",
        "heartbeat_timeout",
        "execution_timeout_seconds",
        "run_timeout_seconds",
        "parent_close_policy",
        "non_retryable",
    }
)
MISPLACED_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    kind: _PLACED - {field.encode_name for field in msgspec.structs.fields(shape)} - shape.IGNORED_FIELDS
    for kind, shape in COMMAND_SHAPES.items()
}
"""Fields of other commands that a command must not have: ignoring them would lose a retry policy or a timeout."""
