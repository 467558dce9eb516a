"""Requests of clients and workers.

Null means absent, unless a model defines it otherwise. Unknown fields are errors on Penstock's own routes and
`warnings` on routes of the public contract (`request_parser.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.core.history.cancellation import CLEANUP_MAX_S
from penstock.wire.fields import (
    INT_MAX,
    NO_NUL,
    AgingEvery,
    AgingWait,
    Attempt,
    BurstSeconds,
    ConcurrencyKey,
    Cost,
    Debounced,
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
    UniqueKey,
    Version,
    WorkflowId,
)

Anything = Any


class RequestModel(Struct):
    """Base of all request bodies."""

    IGNORED_FIELDS: ClassVar[frozenset[str]] = frozenset()
    """Fields of the public contract that have no effect here; they cause no warning."""


class EmptyRequest(RequestModel):
    """A request without fields."""


class CreateNamespace(RequestModel):
    name: NamespaceName
    description: Text1000 | None = None
    retention_days: RetentionDays | None = None
    fairness: Literal["on", "off"] | None = None


class UpdateNamespace(RequestModel):
    description: Text1000 | None = None
    retention_days: RetentionDays | None = None
    fairness: Literal["on", "off"] | None = None


class DeleteNamespace(RequestModel):
    with_closed_runs: bool = False
    """Delete its closed runs with it, and its workers and task queues. A namespace with open runs is never deleted."""


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


class TestStorage(RequestModel):
    driver: Literal["local", "s3", "gcs", "azure"] | None = None
    small_payload_bytes: Annotated[int, Meta(ge=1, le=1_048_576)] | None = None
    large_payload_bytes: Annotated[int, Meta(ge=1, le=16_777_216)] | None = None


class NestedPriority(RequestModel):
    """Priority level, fairness key and weight in one object, as in Temporal."""

    priority_key: PriorityKey | None = None
    fairness_key: FairnessKey | None = None
    fairness_weight: FairnessWeight | None = None


class WithPriority(RequestModel):
    """Priority level, fairness key and weight, flat or under `priority`; values given in both places must be equal."""

    priority: Priority | NestedPriority | None = None
    priority_key: PriorityKey | None = None
    fairness_key: FairnessKey | None = None
    fairness_weight: FairnessWeight | None = None


IdReuse = Literal["allow_duplicate", "allow_duplicate_failed_only", "reject_duplicate"]
IdConflict = Literal["fail", "use_existing", "terminate_existing"]


class WithUniqueKey(WithPriority, kw_only=True):
    """At most one run of the type holds a unique key; a start that finds it held begins none."""

    unique_key: UniqueKey | None = None
    unique_until: Literal["done", "started"] | None = None
    """How long the run holds the key: until it is done (default), or until a worker has started it."""
    unique_conflict_policy: Literal["use_existing", "fail"] | None = None
    """If the key is held: return the run that holds it (default), or refuse the start."""
    debounce_seconds: Debounced | None = None
    """Begin when no other start of the key has come for so long; the input of the latest one counts."""
    debounce_max_seconds: Debounced | None = None
    """Begin at the latest so long after the first start; ten times `debounce_seconds` by default."""


class WithIdPolicies(WithUniqueKey, kw_only=True):
    """What a start does if its id is in use. Without the two policies the rules of the contract apply."""

    duplicate_policy: Literal["fail", "use-existing"] | None = None
    """The policy of the contract: use-existing returns an open run; the id of a closed run is rejected."""
    id_reuse_policy: IdReuse | None = None
    """Whether the id of a closed run may be reused; `allow_duplicate` if only the other policy is given."""
    id_conflict_policy: IdConflict | None = None
    """What happens to an open run with the id; defaults to `duplicate_policy`."""


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
    """Delay before the first workflow task; timeouts count from then on. Milliseconds take precedence."""
    concurrency_key: ConcurrencyKey | None = None
    """The key whose cap on runs counts the workflow."""
    deliver_cancel: bool | None = None
    """Deliver a cancel request that arrives before the first workflow task to the code, instead of closing the run.

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
    """Backoff in milliseconds; takes precedence over `backoff_seconds`."""


class Dispatch(RequestModel, kw_only=True):
    """The configuration by which the options of an activity were resolved, with the layer of each option."""

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
    """Milliseconds take precedence over seconds."""
    build_id: Name | None = None
    cost_estimate: Cost | None = None
    """Estimated cost, in the units of budget groups with a cost budget."""
    start_delay_seconds: Delay | None = None
    start_delay_ms: DelayMs | None = None
    """Delay before it may start; timeouts count from then on. Milliseconds take precedence."""
    good_until: Annotated[str, Meta(max_length=40)] | None = None
    """Expires if it has not started by this instant, like a schedule-to-start timeout."""
    good_for_ms: Milliseconds | None = None
    """Expires if it has not started so long after it first became available."""
    on_lost_lease: Literal["redeliver", "fail"] | None = None
    """What follows if its worker dies: another delivery (default), or a failed attempt."""
    routing_key: Text1000 | None = None
    dispatch: Dispatch | None = None


class EndRun(RequestModel):
    reason: Text1000 | None = None
    request_id: RequestId | None = None


class RequestCancellation(RequestModel):
    reason: Text1000 | None = None
    cleanup_timeout_seconds: Annotated[int, Meta(ge=1, le=CLEANUP_MAX_S)] | None = None
    """How long the code may clean up before the server closes the run; 60 by default."""


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
    """A start with a signal; if a run with the id is open, the signal is sent to it."""

    signal_name: Name
    signal_input: Anything = None
    signal_request_id: RequestId | None = None


class InChain(RequestModel):
    """Selects a run of a workflow id if the path names none."""

    first_execution_run_id: Name | None = None
    """The first run of a chain: selects its newest run, not that of a later start of the same id."""


class ReadResult(InChain):
    wait_seconds: Annotated[int, Meta(ge=0, le=60)] = 0


class ReadRunResult(RequestModel):
    wait_seconds: Annotated[int, Meta(ge=0, le=60)] = 0


class OfActivityRun(RequestModel):
    """Selects a run of a standalone activity."""

    run_id: Name | None = None
    """The newest run of the id by default."""


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
    """Up to 100 items, each with its own outcome."""

    items: Annotated[list[Object], Meta(min_length=1, max_length=100)]


class ListRuns(RequestModel):
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 200
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None


class ListActivities(RequestModel):
    status: Literal["running", "completed", "failed", "cancelled", "terminated"] | None = None
    """`failed` includes the cancelled and terminated ones."""
    page_size: Annotated[int, Meta(ge=1, le=200)] = 50
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None


class ReadHistory(RequestModel):
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 100
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None
    wait_new_event: bool = False
    order: Literal["asc", "desc"] = "asc"
    derived: bool = True
    """Whether events of the audit trail stand among the recorded ones."""


class ListWorkers(RequestModel):
    task_queue: Name | None = None
    status: Literal["active", "draining", "stale"] | None = None


QueueKind = Literal["activity", "workflow"]
Default = Literal["default"] | None
"""Unsets a setting."""


class ReadConfig(RequestModel):
    task_queue_type: QueueKind = "activity"


class ReadConfigHistory(ReadConfig):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class ConfigureKey(RequestModel, forbid_unknown_fields=True):
    """Changes of the settings of one fairness key."""

    rps_limit: Rate | Default | UnsetType = UNSET
    max_running: LeaseCap | Default | UnsetType = UNSET
    paused: bool | UnsetType | None = UNSET


class ConfigureQueue(RequestModel, forbid_unknown_fields=True):
    """A change of the settings of a queue's tasks of one kind. Settings that are left out stay as they are.

    Unknown fields are errors: a misspelt limit must not go unnoticed until it is needed.
    """

    task_queue_type: QueueKind
    queue_rps_limit: Rate | Default | UnsetType = UNSET
    queue_rps_limit_reason: ReasonText | None = None
    queue_rps_burst_seconds: BurstSeconds | Default | UnsetType = UNSET
    fairness_key_rps_limit_default: Rate | Default | UnsetType = UNSET
    fairness_key_rps_limit_reason: ReasonText | None = None
    fairness_key_rps_burst_seconds: BurstSeconds | Default | UnsetType = UNSET
    worker_rps_limit: Default | UnsetType = UNSET
    """Can only be unset: the rate that workers reported is dropped until one reports again."""
    set_fairness_weight_overrides: Annotated[dict[NamedKey, FairnessWeight], PerKey] | None = None
    unset_fairness_weight_overrides: Annotated[list[NamedKey], PerKey] | None = None
    clear_fairness_weight_overrides: bool | None = None
    fairness: Literal["on", "off", "default"] | UnsetType | None = UNSET
    fairness_counts: Literal["dispatches", "running", "default"] | UnsetType | None = UNSET
    retry_rps_limit: RetryRate | Default | UnsetType = UNSET
    """The retry budget: attempts after the first that may become ready per second."""
    max_running: LeaseCap | Default | UnsetType = UNSET
    fairness_key_max_running_default: LeaseCap | Default | UnsetType = UNSET
    aging_wait_seconds: AgingWait | Default | UnsetType = UNSET
    aging_every: AgingEvery | Default | UnsetType = UNSET
    max_dispatches_per_minute: PerMinute | Default | UnsetType = UNSET
    dispatch_window: Literal["minute", "sliding", "default"] | UnsetType | None = UNSET
    dispatch_budget_group: GroupName | UnsetType | None = UNSET
    """`default` is not the name of a group: it unsets."""
    paused: bool | Default | UnsetType = UNSET
    keys: Annotated[dict[NamedKey, ConfigureKey], PerKey] | None = None
    reason: ReasonText | None = None
    """The reason for all settings without a reason of their own."""
    if_version: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None


class ChangeCohort(RequestModel):
    build_id: NameOrBlank | None
    """Required; null or blank selects the workers without a build id."""


class RegisterWorker(RequestModel):
    task_queue: Name
    runtime: Name
    worker_id: Name | None = None
    sdk_version: Version | None = None
    build_id: Name | None = None
    supported_workflow_types: Names | None = None
    workflow_definition_fingerprints: dict[Name, Name] | None = None
    supported_activity_types: Names | None = None
    max_concurrent_workflow_tasks: Slots | None = None
    max_concurrent_activity_tasks: Slots | None = None
    max_claimed_activity_tasks: Slots | None = None
    """How many prefetched activity tasks it may hold, if more than it has slots."""
    max_concurrent_worker_sessions: Slots | None = None
    capabilities: Names | None = None
    capability_manifest: Object | None = None
    workflow_command_contracts: Object | None = None
    task_slots: Object | None = None
    process_metrics: Object | None = None
    heartbeat_interval_seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    max_task_queue_activities_per_second: ReportedRate | None = None
    """Requested rate limit of the whole queue."""
    queue_rate_burst_seconds: BurstSeconds | None = None
    """Burst of that rate, in seconds of unused dispatches."""
    max_activities_per_second: ReportedRate | None = None
    """The rate cap that the worker enforces itself; only shown here."""


class HeartbeatWorker(RequestModel):
    worker_id: Name
    max_concurrent_workflow_tasks: TaskSlots | None = None
    max_concurrent_activity_tasks: TaskSlots | None = None
    """A worker may change the number of slots that it registered, also to none."""
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
    """If given, the response has a list `tasks` beside `task`, which is its first entry."""
    max_task_queue_activities_per_second: ReportedRate | None = None
    """Only used by polls for activity tasks."""
    queue_rate_burst_seconds: BurstSeconds | None = None
    claim_lease_ms: Annotated[int, Meta(ge=100, le=600_000)] | None = None
    """Prefetch: lease activity tasks for so long without counting limits; each must be started before it runs."""
    lease_ms: LeaseMs | None = None
    """Upper bound of activity leases, for workers that renew often, so that their death is noticed soon."""


class TaskLease(RequestModel):
    lease_owner: Name
    workflow_task_attempt: Attempt


Step = Annotated[int, Meta(ge=1, le=INT_MAX)]
Span = Annotated[int, Meta(ge=1, le=1000)]


class DeliverCancellation(TaskLease):
    """The call at which the code of a workflow task receives a requested cancellation."""

    request_id: Name
    sequence: Step
    call_kind: Literal[
        "activity", "local_activity", "timer", "condition", "signal", "child", "parallel", "selection_handle"
    ]
    sequence_span: Span | None = None
    """Of a parallel group or selection: its size."""
    operation_sequence: Step | None = None
    """Of a selection's handle: the first step of its operation."""
    operation_sequence_span: Span | None = None


class ReadTaskHistory(TaskLease):
    next_history_page_token: Annotated[str, Meta(max_length=1000)]
    history_page_size: HistoryPage | None = None


class StreamCursor(RequestModel):
    stream_name: Name
    through_position: Annotated[int, Meta(ge=0, le=INT_MAX)]


class StreamWait(RequestModel):
    stream_name: Name
    after_position: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None


class CompleteWorkflowTask(TaskLease):
    IGNORED_FIELDS = frozenset({"sticky_cache"})

    commands: Annotated[list[Object], Meta(max_length=10_000)]
    """At least one, unless the run is concurrent."""
    message_stream_cursors: Annotated[list[StreamCursor], Meta(max_length=1000)] | None = None
    """How far the code has read its message streams."""
    message_stream_waits: Annotated[list[StreamWait], Meta(max_length=100)] | None = None
    """The streams that the code reads now. Those of a stepwise run follow from its condition."""
    concurrent: bool | None = None
    """The run is concurrent: its code may await many steps at once."""
    cached: bool | None = None
    """With `concurrent`: the worker caches the run; its next task only has the new events."""
    sticky_timeout_ms: Annotated[int, Meta(ge=0, le=600_000)] | None = None
    """With `cached`: how long the next task of the run is sticky to this worker."""


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
    """Actual cost, if it differs from the estimate."""


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
    category: Name | None = None
    """How serious it is for operators of the worker: `benign` is expected."""
    encoded_attributes: Anything = None
    """Message and stack trace as a payload, if their sender hides them."""
    details: Anything = None
    cause: Object | None = None
    """The cause, an object of the same form, possibly with a cause of its own."""
    next_retry_delay_seconds: Annotated[float, Meta(ge=0, le=31_536_000)] | None = None
    """Delay before the next attempt, if there is one; overrides the retry policy."""
    throttled: bool | None = None
    """An upstream service throttled the call: the budget group cools down, and the attempt is not counted."""
    retry_after_seconds: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    """With `throttled`: the cool-down that the upstream service requested."""


class FailActivityTask(ActivityLease):
    failure: ActivityFailure
    cost: Cost | None = None


class StartActivityTask(ActivityLease):
    """Take the permit of a prefetched task."""

    lease_ms: LeaseMs | None = None
    """Upper bound of the lease from now on, as in polls."""


class HeartbeatActivityTask(ActivityLease):
    lease_ms: LeaseMs | None = None
    """Upper bound of the renewed lease, as in polls."""
    sequence: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None
    """Number of the heartbeat in its attempt: one that arrives late does not overwrite later details."""
    details: Anything = None
    message: Message | None = None
    current: Anything = None
    total: Anything = None
    unit: Annotated[str, Meta(max_length=100)] | None = None


class ActivityReport(RequestModel, kw_only=True):
    """Which attempt of an activity is reported from outside a worker."""

    activity_attempt_id: Name | None = None
    """The attempt; the one that runs if it is left out."""
    workflow_id: WorkflowId | None = None
    run_id: Name | None = None
    """The workflow and the run that it must belong to."""


class CompleteActivity(ActivityReport, kw_only=True):
    result: Anything = None


class FailActivity(ActivityReport, kw_only=True):
    failure: ActivityFailure


class HeartbeatActivity(ActivityReport, kw_only=True):
    details: Anything = None
