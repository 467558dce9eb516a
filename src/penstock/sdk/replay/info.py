"""Information about the current run, for workflow code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from penstock.sdk.priority import LEVEL_DEFAULT, WEIGHT_DEFAULT, Priority, priority_in
from penstock.sdk.replay.events import HistoryEvent

SUGGESTED_LENGTH = 8_000
"""From this many events on, `is_continue_as_new_suggested` is true."""


@dataclass(frozen=True, slots=True)
class ParentInfo:
    workflow_id: str
    run_id: str


@dataclass(slots=True)
class Info:
    """The run as it was started. History length and time advance with the history."""

    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    namespace: str
    start_time: datetime
    attempt: int = 1
    parent: ParentInfo | None = None
    continued_run_id: str | None = None
    execution_timeout: timedelta | None = None
    run_timeout: timedelta | None = None
    priority: Priority = field(default_factory=Priority)
    memo: Mapping[str, Any] = field(default_factory=dict)
    search_attributes: Mapping[str, Any] = field(default_factory=dict)
    history_length: int = 0

    def get_current_history_length(self) -> int:
        return self.history_length

    def is_continue_as_new_suggested(self) -> bool:
        return self.history_length >= SUGGESTED_LENGTH


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


def info_of(place: PolledRun, started: HistoryEvent) -> Info:
    payload = started.payload
    parent_id, parent_run = payload.get("parent_workflow_instance_id"), payload.get("parent_workflow_run_id")
    return Info(
        workflow_id=place.workflow_id,
        run_id=place.run_id,
        workflow_type=place.workflow_type,
        task_queue=place.task_queue,
        namespace=place.namespace,
        start_time=started.at,
        attempt=int(payload.get("retry_attempt") or 1),
        parent=ParentInfo(str(parent_id), str(parent_run)) if parent_run else None,
        continued_run_id=payload.get("continued_from_run_id"),
        execution_timeout=_seconds(payload.get("execution_timeout_seconds")),
        run_timeout=_seconds(payload.get("run_timeout_seconds")),
        priority=_priority(payload, place.priority),
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
