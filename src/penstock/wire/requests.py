"""What clients and workers send, field by field. Unknown fields are ignored; null means absent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.wire.fields import (
    INT_MAX,
    Attempt,
    FairnessKey,
    FairnessWeight,
    HistoryPage,
    Message,
    Name,
    NameOrBlank,
    Names,
    NamespaceName,
    Object,
    PollSeconds,
    Priority,
    RequestId,
    RetentionDays,
    Seconds,
    Slots,
    TasksMax,
    Text1000,
    Version,
    WorkflowId,
)

Anything = Any


class Request(Struct):
    """Base of all request bodies."""


class Nothing(Request):
    """A request without a body of its own."""


class CreateNamespace(Request):
    name: NamespaceName
    description: Text1000 | None = None
    retention_days: RetentionDays | None = None


class UpdateNamespace(Request):
    description: Text1000 | None = None
    retention_days: RetentionDays | None = None


class StorageConfig(Request):
    uri: Text1000 | None = None
    bucket: Text1000 | None = None
    disk: Text1000 | None = None
    prefix: Text1000 | None = None
    region: Text1000 | None = None
    endpoint: Text1000 | None = None
    auth_profile: Text1000 | None = None


class SetExternalStorage(Request):
    driver: Literal["local", "s3", "gcs", "azure"]
    enabled: bool | None = True
    threshold_bytes: Annotated[int, Meta(ge=1, le=INT_MAX)] | None = None
    config: StorageConfig | None = None


class StartWorkflow(Request):
    workflow_type: Name
    workflow_id: WorkflowId | None = None
    task_queue: Name | None = None
    input: Anything = None
    business_key: Name | None = None
    memo: Object | None = None
    search_attributes: Object | None = None
    duplicate_policy: Literal["fail", "use-existing"] | None = None
    execution_timeout_seconds: Seconds | None = None
    run_timeout_seconds: Seconds | None = None
    priority: Priority | None = None
    fairness_key: FairnessKey | None = None
    fairness_weight: FairnessWeight | None = None
    build_id: Name | None = None
    compatibility: Name | None = None


class RetryPolicy(Request):
    max_attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    backoff_seconds: (
        Annotated[list[Annotated[int, Meta(ge=0, le=31_536_000)]], Meta(max_length=1000)] | None
    ) = None
    non_retryable_error_types: Annotated[list[Name], Meta(max_length=1000)] | None = None


class StartActivity(Request):
    activity_type: Name
    task_queue: Name
    activity_id: WorkflowId | None = None
    activity_class: Name | None = None
    input: Anything = None
    business_key: Name | None = None
    retry_policy: RetryPolicy | None = None
    start_to_close_timeout_seconds: Seconds | None = None
    schedule_to_start_timeout_seconds: Seconds | None = None
    schedule_to_close_timeout_seconds: Seconds | None = None
    heartbeat_timeout_seconds: Seconds | None = None
    duplicate_policy: Literal["fail", "use-existing"] | None = None
    priority: Priority | None = None
    fairness_key: FairnessKey | None = None
    fairness_weight: FairnessWeight | None = None
    build_id: Name | None = None


class EndRun(Request):
    reason: Text1000 | None = None
    request_id: RequestId | None = None


class AskQuery(Request):
    input: Anything = None


class QueryLease(Request):
    lease_owner: Name
    query_task_attempt: Attempt


class AnswerQueryTask(QueryLease):
    result: Anything = None
    result_envelope: Anything = None


class QueryFailure(Request):
    message: Message
    reason: Annotated[str, Meta(max_length=255)] | None = None
    type: Annotated[str, Meta(max_length=1000)] | None = None
    stack_trace: Message | None = None


class FailQueryTask(QueryLease):
    failure: QueryFailure


class BatchOf(Request):
    """Up to 100 items, each with an outcome of its own."""

    items: Annotated[list[Object], Meta(min_length=1, max_length=100)]


class ListWorkflows(Request):
    workflow_type: Name | None = None
    status: Literal["running", "completed", "failed"] | None = None
    query: Name | None = None
    page_size: Annotated[int, Meta(ge=1, le=200)] = 50
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None


class ListActivities(Request):
    status: Literal["running", "completed", "failed"] | None = None
    page_size: Annotated[int, Meta(ge=1, le=200)] = 50
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None


class ReadHistory(Request):
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 100
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None
    wait_new_event: bool = False


class ListWorkers(Request):
    task_queue: Name | None = None
    status: Literal["active", "draining", "stale"] | None = None


class ChangeCohort(Request):
    build_id: NameOrBlank | None
    """The key must be present; null or blank is the cohort of workers that name no build."""


class RegisterWorker(Request):
    task_queue: Name
    runtime: Literal["php", "python", "typescript", "go", "java", "rust", "external"]
    worker_id: Name | None = None
    sdk_version: Version | None = None
    build_id: Name | None = None
    supported_workflow_types: Names | None = None
    workflow_definition_fingerprints: dict[Name, Name] | None = None
    supported_activity_types: Names | None = None
    max_concurrent_workflow_tasks: Slots | None = None
    max_concurrent_activity_tasks: Slots | None = None
    max_concurrent_worker_sessions: Slots | None = None
    capabilities: Names | None = None
    capability_manifest: Object | None = None
    workflow_command_contracts: Object | None = None
    task_slots: Object | None = None
    process_metrics: Object | None = None
    heartbeat_interval_seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None


class HeartbeatWorker(Request):
    worker_id: Name
    task_slots: Object | None = None
    process_metrics: Object | None = None
    heartbeat_interval_seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None


class PollTasks(Request):
    worker_id: Name
    task_queue: Name
    poll_request_id: RequestId | None = None
    timeout_seconds: PollSeconds | None = None
    build_id: Name | None = None
    history_page_size: HistoryPage | None = None
    task_kinds: Names | None = None
    max_tasks: TasksMax | None = None
    """With this, the answer has `tasks`, a list, beside `task`, its first."""


class TaskLease(Request):
    lease_owner: Name
    workflow_task_attempt: Attempt


class ReadTaskHistory(TaskLease):
    next_history_page_token: Annotated[str, Meta(max_length=1000)]
    history_page_size: HistoryPage | None = None


class CompleteWorkflowTask(TaskLease):
    commands: Annotated[list[Object], Meta(min_length=1, max_length=1000)]


class WorkflowTaskFailure(Request):
    message: Message
    type: Name | None = None
    reason: Annotated[str, Meta(max_length=1000)] | None = None
    stack_trace: Message | None = None


class FailWorkflowTask(TaskLease):
    failure: WorkflowTaskFailure


class ActivityLease(Request):
    activity_attempt_id: Name
    lease_owner: Name


class CompleteActivityTask(ActivityLease):
    result: Anything = None


class ActivityFailure(Request):
    message: Message
    type: Annotated[str, Meta(max_length=1000)] | None = None
    cls: Annotated[str, Meta(max_length=1000)] | None = msgspec.field(name="class", default=None)
    code: Anything = None
    stack_trace: Message | None = None
    non_retryable: bool | None = None
    retryable: bool | None = None
    kind: Name | None = None
    timeout_type: Name | None = None
    cancelled: bool | None = None
    malformed_output: bool | None = None
    details: Anything = None


class FailActivityTask(ActivityLease):
    failure: ActivityFailure


class HeartbeatActivityTask(ActivityLease):
    details: Anything = None
    message: Message | None = None
    current: Anything = None
    total: Anything = None
    unit: Annotated[str, Meta(max_length=100)] | None = None
