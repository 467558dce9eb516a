"""Requests that read and change limits.

Unknown fields are errors: a misspelt limit must not go unnoticed until it is needed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from penstock.wire.fields import INT_MAX, FairnessKey, GroupName, LeaseCap, PerMinute, ReasonText, Seconds
from penstock.wire.requests import Default, QueueKind, RequestModel

ScopePart = Literal["all", "workflow_tasks", "activity_tasks"]
"""Both kinds of tasks together, or one of them."""
GroupScope = Literal["namespace", "global"]
"""A budget group of one namespace, or one that all namespaces share."""
WindowName = Literal["minute", "sliding", "default"]
HistoryLength = Annotated[int, Meta(ge=1, le=1000)]


class Expiring(RequestModel, forbid_unknown_fields=True, kw_only=True):
    """A change that may expire, with the reason for it."""

    reason: ReasonText | None = None
    expires_in_seconds: Seconds | None = None
    ends_at: Annotated[datetime, Meta(tz=True)] | None = None


class LimitChange(Expiring, kw_only=True):
    """A change of some limits. A limit that is left out stays as it is; `default` or null unsets it."""

    max_dispatches_per_minute: PerMinute | Default | UnsetType = UNSET
    dispatch_window: WindowName | UnsetType | None = UNSET
    paused: bool | Default | UnsetType = UNSET
    if_version: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None


class QueueLimitParameters(RequestModel):
    task_queue_type: QueueKind | None = None


class ReadLimitChanges(RequestModel):
    """The newest changes of limits, before an instant."""

    before: Annotated[datetime, Meta(tz=True)] | None = None
    limit: HistoryLength = 50


class ReadWaiting(RequestModel):
    """The first waiting tasks of a queue."""

    task_queue_type: QueueKind = "activity"
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class ListKeys(RequestModel):
    """The fairness keys of a queue, by backlog."""

    task_queue_type: QueueKind = "activity"
    search: FairnessKey = ""
    """Only keys that contain this text, as it is."""
    key: FairnessKey = ""
    """Only this key."""
    page_size: Annotated[int, Meta(ge=1, le=100)] = 50
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None


class ChangeQueueLimits(LimitChange, kw_only=True):
    """The limits of a queue's tasks of one kind."""

    task_queue_type: QueueKind | None = None
    """May be given in the query string instead; `activity` by default."""
    max_active_leases_per_queue: LeaseCap | Default | UnsetType = UNSET
    dispatch_budget_group: GroupName | UnsetType | None = UNSET


class ChangeScopeLimits(LimitChange, kw_only=True):
    """The limits of a scope that several queues share."""

    kind: ScopePart = "all"
    max_active_leases: LeaseCap | Default | UnsetType = UNSET
    max_cost_per_minute: PerMinute | Default | UnsetType = UNSET


class ChangeOwnLimits(ChangeScopeLimits, kw_only=True):
    """The limits of a namespace or of the cluster."""

    change_approvals: Annotated[int, Meta(ge=0, le=2)] | Default | UnsetType = UNSET
    """How many others approve a change of its limits before it is applied; only of both kinds of tasks together."""


class ChangeGroupLimits(ChangeScopeLimits, kw_only=True):
    """The limits of a budget group."""

    scope: GroupScope = "namespace"


class ReadGroup(RequestModel):
    scope: GroupScope = "namespace"


class ReadScopeHistory(RequestModel):
    kind: ScopePart = "all"
    limit: HistoryLength = 50


class ReadDeclarationHistory(RequestModel):
    limit: HistoryLength = 50


class ReadGroupHistory(ReadScopeHistory):
    scope: GroupScope = "namespace"


class PauseQueue(Expiring, kw_only=True):
    task_queue_type: QueueKind | None = None
    """Both kinds of tasks if left out."""


class ResumeQueue(RequestModel, forbid_unknown_fields=True, kw_only=True):
    task_queue_type: QueueKind | None = None
    reason: ReasonText | None = None


class PauseKey(RequestModel, forbid_unknown_fields=True, kw_only=True):
    """A paused key stays paused until it is resumed."""

    task_queue_type: QueueKind | None = None
    reason: ReasonText | None = None


class PauseScope(Expiring, kw_only=True):
    kind: ScopePart = "all"


class ResumeScope(RequestModel, forbid_unknown_fields=True, kw_only=True):
    kind: ScopePart = "all"
    reason: ReasonText | None = None


class PauseGroup(PauseScope, kw_only=True):
    scope: GroupScope = "namespace"


class ResumeGroup(ResumeScope, kw_only=True):
    scope: GroupScope = "namespace"


class ReadJournal(RequestModel):
    after: Annotated[int, Meta(ge=0, le=INT_MAX)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
