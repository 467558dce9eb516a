"""Limits as operators read them: declared and live values, current counts, and lease holders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.limits.policies import LimitSetting, PolicyChange
from penstock.core.model import Queue, Task
from penstock.core.operations.limits_view import CoolDown, LimitsView, LimitView, ScopeUse, Usage
from penstock.core.timestamps import iso, iso_or_none
from penstock.wire.limits import queue_settings
from penstock.wire.responses import Body

LINE_NAMES: Final = {LimitSetting.LEASE_CAP: "max_active_leases_per_queue"}
SCOPE_NAMES: Final = {LimitSetting.LEASE_CAP: "max_active_leases"}
"""Public names of limits that differ from the names of settings."""


def line(queue: Queue, own: LimitsView, scopes: Sequence[ScopeUse]) -> Body:
    """All limits of a queue: its own, and those of its namespace, budget group and cluster."""
    return {
        "task_queue": queue.name,
        "task_queue_type": queue.kind.value,
        "namespace": queue.namespace,
        **_view(own, LINE_NAMES),
        "scopes": [_scope_use(each) for each in scopes],
    }


def scope(view: LimitsView) -> Body:
    """The limits of a scope with the holders of its leases."""
    return {"scope": view.scope, **_view(view, SCOPE_NAMES)}


def scope_summary(view: LimitsView) -> Body:
    body = scope(view)
    del body["holders"]
    return body


def _view(view: LimitsView, names: dict[LimitSetting, str]) -> Body:
    body: Body = {
        "version": view.version,
        "limits": {_name(each.setting_name, names): _limit(each) for each in view.limits},
        "counts": _counts(view.leases, view.dispatches, view.cost),
    }
    if view.cost is not None:
        body["cooling"] = _cooling(view.cooling)
    return body | {"holders": [_holder(each, view) for each in view.holders]}


def _name(setting_name: LimitSetting, names: dict[LimitSetting, str]) -> str:
    return names.get(setting_name, setting_name.value)


def _limit(each: LimitView) -> Body:
    return {
        "value": queue_settings.public_value(each.setting_name, each.value),
        "source": each.source,
        "declared": None
        if each.declared is None
        else queue_settings.public_value(each.setting_name, each.declared.value),
        "live": queue_settings.setting(each.setting_name, each.live),
    }


def _counts(leases: Usage, dispatches: Usage, cost: Usage | None) -> Body:
    body: Body = {
        "active_leases": leases.used,
        "remaining_active_leases": leases.left,
        "dispatches_this_minute": dispatches.used,
        "remaining_dispatches": dispatches.left,
    }
    if cost is not None:
        body |= {"cost_this_minute": cost.used, "remaining_cost": cost.left}
    return body


def _scope_use(use: ScopeUse) -> Body:
    rules = use.rules
    return {
        "scope": rules.name,
        "version": rules.version,
        "max_active_leases": rules.leases,
        "max_dispatches_per_minute": rules.dispatches,
        "max_cost_per_minute": rules.cost,
        "dispatch_window": rules.window.value,
        "paused": rules.paused,
        "counts": _counts(use.leases, use.dispatches, use.cost),
        "cooling": _cooling(use.cooling),
    }


def _cooling(cooling: CoolDown | None) -> Body | None:
    if cooling is None:
        return None
    return {
        "until": iso(cooling.until_ms),
        "opens_fully_at": iso(cooling.opens_fully_at_ms),
        "is_closed": cooling.is_closed,
    }


def _holder(task: Task, view: LimitsView) -> Body:
    leased_at_ms = view.now_ms if task.leased_at_ms is None else task.leased_at_ms
    return {
        "task_id": task.task_id,
        "task_type": task.kind.value,
        "workflow_id": view.workflows.get(task.run_id),
        "namespace": task.namespace,
        "task_queue": task.task_queue,
        "worker": task.lease_owner,
        "age_seconds": max(0, view.now_ms - leased_at_ms) // 1000,
        "expires_at": iso_or_none(task.lease_expires_at_ms),
    }


def pause(view: LimitsView) -> Body:
    """Whether it is paused, since when, by whom and why."""
    (found,) = (each for each in view.limits if each.setting_name is LimitSetting.PAUSED)
    return {
        "paused": queue_settings.public_value(found.setting_name, found.value),
        "version": view.version,
        "live": queue_settings.setting(found.setting_name, found.live),
    }


def member(queue: Queue) -> Body:
    """A queue that belongs to a budget group."""
    return {
        "namespace": queue.namespace,
        "task_queue": queue.name,
        "task_queue_type": queue.kind.value,
    }


def logged_change(scope: str, each: PolicyChange) -> Body:
    """An entry of the log of all limits: of a queue, of another scope, or of a declaration."""
    if scope == "declared":
        return declared_change(each) | {"fairness_key": None}
    return (
        queue_settings.change(each) if scope.startswith("queue:") else change(each) | {"fairness_key": None}
    )


def declared_change(each: PolicyChange) -> Body:
    """An entry of the log of declared limits, with values as logged."""
    return {
        "version": each.version,
        "at": iso(each.at_ms),
        "by": each.author,
        "reason": each.reason,
        "setting": each.setting,
        "before": each.before,
        "after": each.after,
    }


def change(each: PolicyChange) -> Body:
    """An entry of the change log of a scope."""
    body = queue_settings.change(each)
    del body["fairness_key"]
    return body | {"setting": SCOPE_NAMES.get(LimitSetting(each.setting), each.setting)}
