"""What has become of each public name of Temporal's Python SDK: the same here, other, or not here.

Theory of operation
-------------------
`docs/reference/temporalio.md` prints this table. A test compares it with the real package, so that a name which
Temporal adds is noticed, and with our modules, so that "same" means a name that exists.

Names that are the same may lack a parameter or a member: `PARTS` says which and why, and the test finds by inspection
that these are all.

Three kinds of rows:

- *same*: the name is in our module (`HOMES`), or at the place after `@`;
- *other*: the place of what does its work here, if there is one, and what differs;
- *not here*: the reason, with the names that it applies to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Parity(StrEnum):
    """What a user of the name finds here."""

    SAME = "same"
    OTHER = "other"
    NOT_HERE = "not here"


@dataclass(frozen=True, slots=True)
class NameRow:
    """One public name of Temporal's SDK.

    Attributes:
        module: its module, without `temporalio.`.
        name: the name there.
        parity: the same here, other, or not here.
        place: our name, as `penstock.workflow:sleep`; None without one.
        note: what differs, or why it is not here.
    """

    module: str
    name: str
    parity: Parity
    place: str | None
    note: str = ""


HOMES: Final = {
    "workflow": "penstock.workflow",
    "activity": "penstock.activity",
    "client": "penstock.client",
    "worker": "penstock.worker",
    "common": "penstock",
    "exceptions": "penstock.failures",
    "testing": "penstock.testing",
}
"""Our module for each module of Temporal's SDK."""

_SAME: Final = {
    "workflow": """
        ActivityCancellationType ActivityHandle all_handlers_finished as_completed cancellation_reason
        ChildWorkflowCancellationType ChildWorkflowHandle continue_as_new ContinueAsNewError
        current_update_info defn deprecate_patch execute_activity execute_activity_class
        execute_activity_method execute_child_workflow execute_local_activity
        execute_local_activity_class execute_local_activity_method ExternalWorkflowHandle
        get_current_details get_dynamic_query_handler get_dynamic_signal_handler
        get_dynamic_update_handler get_external_workflow_handle get_external_workflow_handle_for
        get_query_handler get_signal_handler get_update_handler HandlerUnfinishedPolicy in_workflow info
        Info init instance is_failure_exception logger memo memo_value new_random now ParentClosePolicy
        ParentInfo patched payload_converter query random run set_current_details
        set_dynamic_query_handler set_dynamic_signal_handler set_dynamic_update_handler
        set_query_handler set_signal_handler set_update_handler signal sleep start_activity
        start_activity_class start_activity_method start_child_workflow start_local_activity
        start_local_activity_class start_local_activity_method time time_ns
        UnfinishedSignalHandlersWarning UnfinishedUpdateHandlersWarning unsafe update UpdateInfo
        upsert_memo upsert_search_attributes uuid4 uuid7 wait wait_condition
    """,
    "activity": """
        ActivityCancellationDetails cancellation_details client defn heartbeat in_activity info Info
        is_cancelled is_worker_shutdown logger LoggerAdapter payload_converter raise_complete_async
        shield_thread_cancel_exception wait_for_cancelled wait_for_cancelled_sync
        wait_for_worker_shutdown wait_for_worker_shutdown_sync
    """,
    "client": """
        ActivityCancellationDetails@penstock.activity AsyncActivityCancelledError AsyncActivityHandle
        ActivityExecutionDescription ActivityHandle Client OutboundInterceptor Schedule ScheduleAction
        ScheduleActionExecutionStartWorkflow ScheduleActionResult ScheduleActionStartWorkflow
        ScheduleBackfill ScheduleCalendarSpec ScheduleDescription ScheduleHandle ScheduleInfo
        ScheduleIntervalSpec ScheduleOverlapPolicy SchedulePolicy ScheduleRange ScheduleSpec
        ScheduleState ScheduleUpdate ScheduleUpdateInput WithStartWorkflowOperation WorkflowExecution
        WorkflowExecutionCount WorkflowExecutionDescription WorkflowExecutionStatus WorkflowHandle
        WorkflowHistory WorkflowUpdateHandle WorkflowUpdateStage ActivityFailureError@penstock.failures
        ScheduleAlreadyRunningError@penstock.failures
        WorkflowContinuedAsNewError@penstock.failures WorkflowFailureError@penstock.failures
    """,
    "worker": """
        ActivityInboundInterceptor ActivityOutboundInterceptor ExecuteActivityInput ExecuteWorkflowInput
        HandleQueryInput HandleSignalInput HandleUpdateInput Interceptor Replayer
        SignalChildWorkflowInput SignalExternalWorkflowInput Worker WorkflowInboundInterceptor
        WorkflowInterceptorClassInput WorkflowOutboundInterceptor
    """,
    "common": """
        Priority RetryPolicy WorkflowIDConflictPolicy WorkflowIDReusePolicy RawValue@penstock.activity
        SearchAttributeIndexedValueType SearchAttributeKey SearchAttributePair SearchAttributeUpdate
        TypedSearchAttributes
    """,
    "exceptions": """
        ActivityError ApplicationError ApplicationErrorCategory CancelledError ChildWorkflowError
        FailureError is_cancelled_exception RetryState TerminatedError TimeoutError TimeoutType
        WorkflowAlreadyStartedError
    """,
    "testing": "ActivityEnvironment WorkflowEnvironment",
}

_OTHER: Final[dict[str, dict[str, tuple[str | None, str]]]] = {
    "workflow": {
        "LocalActivityConfig": ("penstock.workflow:LocalActivityOptions", ""),
        "ActivityConfig": ("penstock.workflow:ActivityOptions", "all options are optional"),
        "ChildWorkflowConfig": ("penstock.workflow:ChildWorkflowOptions", ""),
        "LoggerAdapter": ("penstock.workflow:logger", "there is one adapter, and this is it"),
        "NondeterminismError": (
            "penstock.workflow:NonDeterminismError",
            "the same error, spelt in two words",
        ),
        "ReadOnlyContextError": ("penstock.workflow:ReadOnlyError", ""),
        "UpdateMethodMultiParam": ("penstock.workflow:UpdateMethod", ""),
    },
    "activity": {},
    "client": {
        "ClientConfig": (
            "penstock.client:ClientConfig",
            "what plug-ins may change: converter, interceptors, dispatch",
        ),
        "Plugin": ("penstock.client:Plugin", "without `connect_service_client`"),
        "DataConverter": (
            "penstock:DataConverter",
            "`codecs=…` and `converters=…`, see [payloads](../guides/payloads.md)",
        ),
        "ActivityExecutionStatus": (None, "`describe().status` is text"),
        "CancelActivityInput": (None, "`OutboundInterceptor.cancel_activity` takes id, reason and run id"),
        "CancelWorkflowInput": ("penstock.client:EndWorkflowInput", "one class for cancel and terminate"),
        "ClientConnectConfig": (
            "penstock.client:ConnectOptions",
            "profiles and `DURABLE_WORKFLOW_…` variables",
        ),
        "ConnectConfig": ("penstock.client:ConnectOptions", ""),
        "DescribeActivityInput": (None, "`OutboundInterceptor.describe_activity` takes id and run id"),
        "DescribeWorkflowInput": ("penstock.client:RunInput", ""),
        "Interceptor": ("penstock.client:ClientInterceptor", ""),
        "PayloadLimitsConfig": (None, "`DataConverter(payload_bytes_max=…)`"),
        "QueryWorkflowInput": ("penstock.client:QueryWorkflowInput", "frozen: pass on `replace(input, …)`"),
        "RPCError": (
            "penstock.failures:ServerRefused",
            "with a stable `reason`; no server at all is `Unreachable`",
        ),
        "RPCStatusCode": (None, "`ServerRefused.reason` is one of the [reasons](reasons.md)"),
        "RPCTimeoutOrCancelledError": (None, "`TimeoutError` of Python, from `rpc_timeout` and `timeout`"),
        "RetryConfig": (None, "`Client.connect(retry_for=…)`"),
        "ScheduleAsyncIterator": (None, "`list_schedules` is an async generator"),
        "ScheduleListDescription": (None, "`list_schedules` yields `ScheduleDescription`"),
        "ServiceClient": (None, "[the HTTP API](http.md)"),
        "SignalWorkflowInput": ("penstock.client:SignalWorkflowInput", "frozen: pass on `replace(input, …)`"),
        "StartActivityInput": ("penstock.client:StartActivityInput", "frozen: pass on `replace(input, …)`"),
        "StartWorkflowInput": ("penstock.client:StartWorkflowInput", "frozen: pass on `replace(input, …)`"),
        "StartWorkflowUpdateInput": ("penstock.client:UpdateWorkflowInput", "called once per wait"),
        "StorageDriverActivityInfo": (
            None,
            "the server keeps [large payloads](../guides/external-payloads.md)",
        ),
        "StorageDriverSelectContext": (
            None,
            "the server keeps [large payloads](../guides/external-payloads.md)",
        ),
        "StorageDriverStoreContext": (
            None,
            "the server keeps [large payloads](../guides/external-payloads.md)",
        ),
        "StorageDriverWorkflowInfo": (
            None,
            "the server keeps [large payloads](../guides/external-payloads.md)",
        ),
        "TLSConfig": (None, "`Client.connect(ssl=…)` takes an `ssl.SSLContext`"),
        "TerminateWorkflowInput": ("penstock.client:EndWorkflowInput", "one class for cancel and terminate"),
        "WorkflowExecutionAsyncIterator": (None, "`list_workflows` is an async generator"),
        "WorkflowExecutionCountAggregationGroup": (
            None,
            "`WorkflowExecutionCount.groups` is a list of plain data",
        ),
        "WorkflowHistoryEventAsyncIterator": (None, "`fetch_history_events` is an async generator"),
        "WorkflowQueryFailedError": (
            "penstock.failures:QueryRejected",
            "`QueryFailed` if no worker answered",
        ),
        "WorkflowQueryRejectedError": ("penstock.failures:QueryRejected", ""),
        "WorkflowUpdateFailedError": (
            "penstock.failures:UpdateFailedError",
            "`UpdateRejectedError` if a validator refused",
        ),
        "WorkflowUpdateRPCTimeoutOrCancelledError": (None, "`TimeoutError` of Python, from `timeout`"),
    },
    "worker": {
        "ContinueAsNewInput": ("penstock.worker:ContinueAsNewInput", "the options are in `successor`"),
        "StartActivityInput": ("penstock.worker:StartActivityInput", "the options are in `options`"),
        "StartChildWorkflowInput": (
            "penstock.worker:StartChildWorkflowInput",
            "the options are in `options`",
        ),
        "StartLocalActivityInput": (
            "penstock.worker:StartLocalActivityInput",
            "the options are in `options`",
        ),
        "Plugin": ("penstock.worker:Plugin", "workers use the plug-ins of their client"),
        "WorkerConfig": (
            "penstock.worker:WorkerConfig",
            "what plug-ins may change: workflows, activities, interceptors",
        ),
        "PollerBehavior": (None, "`max_concurrent_workflow_task_polls` and `…_activity_task_polls`"),
        "PollerBehaviorSimpleMaximum": (
            None,
            "`max_concurrent_workflow_task_polls` and `…_activity_task_polls`",
        ),
        "ReplayerConfig": (None, "the arguments of `Replayer`"),
        "SharedHeartbeatSender": (None, '`@activity.defn(runs_in="process")` needs none'),
        "SharedStateManager": (None, '`@activity.defn(runs_in="process")` needs none'),
        "UnsandboxedWorkflowRunner": (None, "`@workflow.defn(sandboxed=False)`"),
        "WorkerDeploymentConfig": (None, "`Worker(build_id=…)`, see [rollouts](../guides/rollouts.md)"),
        "WorkerDeploymentVersion": (None, "`Worker(build_id=…)`, see [rollouts](../guides/rollouts.md)"),
        "WorkflowReplayResult": (None, "`replay_workflow` returns it, with `fits` and `failure`"),
        "WorkflowReplayResults": (None, "`replay_workflows` returns a list"),
    },
    "common": {
        "ActivityIDConflictPolicy": ("penstock:WorkflowIDConflictPolicy", "one policy for both"),
        "ActivityIDReusePolicy": ("penstock:WorkflowIDReusePolicy", "one policy for both"),
        "PinnedVersioningOverride": (None, "`build_id=…` of a start"),
        "SearchAttributeValue": (None, "search attributes are a mapping from names to plain values"),
        "SearchAttributeValueType": (None, "search attributes are a mapping from names to plain values"),
        "SearchAttributeValues": (None, "search attributes are a mapping from names to plain values"),
        "SearchAttributes": (None, "search attributes are a mapping from names to plain values"),
        "VersioningOverride": (None, "`build_id=…` of a start"),
        "WorkerDeploymentVersion": (None, "`Worker(build_id=…)`, see [rollouts](../guides/rollouts.md)"),
    },
    "exceptions": {
        "ActivityAlreadyStartedError": (
            "penstock.failures:WorkflowAlreadyStartedError",
            "one error for both kinds of ids",
        ),
        "ServerError": ("penstock.failures:ServerRefused", ""),
        "TemporalError": ("penstock.failures:SdkError", ""),
    },
    "testing": {
        "TimeSkipper": (None, "`WorkflowEnvironment.start_time_skipping()`; the server is in the process"),
        "TimeSkippingConfig": (None, "`WorkflowEnvironment.start_time_skipping(…)`"),
    },
}
"""Our place, or None, and what differs."""

_TYPING: Final = "an alias for annotations: write the type, as `Callable[..., Awaitable[str]]`"
_NEXUS: Final = "there is no Nexus: an activity calls other systems"
_VERSION_SETS: Final = "[builds and rollouts](../guides/rollouts.md) are operated, not programmed"
_METRICS: Final = "`Worker(metrics=…)` takes a `WorkerMetrics`; code uses the library of its own metrics"
_SLOTS: Final = "slots are numbers, which `Worker.adjust` changes while it runs"
_RPC: Final = "there is no gRPC: the client speaks HTTP"
_NOT_YET: Final = "not there yet"

_NOT_HERE: Final[dict[str, dict[str, str]]] = {
    "workflow": {
        _TYPING: """
            AnyType CallableAsyncNoParam CallableAsyncSingleParam CallableAsyncType
            CallableSyncNoParam CallableSyncOrAsyncReturnNoneType CallableSyncOrAsyncType
            CallableSyncSingleParam CallableType ClassType MethodAsyncNoParam MethodAsyncSingleParam
            MethodSyncNoParam MethodSyncOrAsyncNoParam MethodSyncOrAsyncSingleParam
            MethodSyncSingleParam MultiParamSpec ParamType ProtocolReturnType ReturnType SelfType
        """,
        _NEXUS: """
            create_nexus_client NexusClient NexusOperationCancellationType NexusOperationHandle
        """,
        _VERSION_SETS: """
            ContinueAsNewVersioningBehavior VersioningIntent
        """,
        _METRICS: "metric_meter",
        "imports are not reloaded, so there is nothing to pass through": "SandboxImportNotificationPolicy",
        "experimental there": """
            create_event_group EventGroup signal_with_start_workflow
        """,
        "cron runs are started by schedules, and get nothing from the run before": """
            get_last_completion_result get_last_failure has_last_completion_result
        """,
        _NOT_YET: """
            dynamic_config DynamicWorkflowConfig extern_functions random_seed
            register_random_seed_callback RootInfo
        """,
    },
    "activity": {
        _METRICS: "metric_meter",
    },
    "client": {
        "headers pass the codecs as arguments do": "HeaderCodecBehavior",
        _TYPING: """
            AnyType CallableAsyncNoParam CallableAsyncSingleParam CallableSyncNoParam
            CallableSyncSingleParam LocalReturnType MethodAsyncNoParam MethodAsyncSingleParam
            MethodSyncOrAsyncNoParam MethodSyncOrAsyncSingleParam MultiParamSpec ParamType
            ReturnType SelfType
        """,
        _NEXUS: """
            Callback CancelNexusOperationInput CountNexusOperationsInput DescribeNexusOperationInput
            GetNexusOperationResultInput ListNexusOperationsInput NexusClient
            NexusOperationExecution NexusOperationExecutionAsyncIterator
            NexusOperationExecutionCancellationInfo NexusOperationExecutionCount
            NexusOperationExecutionCountAggregationGroup NexusOperationExecutionDescription
            NexusOperationFailureError NexusOperationHandle StartNexusOperationInput
            TerminateNexusOperationInput
        """,
        _VERSION_SETS: """
            BuildIdOp BuildIdOpAddNewCompatible BuildIdOpAddNewDefault BuildIdOpMergeSets
            BuildIdOpPromoteBuildIdWithinSet BuildIdOpPromoteSetByBuildId BuildIdReachability
            BuildIdVersionSet GetWorkerBuildIdCompatibilityInput GetWorkerTaskReachabilityInput
            TaskReachabilityType UpdateWorkerBuildIdCompatibilityInput WorkerBuildIdVersionSets
            WorkerTaskReachability
        """,
        _RPC: """
            DnsLoadBalancingConfig GrpcCompression HttpConnectProxyConfig KeepAliveConfig
        """,
        "there is no cloud service": "CloudOperationsClient",
        "requests of schedules and lists pass no interceptor": """
            BackfillScheduleInput CountActivitiesInput CountWorkflowsInput CreateScheduleInput
            DeleteScheduleInput DescribeScheduleInput FetchWorkflowHistoryEventsInput
            ListActivitiesInput ListSchedulesInput ListWorkflowsInput PauseScheduleInput
            TriggerScheduleInput UnpauseScheduleInput UpdateScheduleInput
        """,
        "a converter sees values, not where they go": """
            ActivitySerializationContext SerializationContext WithSerializationContext
            WorkflowSerializationContext
        """,
        _NOT_YET: """
            ActivityExecution ActivityExecutionAsyncIterator
            ActivityExecutionCount ActivityExecutionCountAggregationGroup ActivityExecutionOptions
            ActivityOptionsKey ActivityOptionsKeys ActivityOptionsUpdate
            AsyncActivityIDReference CompleteAsyncActivityInput
            FailAsyncActivityInput HeartbeatAsyncActivityInput PauseActivityInput
            PendingActivityState ReportCancellationAsyncActivityInput ScheduleActionExecution
            ScheduleListAction ScheduleListActionStartWorkflow ScheduleListInfo ScheduleListSchedule
            ScheduleListState StartWorkflowUpdateWithStartInput TerminateActivityInput
            UnpauseActivityInput UpdateActivityOptionsInput UpdateWithStartStartWorkflowInput
            UpdateWithStartUpdateWorkflowInput WorkflowHistoryEventFilterType
        """,
    },
    "worker": {
        _NEXUS: """
            ExecuteNexusOperationCancelInput ExecuteNexusOperationStartInput
            NexusOperationInboundInterceptor NexusSlotInfo StartNexusOperationInput
        """,
        _SLOTS: """
            ActivitySlotInfo CustomSlotSupplier FixedSizeSlotSupplier LocalActivitySlotInfo
            PollerBehaviorAutoscaling ResourceBasedSlotConfig ResourceBasedSlotSupplier
            ResourceBasedTunerConfig SlotInfo SlotMarkUsedContext SlotPermit SlotReleaseContext
            SlotReserveContext WorkerTuner WorkflowSlotInfo
        """,
        "how the code of a run is executed cannot be replaced": """
            WorkflowInstance WorkflowInstanceDetails WorkflowRunner
        """,
        _NOT_YET: """
            PatchActivationInput
        """,
    },
    "common": {
        "headers pass the codecs as arguments do": "HeaderCodecBehavior",
        _NEXUS: """
            NexusOperationCancellationState NexusOperationExecutionStatus
            NexusOperationIDConflictPolicy NexusOperationIDReusePolicy
            PendingNexusOperationExecutionState
        """,
        _METRICS: """
            MetricAttributes MetricCommon MetricCounter MetricGauge MetricGaugeFloat MetricHistogram
            MetricHistogramFloat MetricHistogramTimedelta MetricMeter
        """,
        _VERSION_SETS: """
            AutoUpgradeVersioningOverride OneTimeVersioningOverride VersioningBehavior
        """,
        "a query reads a run in any state": "QueryRejectCondition",
    },
    "exceptions": {
        _NEXUS: """
            NexusOperationAlreadyStartedError NexusOperationError
        """,
        _VERSION_SETS: "InvalidVersioningOverrideError",
    },
    "testing": {},
}
"""The reason, and the names that it applies to."""

CONSTRUCTED: Final = """
    client.Schedule client.ScheduleActionStartWorkflow client.ScheduleBackfill
    client.ScheduleCalendarSpec client.ScheduleIntervalSpec client.SchedulePolicy client.ScheduleRange
    client.ScheduleSpec client.ScheduleState client.ScheduleUpdate client.WithStartWorkflowOperation
    common.Priority common.RawValue common.RetryPolicy common.SearchAttributePair
    common.TypedSearchAttributes exceptions.ApplicationError testing.ActivityEnvironment worker.Replayer
    worker.Worker
"""
"""Classes that users construct. The SDK makes the others, by constructors of its own."""

PARTS: Final[dict[str, str]] = {
    _RPC: """
        *(rpc_metadata) *(rpc_timeout) client.Client.connect(dns_load_balancing_config)
        client.Client.connect(grpc_compression)
        client.Client.connect(http_connect_proxy_config) client.Client.connect(keep_alive_config)
        client.Client.connect(runtime) client.Client.operator_service client.Client.rpc_metadata
        client.Client.service_client client.Client.test_service client.Client.workflow_service
    """,
    "experimental there": """
        *(event_groups) *.event_groups *signal_with_start_workflow
        client.Client.start_workflow(stack_level) client.WithStartWorkflowOperation(stack_level)
        worker.Worker(patch_activation_callback) worker.Worker(plugin_shutdown_timeout)
    """,
    _NEXUS: """
        *nexus_*
    """,
    _VERSION_SETS: """
        *(versioning_*) *(initial_versioning_behavior) *build_id_compatibility *task_reachability
        *get_current_build_id *deployment_version* worker.Worker(deployment_config)
        worker.Worker(use_worker_versioning)
    """,
    "a raw message of gRPC: `raw` is the whole response": """
        *.data_converter *.raw_callbacks *.raw_description *.raw_info *.raw_input *.raw_outcome
        *(raw_info) common.RetryPolicy.from_proto
        workflow.Info.raw_memo
    """,
    "asyncio's `Task` there, its `Future` here": """
        workflow.*Handle.cancelling workflow.*Handle.get_coro workflow.*Handle.get_name
        workflow.*Handle.get_stack workflow.*Handle.print_stack workflow.*Handle.set_name
        workflow.*Handle.uncancel
    """,
    "no value for what is not given: leave it out": "*.UNSPECIFIED *.IN_PROGRESS common.Priority.default",
    "the handle uses the client's converter, and says only that the activity is to stop": """
        client.AsyncActivityCancelledError.details client.AsyncActivityHandle.with_context
    """,
    "a start returns before its child has begun": "workflow.ChildWorkflowHandle.first_execution_run_id",
    "[schedules](../guides/schedules.md) start runs: no workflow carries its own cron": """
        *(cron_schedule) *.cron_schedule workflow.continue_as_new(backoff_start_interval)
    """,
    "the worker has the time of a workflow task: `Worker(task_timeout=…)`": "*(task_timeout) *.task_timeout",
    "only child workflows are retried": """
        client.*(retry_policy) client.ScheduleActionStartWorkflow.retry_policy
    """,
    "`workflow.set_current_details`, and `summary` of activities": """
        *(static_summary) *(static_details) *.static_summary *.static_details
    """,
    "the server chooses ids of activities: `info().idempotency_key` is that of all attempts": """
        *(activity_id)
    """,
    "local activities run within their workflow task, and end with it": """
        *local_activity*(cancellation_type) *local_activity*(local_retry_threshold)
        *local_activity*(schedule_to_start_timeout)
    """,
    "not recorded: `parent` is": "*.root *.root_id *.root_run_id",
    "not measured in bytes: `get_current_history_length`": "workflow.Info.get_current_history_size",
    "no imports are reloaded, and the guard has one switch": """
        *import_notification* *imports_passed_through workflow.unsafe.is_sandbox_unrestricted
        worker.*unsandboxed_workflow_runner* worker.*(workflow_runner)
        worker.WorkflowInterceptorClassInput.unsafe_extern_functions
    """,
    "`activity.is_paused()`; a reset ends the lease: `not_found`": """
        *.ActivityCancellationDetails.paused *.ActivityCancellationDetails.reset
    """,
    "workers receive the deadlines of an attempt, not its policy": """
        activity.Info.current_attempt_scheduled_time activity.Info.retry_policy
    """,
    "`is_replaying`": "workflow.unsafe.is_replaying_history_events",
    "a docstring": "workflow.*(description)",
    "`activity.shield_thread_cancel_exception()` around what must not be interrupted": """
        activity.defn(no_thread_cancel_exception)
    """,
    "the ids are in the message and in `extra`": "activity.LoggerAdapter.*activity_info_on_*",
    "`description.raw` has what the server knows": """
        client.ActivityExecutionDescription.*_time client.ActivityExecutionDescription.*_timeout
        client.ActivityExecutionDescription.canceled_reason
        client.ActivityExecutionDescription.current_retry_interval
        client.ActivityExecutionDescription.execution_duration
        client.ActivityExecutionDescription.has_* client.ActivityExecutionDescription.input
        client.ActivityExecutionDescription.last_failure
        client.ActivityExecutionDescription.last_worker_identity
        client.ActivityExecutionDescription.outcome_failure
        client.ActivityExecutionDescription.result
        client.ActivityExecutionDescription.retry_policy
        client.ActivityExecutionDescription.run_state
        client.ActivityExecutionDescription.start_delay
        client.ActivityExecutionDescription.total_heartbeat_count
        client.ActivityExecutionDescription.typed_search_attributes
        client.ActivityHandle.describe(include_*) client.WorkflowExecution*.execution_time
        client.WorkflowExecution.history_length client.WorkflowExecution.parent_*
    """,
    "an attribute: it was decoded with the response": """
        *.memo() *.memo_value client.ActivityExecutionDescription.heartbeat_details()
    """,
    "`resume` and `reset`, see [operating workflows](../guides/operating-workflows.md)": """
        client.ActivityHandle.restore_original_options client.ActivityHandle.unpause
        client.ActivityHandle.update_options(updates)
    """,
    "`cancel`": "client.ActivityHandle.terminate",
    "`Client.connect(token=…, ssl=…, retry_for=…)`": """
        client.Client.api_key client.Client.connect(api_key) client.Client.connect(connect_timeout)
        client.Client.connect(retry_config) client.Client.connect(tls) *.connect(payload_limits)
    """,
    "a worker has an identity, a client its token's": """
        client.Client.connect(identity) client.Client.identity worker.Replayer(identity)
    """,
    "headers pass the codecs as arguments do": "*(header_codec_behavior)",
    "a query reads a run in any state": """
        *(default_workflow_query_reject_condition) client.WorkflowHandle.query(reject_condition)
    """,
    "keep the arguments": "*.config worker.Worker.client worker.Replayer.plugins",
    "`start_activity` takes methods and classes": """
        client.Client.*_activity_class client.Client.*_activity_method
    """,
    "async generators fetch pages as they are needed": """
        *(next_page_token) client.WorkflowHandle.fetch_history_events(page_size)
    """,
    "every event is fetched, also of archived runs": """
        client.*(event_filter_type) client.*(skip_archival)
    """,
    "standalone activities have no search attributes": """
        client.Client.*_activity(search_attributes) client.Client.count_activities
        client.Client.list_activities(query)
    """,
    "not there yet": """
        client.Client.*_activity(summary)
        exceptions.TimeoutError.last_heartbeat_details
    """,
    "the server decides what it sends with a start": """
        client.Client.execute_workflow(request_eager_start)
        client.Client.start_workflow(request_eager_start)
    """,
    "requests of schedules, lists and operations pass no interceptor": """
        client.OutboundInterceptor.*
    """,
    "the schedule names its runs, by its id and the moment": "client.ScheduleActionStartWorkflow*id*",
    "`search_attributes` takes `TypedSearchAttributes`": """
        client.ScheduleActionStartWorkflow*typed_search_attributes*
    """,
    "interceptors add headers when the schedule is created": "client.ScheduleActionStartWorkflow*headers*",
    "`__cause__`": "client.*Error.cause",
    "histories of Temporal cannot be replayed here": """
        client.WorkflowHistory.from_json(history) client.WorkflowHistory.to_json_dict
    """,
    "the executor belongs to the worker": "worker.ExecuteActivityInput.executor",
    "`workflow.info().workflow_type`": "worker.ExecuteWorkflowInput.type",
    "queries are not recorded": "worker.HandleQueryInput.id",
    "one namespace": "worker.Replayer(namespace) worker.SignalExternalWorkflowInput.namespace",
    "a replay has no worker": """
        worker.Replayer(build_id) worker.Replayer(debug_mode) worker.Replayer(runtime)
        worker.Replayer(disable_safe_workflow_eviction) worker.Replayer(workflow_task_executor)
    """,
    "`@workflow.defn(failure_exception_types=…)`": "worker.*(workflow_failure_exception_types)",
    "`replay_workflow` in a loop": "worker.Replayer.workflow_replay_iterator",
    "each result has its `failure`": "worker.Replayer.replay_workflows(raise_on_replay_failure)",
    "workflow code runs on the loop of the worker": """
        worker.Worker(workflow_task_executor) worker.Worker(disable_safe_workflow_eviction)
    """,
    _SLOTS: """
        worker.Worker(activity_task_poller_behavior) worker.Worker(no_remote_activities)
        worker.Worker(nonsticky_to_sticky_poll_ratio) worker.Worker(tuner)
        worker.Worker(workflow_task_poller_behavior)
    """,
    "activities always pass the queue, where their limits are": """
        worker.Worker(disable_eager_activity_execution)
        worker.Worker(max_eager_activity_reservations_per_workflow_task)
    """,
    '`@activity.defn(runs_in="process")` needs none': "worker.Worker(shared_state_manager)",
    "the server keeps [large payloads](../guides/external-payloads.md)": """
        worker.Worker(disable_payload_error_limit)
        worker.Worker(max_workflow_task_external_storage_concurrency)
    """,
    "`id_conflict_policy=TERMINATE_EXISTING`": "common.WorkflowIDReusePolicy.TERMINATE_IF_RUNNING",
    "events have other numbers here": """
        *.scheduled_event_id *.started_event_id *.initiated_event_id *.namespace *.identity
        exceptions.WorkflowAlreadyStartedError.first_run_id
    """,
    "reported as what the server refused": "exceptions.RetryState.INTERNAL_SERVER_ERROR",
    _METRICS: "testing.ActivityEnvironment.metric_meter",
    "`ActivityEnvironment(attempt=3, …)`": "testing.ActivityEnvironment.default_info",
    "the server runs in the test's process: there is nothing to download, and no port": """
        testing.WorkflowEnvironment.*
    """,
}
"""The reason, and what the names that are the same lack: parameters, as `sleep(event_groups)`, and members. `*` matches
any text; a part belongs to the first reason that has it."""


def name_rows() -> Iterator[NameRow]:
    """Yield the rows of all names, module by module, by name."""
    for module in HOMES:
        yield from sorted(_rows_of(module), key=lambda row: row.name.lower())


def _rows_of(module: str) -> Iterator[NameRow]:
    for entry in _SAME[module].split():
        name, _, elsewhere = entry.partition("@")
        yield NameRow(module, name, Parity.SAME, f"{elsewhere or HOMES[module]}:{name}")
    for name, (place, note) in _OTHER[module].items():
        yield NameRow(module, name, Parity.OTHER, place, note)
    for reason, names in _NOT_HERE[module].items():
        for name in names.split():
            yield NameRow(module, name, Parity.NOT_HERE, None, reason)
