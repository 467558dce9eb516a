"""Explanations of why a task waits."""

from __future__ import annotations

from typing import Any

from penstock.core.model import Activity, Run, Task, Timer
from penstock.core.timestamps import iso, iso_or_none
from penstock.core.why.forecast_score import ForecastCoverage
from penstock.core.why.sentences import remedy_text
from penstock.core.why.values import (
    Constraint,
    ConstraintKind,
    LeaseHolder,
    Position,
    Remedy,
    StartEstimate,
    WaitExplanation,
)
from penstock.wire.responses import priority

Body = dict[str, Any]


def explanation_body(explanation: WaitExplanation, now_ms: int) -> Body:
    """The explanation, without its subject."""
    binding = explanation.binding
    free = (ConstraintKind.NOT_WAITING, ConstraintKind.QUARANTINED, ConstraintKind.LEASED)
    return {
        "summary": explanation.sentence,
        "waits": binding is None or binding.kind not in free,
        "binding": None if binding is None else constraint(binding, now_ms),
        "next": [constraint(each, now_ms) for each in explanation.next],
        "position": None if explanation.position is None else position(explanation.position),
        "expected_start": expected(explanation.expected),
        "as_of": iso(now_ms),
    }


def subject(run: Run, task: Task | None, activity: Activity | None) -> Body:
    """The subject of an explanation."""
    body: Body = {
        "namespace": run.namespace,
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "status": run.status.value if activity is None else activity.status.value,
        "task": None if task is None else _task(task),
    }
    if activity is not None:
        body |= {"activity_id": activity.activity_id, "activity_type": activity.activity_type}
    return body


def _task(task: Task) -> Body:
    return {
        "task_id": task.task_id,
        "task_queue": task.task_queue,
        "task_queue_type": task.kind.value,
        "type": task.type,
        "state": task.state.value,
        "attempt": task.attempt,
        **priority(task.level),
        "fairness_key": task.key or None,
        "build_id": task.compatibility,
        "available_at": iso(task.available_at_ms),
        "enqueued_at": iso(task.enqueued_at_ms),
    }


def constraint(each: Constraint, now_ms: int) -> Body:
    return {
        "kind": each.kind.value,
        "scope": each.scope,
        "message": each.message,
        "is_closed": each.is_closed,
        "max": each.most,
        "used": each.used,
        "opens_at": iso_or_none(each.opens_at_ms),
        "frees": [remedy(one, now_ms) for one in each.frees],
        "holders": [_holder(one, now_ms) for one in each.holders],
    }


def remedy(each: Remedy, now_ms: int) -> Body:
    """A remedy: as text for people, as fields for programs."""
    parts = {
        "scope": each.scope,
        "to": each.to / 1_000_000 if each.is_rate and each.to is not None else each.to,
        "at": iso_or_none(each.at_ms),
        "count": each.count,
        "type": each.task_type,
        "build_id": each.build_id,
        "setting": each.setting,
    }
    fields = {name: value for name, value in parts.items() if value is not None}
    return {
        "action": each.act.value,
        "text": remedy_text(each, now_ms),
        "manual": each.is_manual,
        **fields,
    }


def _holder(each: LeaseHolder, now_ms: int) -> Body:
    return {
        "task_id": each.task_id,
        "workflow_id": each.workflow_id,
        "task_queue": each.task_queue,
        "worker": each.worker,
        "age_seconds": max(0, now_ms - each.since_ms) // 1000,
        "expires_at": iso_or_none(each.until_ms),
    }


def position(place: Position) -> Body:
    return {
        **priority(place.level),
        "fairness_key": place.key or None,
        "ahead": place.ahead,
        "ahead_by_priority": [priority(level) | {"tasks": count} for level, count in place.ahead_by_level],
        "ahead_of_other_keys": place.ahead_of_others,
        "ahead_by_key": [{"fairness_key": key or None, "tasks": count} for key, count in place.ahead_by_key],
        "ahead_of_own_key": place.ahead_of_own,
        "key_turn": place.key_turn,
        "is_exact": place.is_exact,
    }


def expected(when: StartEstimate) -> Body:
    return {
        "from": iso_or_none(when.from_ms),
        "to": iso_or_none(when.to_ms),
        "unknown_because": when.unknown_because,
    }


def coverage(found: ForecastCoverage) -> Body:
    """How well forecasts of starts held lately, as far as this server saw."""
    share = found.share
    return {
        "judged": found.judged,
        "held": found.held,
        "early": found.early,
        "late": found.late,
        "share_held": None if share is None else round(share, 4),
    }


def timer(each: Timer) -> Body:
    return {"timer_id": each.timer_id, "fires_at": iso(each.fire_at_ms)}
