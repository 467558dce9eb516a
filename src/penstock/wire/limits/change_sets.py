"""Change sets: requests that propose, approve, apply and roll them back, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from penstock.core.limits.admission import EVERYWHERE, queue_of_scope
from penstock.core.limits.change_approvals import ApprovalVerdict
from penstock.core.limits.change_effects import GrantsUnder, ScopeEffect
from penstock.core.limits.change_sets import (
    BreakGlass,
    ChangeItem,
    ChangeSet,
    ChangeSetState,
    CurrentValue,
    ItemTarget,
    MovedItem,
    Stored,
)
from penstock.core.timestamps import iso, iso_or_none
from penstock.wire.fields import GroupName, Name, ReasonText, Seconds
from penstock.wire.limits.queue_settings import public_value
from penstock.wire.requests import RequestModel
from penstock.wire.responses import Body

Settings = dict[str, Any]
"""Settings of one target: `max_active_leases`, `max_dispatches_per_minute`, `weights`, `keys`, …; null unsets."""


class ProposeChangeSet(RequestModel, forbid_unknown_fields=True, kw_only=True):
    """Settings of several queues, budget groups, the namespace and the cluster that are changed as one."""

    reason: ReasonText
    queues: dict[Name, Settings] = field(default_factory=dict)
    """By task queue. With `task_queue_type: workflow` they are those of its workflow tasks."""
    groups: dict[GroupName, Settings] = field(default_factory=dict)
    """By budget group of the namespace; `kind` says which tasks, as in a change of the group."""
    namespace_limits: Settings = field(default_factory=dict)
    cluster: Settings = field(default_factory=dict)
    apply_at: Annotated[datetime, Meta(tz=True)] | None = None
    """When the server applies it; left out: when somebody does."""
    expires_in_seconds: Seconds | None = None
    """How long it stays in force. Then every setting that still has its value gets the one before back."""


PlanHash = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]


class ApproveChangeSet(RequestModel, forbid_unknown_fields=True, kw_only=True):
    plan: PlanHash | None = None
    """The hash of the plan that was reviewed; left out: the plan as it is."""


class ApplyChangeSet(RequestModel, forbid_unknown_fields=True, kw_only=True):
    apply_at: Annotated[datetime, Meta(tz=True)] | None = None
    """When the server applies it; left out: now."""
    plan: PlanHash | None = None
    """The hash of the plan that was reviewed; left out: the plan as it is."""
    break_glass: ReasonText | None = None
    """Why an admin applies it without the approvals that it needs; recorded and shown."""


class ListChangeSets(RequestModel):
    state: Literal["proposed", "scheduled", "applied", "expired", "withdrawn", "refused"] | None = None
    page_size: Annotated[int, Meta(ge=1, le=100)] = 20
    next_page_token: str | None = None


class RollBackChangeSet(RequestModel, forbid_unknown_fields=True, kw_only=True):
    reason: ReasonText


def shown(change_set: ChangeSet) -> Body:
    """A change set as recorded."""
    return {
        "change_set_id": change_set.change_set_id,
        "namespace": change_set.namespace,
        "state": change_set.state.value,
        "change_reason": change_set.reason,
        "author": change_set.author,
        "created_at": iso(change_set.created_at_ms),
        "apply_at": None if change_set.applied_at_ms else iso_or_none(change_set.due_at_ms),
        "expires_in_seconds": None if change_set.lasts_ms is None else change_set.lasts_ms // 1_000,
        "applied_at": iso_or_none(change_set.applied_at_ms),
        "applied_by": change_set.applied_by,
        "expires_at": iso_or_none(change_set.due_at_ms) if change_set.applied_at_ms else None,
        "ended_at": iso_or_none(change_set.ended_at_ms),
        "ended_by": change_set.ended_by,
        "undoes": change_set.undoes,
        "edited_at": iso_or_none(change_set.edited_at_ms),
        "scheduled_by": change_set.scheduled_by,
        "approved_by": [each.by for each in change_set.approvals],
        "break_glass": _break_glass(change_set.break_glass),
        "refused_because": _refusal(change_set),
        "versions": dict(change_set.versions),
        "items": [_item(each) for each in change_set.items],
    }


def _break_glass(glass: BreakGlass | None) -> Body | None:
    if glass is None:
        return None
    return {"by": glass.by, "at": iso(glass.at_ms), "reason": glass.reason, "missing_approvals": glass.lacked}


def _refusal(change_set: ChangeSet) -> str | None:
    if change_set.state is not ChangeSetState.REFUSED:
        return None
    reasons = [f"{len(change_set.moved)} settings had moved"] if change_set.moved else []
    reasons += [f"{change_set.lacked} approvals were missing"] if change_set.lacked else []
    return " and ".join(reasons)


def approvals(wanted: int, missing: int, verdicts: Sequence[ApprovalVerdict]) -> Body:
    """The approvals of a change set that is not applied, with whether they count."""
    return {
        "wanted": wanted,
        "missing": missing,
        "given": [
            {
                "by": each.approval.by,
                "at": iso(each.approval.at_ms),
                "plan": each.approval.plan,
                "state": each.state.value,
                "expires_at": iso(each.expires_at_ms),
                "changed_since": list(each.moved),
            }
            for each in verdicts
        ],
    }


def effect(change_set: ChangeSet, scopes: Sequence[ScopeEffect], gaps: Sequence[str]) -> Body:
    """What was granted under a change set, and under the settings before it."""
    return {
        "change_set_id": change_set.change_set_id,
        "scopes": [
            {
                "scope": each.scope,
                "is_current": each.is_current,
                "before": _under(each.before),
                "under": _under(each.under),
            }
            for each in scopes
        ],
        "is_complete": not gaps,
        "gaps": list(gaps),
    }


def _under(each: GrantsUnder) -> Body:
    return {
        "version": each.version,
        "grants": each.grants,
        "wait_p50_ms": each.p50_ms,
        "wait_p95_ms": each.p95_ms,
        "wait_max_ms": each.longest_ms,
    }


def detailed(
    change_set: ChangeSet, current: Mapping[ItemTarget, CurrentValue], moved: Sequence[MovedItem]
) -> Body:
    """A change set with the present values of its settings, and what is in its way."""
    return shown(change_set) | {
        "items": [
            _item(each) | {"now": _public(each.target, current[each.target].value)}
            for each in change_set.items
        ],
        "moved": [moved_item(each) for each in moved],
    }


def moved_item(each: MovedItem) -> Body:
    """A setting that somebody else changed: to what, who and when."""
    return _item(each.item) | {
        "now": _public(each.item.target, each.now.value),
        "by": each.now.author,
        "at": iso_or_none(each.now.at_ms),
    }


def described(target: ItemTarget) -> str:
    """A setting in the words in which it is given on the command line."""
    of = _target(target)
    what = of["target"] if of["task_queue_type"] in (None, "activity") else f"{of['target']} (workflow tasks)"
    if target.key is None:
        return f"{what}.{_NAMES.get(target.setting, target.setting)}"
    if target.setting == "fairness_weight_override":
        return f"{what}.weights.{target.key}"
    return f"{what}.keys.{target.key}.{target.setting}"


_NAMES = {"max_running": "max_active_leases"}


def _item(each: ChangeItem) -> Body:
    return _target(each.target) | {
        "setting": _NAMES.get(each.target.setting, each.target.setting)
        if each.target.key is None
        else each.target.setting,
        "fairness_key": each.target.key,
        "path": described(each.target),
        "before": _public(each.target, each.before),
        "after": _public(each.target, each.after),
    }


def _target(target: ItemTarget) -> Body:
    queue = queue_of_scope(target.scope)
    if queue is not None:
        return {"target": f"queue:{queue[1]}", "task_queue_type": queue[2]}
    what, _, rest = target.scope.partition(":")
    if what == "group":
        namespace, group, *kind = rest.split("/")
        name = f"group:{'*/' if namespace == EVERYWHERE else ''}{group}"
        return {"target": name, "task_queue_type": kind[0] if kind else None}
    _, _, tasks = target.scope.partition("/")
    return {
        "target": "namespace" if what == "namespace" else "cluster",
        "task_queue_type": tasks or None,
    }


def _public(target: ItemTarget, value: Stored) -> float | int | str | bool | None:
    return public_value(target.setting, value)
