"""Dispatch configuration: routes and options of activities, task queue options, worker profiles and scopes.

The loader is imported on first use, so that a worker without a file does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.dispatch.config import DispatchConfig
from penstock.dispatch.options import DispatchOptions, Layer, RetryOverlay, RetryPolicyConfigOverlay
from penstock.dispatch.problems import (
    DispatchConfigError,
    WorkerNothingToDoError,
    WorkerProfileUnknownError,
    WorkerScopeEmptyError,
    WorkerScopeUnknownError,
    WorkerTaskQueueUnknownError,
)
from penstock.dispatch.retry import RetryPolicy
from penstock.dispatch.routing.models import HandleOptions, Profile, QueueOptions, RetryPolicyConfig, Route
from penstock.dispatch.routing.scopes import Member, Plan, Scope, Selection, plan
from penstock.dispatch.routing.worker_config import WorkerConfig
from penstock.schema.durations import parse_duration
from penstock.schema.problems import Problem

if TYPE_CHECKING:
    from penstock.dispatch.file.loader import dispatch_from, load_dispatch

__all__ = [
    "DispatchConfig",
    "DispatchConfigError",
    "DispatchOptions",
    "HandleOptions",
    "Layer",
    "Member",
    "Plan",
    "Problem",
    "Profile",
    "QueueOptions",
    "RetryOverlay",
    "RetryPolicy",
    "RetryPolicyConfig",
    "RetryPolicyConfigOverlay",
    "Route",
    "Scope",
    "Selection",
    "WorkerConfig",
    "WorkerNothingToDoError",
    "WorkerProfileUnknownError",
    "WorkerScopeEmptyError",
    "WorkerScopeUnknownError",
    "WorkerTaskQueueUnknownError",
    "dispatch_from",
    "load_dispatch",
    "parse_duration",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name in ("dispatch_from", "load_dispatch"):
        from penstock.dispatch.file import loader

        return getattr(loader, name)
    raise AttributeError(f"module 'penstock.dispatch' has no attribute {name!r}")
