"""Public module for clients: `from penstock.client import Client`."""

from penstock.sdk.clients.batch_operations import BatchPreview, BatchResult
from penstock.sdk.clients.change_sets.descriptions import (
    BrokenGlass,
    ChangeSetApproval,
    ChangeSetCheck,
    ChangeSetDescription,
    ChangeSetItem,
    ChangeSetPlan,
)
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.descriptions import (
    ActivityExecutionDescription,
    WorkflowExecution,
    WorkflowExecutionCount,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHistory,
)
from penstock.sdk.clients.handles import ActivityHandle, WorkflowHandle, WorkflowUpdateHandle
from penstock.sdk.clients.interceptors import (
    ClientInterceptor,
    EndWorkflowInput,
    OutboundInterceptor,
    QueryWorkflowInput,
    RunInput,
    SignalWorkflowInput,
    StartActivityInput,
    StartWorkflowInput,
    UpdateWorkflowInput,
    WorkflowUpdateStage,
)
from penstock.sdk.clients.operations.async_activity import AsyncActivityCancelledError, AsyncActivityHandle
from penstock.sdk.clients.schedules.actions import (
    ScheduleAction,
    ScheduleActionStartActivity,
    ScheduleActionStartWorkflow,
)
from penstock.sdk.clients.schedules.descriptions import (
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionResult,
    ScheduleDescription,
    ScheduleInfo,
    SchedulePreview,
    ScheduleTriggerResult,
    ScheduleUpdate,
    ScheduleUpdateInput,
    ScheduleWarning,
)
from penstock.sdk.clients.schedules.handle import (
    ScheduleHandle,
)
from penstock.sdk.clients.schedules.schedule import (
    Schedule,
    ScheduleBackfill,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleState,
)
from penstock.sdk.clients.schedules.spec import (
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleRange,
    ScheduleSpec,
)
from penstock.sdk.clients.starts import ActivityStart, WithStartWorkflowOperation
from penstock.sdk.clients.sync_client import SyncClient
from penstock.sdk.connection.connect_options import ConnectOptions
from penstock.sdk.id_policies import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from penstock.sdk.plugins import ClientConfig, Plugin
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy

__all__ = [
    "ActivityExecutionDescription",
    "ActivityHandle",
    "ActivityStart",
    "AsyncActivityCancelledError",
    "AsyncActivityHandle",
    "BatchPreview",
    "BatchResult",
    "BrokenGlass",
    "ChangeSetApproval",
    "ChangeSetCheck",
    "ChangeSetDescription",
    "ChangeSetItem",
    "ChangeSetPlan",
    "Client",
    "ClientConfig",
    "ClientInterceptor",
    "ConnectOptions",
    "EndWorkflowInput",
    "OutboundInterceptor",
    "Plugin",
    "Priority",
    "QueryWorkflowInput",
    "RetryPolicy",
    "RunInput",
    "Schedule",
    "ScheduleAction",
    "ScheduleActionExecutionStartWorkflow",
    "ScheduleActionResult",
    "ScheduleActionStartActivity",
    "ScheduleActionStartWorkflow",
    "ScheduleBackfill",
    "ScheduleCalendarSpec",
    "ScheduleDescription",
    "ScheduleHandle",
    "ScheduleInfo",
    "ScheduleIntervalSpec",
    "ScheduleOverlapPolicy",
    "SchedulePolicy",
    "SchedulePreview",
    "ScheduleRange",
    "ScheduleSpec",
    "ScheduleState",
    "ScheduleTriggerResult",
    "ScheduleUpdate",
    "ScheduleUpdateInput",
    "ScheduleWarning",
    "SignalWorkflowInput",
    "StartActivityInput",
    "StartWorkflowInput",
    "SyncClient",
    "UpdateWorkflowInput",
    "WithStartWorkflowOperation",
    "WorkflowExecution",
    "WorkflowExecutionCount",
    "WorkflowExecutionDescription",
    "WorkflowExecutionStatus",
    "WorkflowHandle",
    "WorkflowHistory",
    "WorkflowIDConflictPolicy",
    "WorkflowIDReusePolicy",
    "WorkflowUpdateHandle",
    "WorkflowUpdateStage",
]
