"""The identity of a run and its information, from the task and the first event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from penstock.sdk.priority import LEVEL_DEFAULT, WEIGHT_DEFAULT, Priority, priority_in
from penstock.sdk.replay.events import HistoryEvent
from penstock.sdk.workflow_port.info import Info, ParentInfo


@dataclass(frozen=True, slots=True)
class PolledRun:
    """The identity of a run, from the polled task."""

    namespace: str
    task_queue: str
    workflow_id: str
    run_id: str
    workflow_type: str
    priority: Priority = field(default_factory=Priority)
    arguments: Any = None
    """The encoded arguments of the run; None if the history contains them."""


def info_of(polled_run: PolledRun, started: HistoryEvent) -> Info:
    payload = started.payload
    copied: Sequence[tuple[int, str]] = payload.get("copied_history") or ()
    parent_id, parent_run = payload.get("parent_workflow_instance_id"), payload.get("parent_workflow_run_id")
    return Info(
        workflow_id=polled_run.workflow_id,
        run_id=polled_run.run_id,
        workflow_type=polled_run.workflow_type,
        task_queue=polled_run.task_queue,
        namespace=polled_run.namespace,
        start_time=started.at,
        attempt=int(payload.get("retry_attempt") or 1),
        parent=ParentInfo(str(parent_id), str(parent_run), polled_run.namespace) if parent_run else None,
        continued_run_id=payload.get("continued_from_run_id"),
        first_execution_run_id=str(payload.get("first_execution_run_id") or polled_run.run_id),
        original_execution_run_id=str(copied[0][1] if copied else polled_run.run_id),
        execution_timeout=_seconds(payload.get("execution_timeout_seconds")),
        run_timeout=_seconds(payload.get("run_timeout_seconds")),
        priority=_priority(payload, polled_run.priority),
        memo=dict(payload.get("memo") or {}),
        search_attributes=dict(payload.get("search_attributes") or {}),
    )


def _priority(payload: Mapping[str, Any], task_priority: Priority) -> Priority:
    """Return the priority of the start event, so that every replay has the same. Default values are left out there."""
    recorded = priority_in(payload)
    return Priority(
        recorded.priority_key if "priority" in payload else task_priority.priority_key or LEVEL_DEFAULT,
        recorded.fairness_key if "fairness_key" in payload else task_priority.fairness_key,
        recorded.fairness_weight
        if "fairness_weight" in payload
        else task_priority.fairness_weight or WEIGHT_DEFAULT,
    )


def _seconds(value: Any) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)
