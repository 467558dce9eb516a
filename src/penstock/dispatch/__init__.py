"""Where activities go, how they are dispatched and how workers behave, as one file says it."""

from __future__ import annotations

from penstock.dispatch.config import DispatchConfig
from penstock.dispatch.durations import parse_duration
from penstock.dispatch.loading import dispatch_from, load_dispatch
from penstock.dispatch.models import HandleOptions, Profile, QueueOptions, RetryPolicyConfig, Route
from penstock.dispatch.options import DispatchOptions, Layer, RetryOverlay
from penstock.dispatch.problems import (
    DispatchConfigError,
    Problem,
    WorkerNothingToDoError,
    WorkerProfileUnknownError,
    WorkerScopeEmptyError,
    WorkerScopeUnknownError,
    WorkerTaskQueueUnknownError,
)
from penstock.dispatch.retry import RetryPolicy
from penstock.dispatch.scopes import Member, Plan, Scope, Selection, plan
from penstock.dispatch.worker_config import WorkerConfig

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
