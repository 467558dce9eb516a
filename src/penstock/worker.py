"""Public module for workers: `from penstock.worker import Worker`."""

from penstock.sdk.activities.interceptors import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
)
from penstock.sdk.plugins import Plugin, SimplePlugin
from penstock.sdk.plugins import WorkerParts as WorkerConfig
from penstock.sdk.replay.interceptors import (
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from penstock.sdk.replay.replayer import Replayer
from penstock.sdk.worker import Worker, WorkerMetrics, run_until_signalled, run_worker
from penstock.sdk.worker.claim_options import Claiming
from penstock.sdk.worker.interceptor import Interceptor
from penstock.sdk.workflow_port.outbound import (
    ContinueAsNewInput,
    SignalChildWorkflowInput,
    SignalExternalWorkflowInput,
    StartChildWorkflowInput,
    StartLocalActivityInput,
    WorkflowOutboundInterceptor,
)
from penstock.sdk.workflow_port.outbound import (
    ScheduleActivityInput as StartActivityInput,
)

__all__ = [
    "ActivityInboundInterceptor",
    "ActivityOutboundInterceptor",
    "Claiming",
    "ContinueAsNewInput",
    "ExecuteActivityInput",
    "ExecuteWorkflowInput",
    "HandleQueryInput",
    "HandleSignalInput",
    "HandleUpdateInput",
    "Interceptor",
    "Plugin",
    "Replayer",
    "SignalChildWorkflowInput",
    "SignalExternalWorkflowInput",
    "SimplePlugin",
    "StartActivityInput",
    "StartChildWorkflowInput",
    "StartLocalActivityInput",
    "Worker",
    "WorkerConfig",
    "WorkerMetrics",
    "WorkflowInboundInterceptor",
    "WorkflowInterceptorClassInput",
    "WorkflowOutboundInterceptor",
    "run_until_signalled",
    "run_worker",
]
