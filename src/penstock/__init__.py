"""Penstock: durable workflows and task queues in which every limit is true at every instant.

Public names are imported on first use, so that reading the version or running the command line does not load the SDK.
`penstock.workflow`, `penstock.activity`, `penstock.client`, `penstock.worker`, `penstock.failures` and
`penstock.testing` are modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import ConfigurationError, MultipleValidationErrors
    from penstock.sdk import activity, workflow
    from penstock.sdk.app import Penstock
    from penstock.sdk.app_config.app import AppConfig
    from penstock.sdk.app_config.broker import PostgresConfig
    from penstock.sdk.app_config.queues import CustomQueueConfig, QueueMode
    from penstock.sdk.app_config.recovery import RecoveryConfig
    from penstock.sdk.clients.client import Client
    from penstock.sdk.clients.descriptions import WorkflowExecutionStatus
    from penstock.sdk.clients.handles import ActivityHandle, WorkflowHandle
    from penstock.sdk.clients.interceptors import ClientInterceptor, OutboundInterceptor
    from penstock.sdk.clients.schedules.actions import (
        ScheduleActionStartActivity,
        ScheduleActionStartWorkflow,
    )
    from penstock.sdk.clients.schedules.handle import ScheduleHandle
    from penstock.sdk.clients.schedules.schedule import (
        Schedule,
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
    from penstock.sdk.converters import DataConverter, PayloadCodec, PayloadConverter
    from penstock.sdk.id_policies import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from penstock.sdk.plugins import Plugin, SimplePlugin
    from penstock.sdk.priority import Priority
    from penstock.sdk.replay.replayer import Replayer
    from penstock.sdk.retry import RetryPolicy
    from penstock.sdk.search_attributes import (
        SearchAttributeIndexedValueType,
        SearchAttributeKey,
        SearchAttributePair,
        SearchAttributeUpdate,
        TypedSearchAttributes,
    )
    from penstock.sdk.tasks.errors import TaskCancelled, TaskError, TaskExpired, TaskFailed, TaskTimedOut
    from penstock.sdk.tasks.handle import TaskHandle, TaskStatus
    from penstock.sdk.worker import Worker

__version__ = "0.1.0"
__all__ = [
    "ActivityHandle",
    "ActivityStart",
    "AppConfig",
    "Client",
    "ClientInterceptor",
    "ConfigurationError",
    "CustomQueueConfig",
    "DataConverter",
    "MultipleValidationErrors",
    "OutboundInterceptor",
    "PayloadCodec",
    "PayloadConverter",
    "Penstock",
    "Plugin",
    "PostgresConfig",
    "Priority",
    "QueueMode",
    "RecoveryConfig",
    "Replayer",
    "RetryPolicy",
    "Schedule",
    "ScheduleActionStartActivity",
    "ScheduleActionStartWorkflow",
    "ScheduleCalendarSpec",
    "ScheduleHandle",
    "ScheduleIntervalSpec",
    "ScheduleOverlapPolicy",
    "SchedulePolicy",
    "ScheduleRange",
    "ScheduleSpec",
    "ScheduleState",
    "SearchAttributeIndexedValueType",
    "SearchAttributeKey",
    "SearchAttributePair",
    "SearchAttributeUpdate",
    "SimplePlugin",
    "SyncClient",
    "TaskCancelled",
    "TaskError",
    "TaskExpired",
    "TaskFailed",
    "TaskHandle",
    "TaskStatus",
    "TaskTimedOut",
    "TypedSearchAttributes",
    "WithStartWorkflowOperation",
    "Worker",
    "WorkflowExecutionStatus",
    "WorkflowHandle",
    "WorkflowIDConflictPolicy",
    "WorkflowIDReusePolicy",
    "__version__",
    "activity",
    "failures",
    "workflow",
]
_MODULES = {"activity", "failures", "workflow"}
_BELOW = {
    "ConfigurationError": "errors",
    "MultipleValidationErrors": "errors",
}
_HOMES = {
    "ActivityHandle": "clients.handles",
    "ActivityStart": "clients.starts",
    "AppConfig": "app_config.app",
    "Client": "clients.client",
    "ClientInterceptor": "clients.interceptors",
    "CustomQueueConfig": "app_config.queues",
    "DataConverter": "converters",
    "OutboundInterceptor": "clients.interceptors",
    "PayloadCodec": "converters",
    "PayloadConverter": "converters",
    "Penstock": "app",
    "Plugin": "plugins",
    "PostgresConfig": "app_config.broker",
    "Priority": "priority",
    "QueueMode": "app_config.queues",
    "RecoveryConfig": "app_config.recovery",
    "Replayer": "replay.replayer",
    "RetryPolicy": "retry",
    "Schedule": "clients.schedules.schedule",
    "ScheduleActionStartActivity": "clients.schedules.actions",
    "ScheduleActionStartWorkflow": "clients.schedules.actions",
    "ScheduleCalendarSpec": "clients.schedules.spec",
    "ScheduleHandle": "clients.schedules.handle",
    "ScheduleIntervalSpec": "clients.schedules.spec",
    "ScheduleOverlapPolicy": "clients.schedules.schedule",
    "SchedulePolicy": "clients.schedules.schedule",
    "ScheduleRange": "clients.schedules.spec",
    "ScheduleSpec": "clients.schedules.spec",
    "ScheduleState": "clients.schedules.schedule",
    "SearchAttributeIndexedValueType": "search_attributes",
    "SearchAttributeKey": "search_attributes",
    "SearchAttributePair": "search_attributes",
    "SearchAttributeUpdate": "search_attributes",
    "SimplePlugin": "plugins",
    "SyncClient": "clients.sync_client",
    "TaskCancelled": "tasks.errors",
    "TaskError": "tasks.errors",
    "TaskExpired": "tasks.errors",
    "TaskFailed": "tasks.errors",
    "TaskHandle": "tasks.handle",
    "TaskStatus": "tasks.handle",
    "TaskTimedOut": "tasks.errors",
    "TypedSearchAttributes": "search_attributes",
    "WithStartWorkflowOperation": "clients.starts",
    "Worker": "worker",
    "WorkflowExecutionStatus": "clients.descriptions",
    "WorkflowHandle": "clients.handles",
    "WorkflowIDConflictPolicy": "id_policies",
    "WorkflowIDReusePolicy": "id_policies",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"penstock.{name}")
    if name in _BELOW:
        return getattr(import_module(f"penstock.{_BELOW[name]}"), name)
    if name in _HOMES:
        return getattr(import_module(f"penstock.sdk.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
