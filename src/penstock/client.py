"""Clients: start workflows and activities, find them, talk to them. `from penstock.client import Client`."""

from penstock.sdk.batches import BatchPreview, BatchResult
from penstock.sdk.client import Client
from penstock.sdk.connecting import ConnectOptions
from penstock.sdk.descriptions import (
    ActivityExecutionDescription,
    WorkflowExecution,
    WorkflowExecutionCount,
    WorkflowExecutionStatus,
)
from penstock.sdk.handles import ActivityHandle, WorkflowHandle, WorkflowUpdateHandle
from penstock.sdk.id_policies import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from penstock.sdk.outbound import ClientInterceptor, OutboundInterceptor
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.starting import ActivityStart, WithStartWorkflowOperation
from penstock.sdk.sync import SyncClient

__all__ = [
    "ActivityExecutionDescription",
    "ActivityHandle",
    "ActivityStart",
    "BatchPreview",
    "BatchResult",
    "Client",
    "ClientInterceptor",
    "ConnectOptions",
    "OutboundInterceptor",
    "Priority",
    "RetryPolicy",
    "SyncClient",
    "WithStartWorkflowOperation",
    "WorkflowExecution",
    "WorkflowExecutionCount",
    "WorkflowExecutionStatus",
    "WorkflowHandle",
    "WorkflowIDConflictPolicy",
    "WorkflowIDReusePolicy",
    "WorkflowUpdateHandle",
]
