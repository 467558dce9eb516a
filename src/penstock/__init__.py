"""Penstock: durable workflows and task queues in which every limit is true at every instant.

The names below are loaded when they are used: whoever wants a version or a command line waits for no SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.sdk import activity, failures, workflow
    from penstock.sdk.client import Client
    from penstock.sdk.converting import DataConverter, PayloadCodec
    from penstock.sdk.handles import ActivityHandle, WorkflowHandle
    from penstock.sdk.priority import Priority
    from penstock.sdk.replay.replayer import Replayer
    from penstock.sdk.retry import RetryPolicy
    from penstock.sdk.sync import SyncClient
    from penstock.sdk.worker import Worker

__version__ = "0.1.0"
__all__ = [
    "ActivityHandle",
    "Client",
    "DataConverter",
    "PayloadCodec",
    "Priority",
    "Replayer",
    "RetryPolicy",
    "SyncClient",
    "Worker",
    "WorkflowHandle",
    "__version__",
    "activity",
    "failures",
    "workflow",
]
_MODULES = {"activity", "failures", "workflow"}
_HOMES = {
    "ActivityHandle": "handles",
    "Client": "client",
    "DataConverter": "converting",
    "PayloadCodec": "converting",
    "Priority": "priority",
    "Replayer": "replay.replayer",
    "RetryPolicy": "retry",
    "SyncClient": "sync",
    "Worker": "worker",
    "WorkflowHandle": "handles",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"penstock.sdk.{name}")
    if name in _HOMES:
        return getattr(import_module(f"penstock.sdk.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
