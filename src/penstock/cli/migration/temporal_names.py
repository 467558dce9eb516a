"""What has become of each public name of Temporal's Python SDK: the same here, other, or not here.

Theory of operation
-------------------
`docs/reference/temporalio.md` prints this table. A test compares it with the real package, so that a name which
Temporal adds is noticed, and with our modules, so that "same" means a name that exists.

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
        defn heartbeat in_activity info is_cancelled is_worker_shutdown logger LoggerAdapter raise_complete_async
        shield_thread_cancel_exception wait_for_cancelled wait_for_cancelled_sync wait_for_worker_shutdown
        wait_for_worker_shutdown_sync
    """,
    "client": """
        AsyncActivityCancelledError AsyncActivityHandle
        ActivityExecutionDescription ActivityHandle Client OutboundInterceptor Schedule ScheduleAction
        ScheduleActionExecutionStartWorkflow ScheduleActionResult ScheduleActionStartWorkflow
        ScheduleBackfill ScheduleCalendarSpec ScheduleDescription ScheduleHandle ScheduleInfo
        ScheduleIntervalSpec ScheduleOverlapPolicy SchedulePolicy ScheduleRange ScheduleSpec
        ScheduleState ScheduleUpdate ScheduleUpdateInput WithStartWorkflowOperation WorkflowExecution
        WorkflowExecutionCount WorkflowExecutionDescription WorkflowExecutionStatus WorkflowHandle
        WorkflowHistory WorkflowUpdateHandle WorkflowUpdateStage ActivityFailureError@penstock.failures
        DataConverter@penstock ScheduleAlreadyRunningError@penstock.failures
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
    """,
    "exceptions": """
        ActivityError ApplicationError ApplicationErrorCategory CancelledError ChildWorkflowError
        FailureError is_cancelled_exception RetryState TerminatedError TimeoutError
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
    "activity": {
        "Info": (
            "penstock.activity:ActivityInfo",
            "what `info()` returns; `workflow_namespace` is `namespace`",
        ),
    },
    "client": {
        "ClientConfig": (
            "penstock.client:ClientConfig",
            "what plug-ins may change: converter, interceptors, dispatch",
        ),
        "Plugin": ("penstock.client:Plugin", "without `connect_service_client`"),
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
        "SearchAttributeIndexedValueType": (
            None,
            "attributes are [registered](../guides/finding-runs.md) with a type",
        ),
        "SearchAttributeKey": (None, "search attributes are a mapping from names to plain values"),
        "SearchAttributePair": (None, "search attributes are a mapping from names to plain values"),
        "SearchAttributeUpdate": (None, "`upsert_search_attributes({name: value})`; None deletes"),
        "SearchAttributeValue": (None, "search attributes are a mapping from names to plain values"),
        "SearchAttributeValueType": (None, "search attributes are a mapping from names to plain values"),
        "SearchAttributeValues": (None, "search attributes are a mapping from names to plain values"),
        "SearchAttributes": (None, "search attributes are a mapping from names to plain values"),
        "TypedSearchAttributes": (None, "search attributes are a mapping from names to plain values"),
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
        "TimeoutType": (None, "`TimeoutError.kind` is text: `start_to_close`, `heartbeat`, …"),
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
        _NOT_YET: """
            ActivityCancellationDetails cancellation_details client payload_converter
        """,
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
            ActivityCancellationDetails ActivityExecution ActivityExecutionAsyncIterator
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
