"""What clients and workers send, field by field.

Null means absent, unless a shape says otherwise. Unknown fields are refused on routes of our own and reported as
`warnings` on routes of the public contract (`unknown_fields.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.wire.fields import (
    INT_MAX,
    NO_NUL,
    AgingEvery,
    AgingWait,
    Attempt,
    BurstSeconds,
    Cost,
    Delay,
    DelayMs,
    FairnessKey,
    FairnessWeight,
    GroupName,
    HistoryPage,
    LeaseCap,
    LeaseMs,
    Message,
    Milliseconds,
    Name,
    NamedKey,
    NameOrBlank,
    Names,
    NamespaceName,
    Object,
    PerKey,
    PerMinute,
    PollSeconds,
    Priority,
    PriorityKey,
    Rate,
    ReasonText,
    ReportedRate,
    RequestId,
    RetentionDays,
    RetryRate,
    Seconds,
    Slots,
    TaskSlots,
    TasksMax,
    Text1000,
    Version,
    WorkflowId,
)

Anything = Any


class RequestModel(Struct):
    """Base of all request bodies."""

    IGNORED_FIELDS: ClassVar[frozenset[str]] = frozenset()
    """Fields that the public contract defines and that have no effect here: known, so that they cause no warning."""


class EmptyRequest(RequestModel):
    """A request without a body of its own."""


class CreateNamespace(RequestModel):
    name: NamespaceName
    description: Text1000 | None = None
    retention_days: RetentionDays | None = None
    fairness: Literal["on", "off"] | None = None


class UpdateNamespace(RequestModel):
    description: Text1000 | None = None
    retention_days: RetentionDays | None = None
    fairness: Literal["on", "off"] | None = None


class StorageConfig(RequestModel):
    uri: Text1000 | None = None
    bucket: Text1000 | None = None
    disk: Text1000 | None = None
    prefix: Text1000 | None = None
    region: Text1000 | None = None
    endpoint: Text1000 | None = None
    auth_profile: Text1000 | None = None


class SetExternalStorage(RequestModel):
    driver: Literal["local", "s3", "gcs", "azure"]
    enabled: bool | None = True
    threshold_bytes: Annotated[int, Meta(ge=1, le=INT_MAX)] | None = None
    config: StorageConfig | None = None


class NestedPriority(RequestModel):
    """Standing as other systems write it: all three under one name."""

    priority_key: PriorityKey | None = None
    fairness_key: FairnessKey | None = None
    fairness_weight: FairnessWeight | None = None


class WithPriority(RequestModel):
    """Level, key and weight, said flat or under `priority`; whatever is said twice must agree."""

    priority: Priority | NestedPriority | None = None
    priority_key: PriorityKey | None = None
    fairness_key: FairnessKey | None = None
    fairness_weight: FairnessWeight | None = None


IdReuse = Literal["allow_duplicate", "allow_duplicate_failed_only", "reject_duplicate"]
IdConflict = Literal["fail", "use_existing", "terminate_existing"]


class WithIdPolicies(WithPriority, kw_only=True):
    """What a start does when its id is known already. With neither of the two policies the contract's rules hold."""

    duplicate_policy: Literal["fail", "use-existing"] | None = None
    """The contract's policy: with use-existing an open run is returned. The id of a closed run is refused."""
    id_reuse_policy: IdReuse | None = None
    """Whether the id of a closed run may be used again; `allow_duplicate` where only the other policy is sent."""
    id_conflict_policy: IdConflict | None = None
    """What happens to an open run that has the id; left out: what `duplicate_policy` says."""


class StartWorkflow(WithIdPolicies, kw_only=True):
    IGNORED_FIELDS = frozenset({"payload_codec", "observability_context"})

    workflow_type: Name
    workflow_id: WorkflowId | None = None
    task_queue: Name | None = None
    input: Anything = None
    business_key: Name | None = None
    memo: Object | None = None
    search_attributes: Object | None = None
    execution_timeout_seconds: Seconds | None = None
    run_timeout_seconds: Seconds | None = None
    build_id: Name | None = None
    compatibility: Name | None = None
    start_delay_seconds: Delay | None = None
    start_delay_ms: DelayMs | None = None
    """How long its code rests before it runs first; its timeouts run from then on. Milliseconds go before seconds."""
    deliver_cancel: bool | None = None
    """Deliver a cancel request that comes before the first workflow task to the code, instead of closing the run.

    For code that handles cancellation, as concurrent runs do. A run of other code closes with its first workflow task.
    """


class RetryPolicy(RequestModel):
    max_attempts: Annotated[int, Meta(ge=1, le=2_147_483_647)] | None = None
    backoff_seconds: (
        Annotated[list[Annotated[int, Meta(ge=0, le=31_536_000)]], Meta(max_length=1000)] | None
    ) = None
    non_retryable_error_types: Annotated[list[Name], Meta(max_length=1000)] | None = None
    backoff_ms: (
        Annotated[list[Annotated[int, Meta(ge=0, le=31_536_000_000)]], Meta(max_length=1000)] | None
    ) = None
    """The pauses in milliseconds; they go before `backoff_seconds`."""


class Dispatch(RequestModel, kw_only=True):
    """By which configuration the options of an activity were resolved, and which layer each comes from."""

    fingerprint: Annotated[str, Meta(max_length=255, pattern=NO_NUL)] | None = None
    sources: Annotated[dict[Name, Text1000], Meta(max_length=50)] = msgspec.field(default_factory=dict)


class StartActivity(WithIdPolicies, kw_only=True):
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
    start_to_close_timeout_ms: Milliseconds | None = None
    schedule_to_start_timeout_ms: Milliseconds | None = None
    schedule_to_close_timeout_ms: Milliseconds | None = None
    heartbeat_timeout_ms: Milliseconds | None = None
    """In milliseconds they go before the whole seconds."""
    build_id: Name | None = None
    cost_estimate: Cost | None = None
    """What it is expected to cost budget groups that count cost, in their units."""
    start_delay_seconds: Delay | None = None
    start_delay_ms: DelayMs | None = None
    """How long it rests before it may start; its clocks run from then on. Milliseconds go before seconds."""
    good_until: Annotated[str, Meta(max_length=40)] | None = None
    """An instant by which it must have started, or else has expired: a start clock that ends then."""
    good_for_ms: Milliseconds | None = None
    """The same, counted from when it may begin for the first time, by the server's clock."""
    on_lost_lease: Literal["redeliver", "fail"] | None = None
    """What it means that its worker died: another delivery (so without it), or an attempt that failed."""
    routing_key: Text1000 | None = None
    dispatch: Dispatch | None = None


class EndRun(RequestModel):
    reason: Text1000 | None = None
    request_id: RequestId | None = None


class AskQuery(RequestModel):
    input: Anything = None


class SendSignal(RequestModel):
    IGNORED_FIELDS = frozenset({"observability_context"})

    input: Anything = None
    request_id: RequestId | None = None


class AskUpdate(RequestModel):
    IGNORED_FIELDS = frozenset({"observability_context"})

    input: Anything = None
    request_id: RequestId | None = None
    wait_for: Literal["accepted", "completed"] | None = None
    wait_timeout_seconds: Annotated[int, Meta(ge=1, le=600)] | None = None
    wait_policy: Anything = None


class SignalWithStart(StartWorkflow, kw_only=True):
    """A start, and a signal that is recorded with it, or sent to the run that has the id."""

    signal_name: Name
    signal_input: Anything = None
    signal_request_id: RequestId | None = None


class InChain(RequestModel):
    """Which of the runs of a workflow id is meant, where the path names none."""

    first_execution_run_id: Name | None = None
    """The run that a start began: the newest run that continues it is meant, not one of a later start of the id."""


class ReadResult(InChain):
    wait_seconds: Annotated[int, Meta(ge=0, le=60)] = 0


class ReadRunResult(RequestModel):
    wait_seconds: Annotated[int, Meta(ge=0, le=60)] = 0


class OfActivityRun(RequestModel):
    """Which run of a standalone activity is meant."""

    run_id: Name | None = None
    """Left out: the newest run of the id."""


class ReadActivityResult(OfActivityRun):
    wait_seconds: Annotated[int, Meta(ge=0, le=60)] = 0


class QueryLease(RequestModel):
    lease_owner: Name
    query_task_attempt: Attempt


class AnswerQueryTask(QueryLease):
    result: Anything = None
    result_envelope: Anything = None


class QueryFailure(RequestModel):
    message: Message
    reason: Annotated[str, Meta(max_length=255)] | None = None
    type: Annotated[str, Meta(max_length=1000)] | None = None
    stack_trace: Message | None = None


class FailQueryTask(QueryLease):
    failure: QueryFailure


class BatchOf(RequestModel):
    """Up to 100 items, each with an outcome of its own."""

    items: Annotated[list[Object], Meta(min_length=1, max_length=100)]


class ListRuns(RequestModel):
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 200
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None


class ListActivities(RequestModel):
    status: Literal["running", "completed", "failed"] | None = None
    page_size: Annotated[int, Meta(ge=1, le=200)] = 50
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None


class ReadHistory(RequestModel):
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 100
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None
    wait_new_event: bool = False
    order: Literal["asc", "desc"] = "asc"


class ListWorkers(RequestModel):
    task_queue: Name | None = None
    status: Literal["active", "draining", "stale"] | None = None


QueueKind = Literal["activity", "workflow"]
Default = Literal["default"] | None
"""Back to what holds where nobody has set anything."""


class ReadConfig(RequestModel):
    task_queue_type: QueueKind = "activity"


class ReadConfigHistory(ReadConfig):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class ConfigureKey(RequestModel, forbid_unknown_fields=True):
    """What changes for one fairness key."""

    rps_limit: Rate | Default | UnsetType = UNSET
    max_running: LeaseCap | Default | UnsetType = UNSET
    paused: bool | UnsetType | None = UNSET


class ConfigureQueue(RequestModel, forbid_unknown_fields=True):
    """What changes in the settings of a queue's tasks of one kind; what is left out stays as it is.

    A field that is not known is refused: a limit that is misspelt would not be there when it is needed.
    """

    task_queue_type: QueueKind
    queue_rps_limit: Rate | Default | UnsetType = UNSET
    queue_rps_limit_reason: ReasonText | None = None
    queue_rps_burst_seconds: BurstSeconds | Default | UnsetType = UNSET
    fairness_key_rps_limit_default: Rate | Default | UnsetType = UNSET
    fairness_key_rps_limit_reason: ReasonText | None = None
    fairness_key_rps_burst_seconds: BurstSeconds | Default | UnsetType = UNSET
    worker_rps_limit: Default | UnsetType = UNSET
    """Only back to the default: what workers conveyed is forgotten until one speaks again."""
    set_fairness_weight_overrides: Annotated[dict[NamedKey, FairnessWeight], PerKey] | None = None
    unset_fairness_weight_overrides: Annotated[list[NamedKey], PerKey] | None = None
    clear_fairness_weight_overrides: bool | None = None
    fairness: Literal["on", "off", "default"] | UnsetType | None = UNSET
    fairness_counts: Literal["dispatches", "running", "default"] | UnsetType | None = UNSET
    retry_rps_limit: RetryRate | Default | UnsetType = UNSET
    """The retry budget: attempts after the first that may become ready in a second."""
    max_running: LeaseCap | Default | UnsetType = UNSET
    fairness_key_max_running_default: LeaseCap | Default | UnsetType = UNSET
    aging_wait_seconds: AgingWait | Default | UnsetType = UNSET
    aging_every: AgingEvery | Default | UnsetType = UNSET
    max_dispatches_per_minute: PerMinute | Default | UnsetType = UNSET
    dispatch_window: Literal["minute", "sliding", "default"] | UnsetType | None = UNSET
    dispatch_budget_group: GroupName | UnsetType | None = UNSET
    """`default` is no name of a group here: it unsets."""
    paused: bool | Default | UnsetType = UNSET
    keys: Annotated[dict[NamedKey, ConfigureKey], PerKey] | None = None
    reason: ReasonText | None = None
    """For every setting that has none of its own."""
    if_version: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None


class ChangeCohort(RequestModel):
    build_id: NameOrBlank | None
    """The key must be present; null or blank is the cohort of workers that name no build."""


class RegisterWorker(RequestModel):
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
    max_claimed_activity_tasks: Slots | None = None
    """How many activity tasks it may hold that are claimed ahead and not started, if more than it has slots."""
    max_concurrent_worker_sessions: Slots | None = None
    capabilities: Names | None = None
    capability_manifest: Object | None = None
    workflow_command_contracts: Object | None = None
    task_slots: Object | None = None
    process_metrics: Object | None = None
    heartbeat_interval_seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    max_task_queue_activities_per_second: ReportedRate | None = None
    """How fast its whole queue may go, if it has an opinion."""
    queue_rate_burst_seconds: BurstSeconds | None = None
    """For how long what the queue did not hand out is saved up; said with a rate."""
    max_activities_per_second: ReportedRate | None = None
    """How many this worker takes by itself: kept by the worker, shown here."""


class HeartbeatWorker(RequestModel):
    worker_id: Name
    max_concurrent_workflow_tasks: TaskSlots | None = None
    max_concurrent_activity_tasks: TaskSlots | None = None
    """A worker may offer more or fewer slots than it registered, also none."""
    task_slots: Object | None = None
    process_metrics: Object | None = None
    heartbeat_interval_seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    max_task_queue_activities_per_second: ReportedRate | None = None
    queue_rate_burst_seconds: BurstSeconds | None = None


class PollTasks(RequestModel):
    IGNORED_FIELDS = frozenset({"accept_history_encoding"})

    worker_id: Name
    task_queue: Name
    poll_request_id: RequestId | None = None
    timeout_seconds: PollSeconds | None = None
    build_id: Name | None = None
    history_page_size: HistoryPage | None = None
    task_kinds: Names | None = None
    max_tasks: TasksMax | None = None
    """With this, the answer has `tasks`, a list, beside `task`, its first."""
    max_task_queue_activities_per_second: ReportedRate | None = None
    """Heard on polls for activity tasks."""
    queue_rate_burst_seconds: BurstSeconds | None = None
    claim_lease_ms: Annotated[int, Meta(ge=100, le=600_000)] | None = None
    """Activity tasks ahead of time: leased so long, counted by no limit, to be started before they are run."""
    lease_ms: LeaseMs | None = None
    """Activity tasks are leased no longer than this: for workers that renew in time, and are missed soon."""


class TaskLease(RequestModel):
    lease_owner: Name
    workflow_task_attempt: Attempt


class ReadTaskHistory(TaskLease):
    next_history_page_token: Annotated[str, Meta(max_length=1000)]
    history_page_size: HistoryPage | None = None


class StreamCursor(RequestModel):
    stream_name: Name
    through_position: Annotated[int, Meta(ge=0, le=INT_MAX)]


class CompleteWorkflowTask(TaskLease):
    IGNORED_FIELDS = frozenset({"message_stream_waits", "sticky_cache"})

    commands: Annotated[list[Object], Meta(max_length=10_000)]
    """One at least, unless the run is concurrent."""
    message_stream_cursors: Annotated[list[StreamCursor], Meta(max_length=1000)] | None = None
    """How far the code has read the streams of messages that it is sent."""
    concurrent: bool | None = None
    """The run is one whose code has many steps open at once, and hears everything as it comes."""
    cached: bool | None = None
    """With `concurrent`: the worker keeps the run in memory; its next task brings what is new."""
    sticky_timeout_ms: Annotated[int, Meta(ge=0, le=600_000)] | None = None
    """With `cached`: for so long the run's next task waits for this worker before anybody may have it."""


class WorkflowTaskFailure(RequestModel):
    message: Message
    type: Name | None = None
    reason: Annotated[str, Meta(max_length=1000)] | None = None
    stack_trace: Message | None = None


class FailWorkflowTask(TaskLease):
    failure: WorkflowTaskFailure


class ActivityLease(RequestModel):
    activity_attempt_id: Name
    lease_owner: Name


class CompleteActivityTask(ActivityLease):
    result: Anything = None
    cost: Cost | None = None
    """What it did cost, where that differs from its estimate."""


class ActivityFailure(RequestModel):
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
    cause: Object | None = None
    """The failure behind this one, in the same words; it may have one, too."""
    next_retry_delay_seconds: Annotated[float, Meta(ge=0, le=31_536_000)] | None = None
    """How long to wait before the next attempt, if there is one, instead of what the policy says."""
    throttled: bool | None = None
    """Refused upstream: its budget group is closed for a while, and no attempt is charged."""
    retry_after_seconds: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    """With `throttled`: how long upstream asks to be left alone."""


class FailActivityTask(ActivityLease):
    failure: ActivityFailure
    cost: Cost | None = None


class StartActivityTask(ActivityLease):
    """Take the permit of a task that was handed out ahead of time."""

    lease_ms: LeaseMs | None = None
    """From now on it is leased no longer than this, as with polls."""


class HeartbeatActivityTask(ActivityLease):
    lease_ms: LeaseMs | None = None
    """The lease is renewed for no longer than this, as with polls."""
    sequence: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None
    """Counts the heartbeats of an attempt: one that was overtaken on the way does not undo what a later one told."""
    details: Anything = None
    message: Message | None = None
    current: Anything = None
    total: Anything = None
    unit: Annotated[str, Meta(max_length=100)] | None = None
