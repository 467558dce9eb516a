"""Public module with every error that applications can catch: `from penstock.failures import ...`.

`penstock docs errors` prints the reference page of this module. Refusals of a server have a stable `reason`, by which
programs distinguish them; the reasons have their own page.
"""

from penstock.dispatch.problems import DispatchConfigError
from penstock.errors import (
    ConfigurationError,
    MultipleValidationErrors,
)
from penstock.sdk import failures as sdk_failures
from penstock.sdk.activities.routing import RoutingKeyError
from penstock.sdk.connection.connect_options import ProfileError
from penstock.sdk.failures import *  # noqa: F403 - the errors of the SDK
from penstock.sdk.replay.errors import (
    DeterminismViolationError,
    NonDeterminismError,
    ReadOnlyError,
    TaskStuckError,
    WorkflowTaskError,
)
from penstock.sdk.tasks.errors import (
    TaskCancelled,
    TaskError,
    TaskExpired,
    TaskFailed,
    TaskTimedOut,
)
from penstock.sdk.tasks.queues import UnknownQueueError
from penstock.sdk.worker.registry import UnknownWorkflowTypeError
from penstock.sdk.workflow_port.port import NotInWorkflowError
from penstock.sdk.workflows.definitions import DefinitionError

__all__ = [
    "ConfigurationError",
    "DefinitionError",
    "DeterminismViolationError",
    "DispatchConfigError",
    "MultipleValidationErrors",
    "NonDeterminismError",
    "NotInWorkflowError",
    "ProfileError",
    "ReadOnlyError",
    "RoutingKeyError",
    "TaskCancelled",
    "TaskError",
    "TaskExpired",
    "TaskFailed",
    "TaskStuckError",
    "TaskTimedOut",
    "UnknownQueueError",
    "UnknownWorkflowTypeError",
    "WorkflowTaskError",
]
__all__ += sdk_failures.__all__
