"""Descriptions of workflows and standalone activities as returned by a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from penstock.sdk.converters import DEFAULT, ConversionError, DataConverter
from penstock.sdk.search_attributes import TypedSearchAttributes, typed_attributes

Json = dict[str, Any]


class WorkflowExecutionStatus(StrEnum):
    """The status of a run."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CANCELED = "cancelled"
    TERMINATED = "terminated"
    TIMED_OUT = "timed_out"
    CONTINUED_AS_NEW = "continued"

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> WorkflowExecutionStatus:
        """Read the status of a response. The close reason is more specific than the status."""
        if not body.get("is_terminal"):
            return cls.RUNNING
        return cls(body.get("closed_reason") or body["status"])


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowExecution:
    """A run in a list."""

    id: str
    """The workflow id."""
    run_id: str
    run_number: int
    """1 for the first run of the id."""
    workflow_type: str
    namespace: str
    task_queue: str
    status: WorkflowExecutionStatus
    start_time: datetime
    close_time: datetime | None
    business_key: str | None
    memo: Mapping[str, Any]
    search_attributes: Mapping[str, Any]
    priority: int
    """Level 0 to 9; lower levels are dispatched first."""
    priority_key: int | None
    """1 to 5, for the levels 1, 3, 5, 7 and 9; None for a level between two keys."""
    fairness_key: str | None
    fairness_weight: float
    raw: Mapping[str, Any] = field(repr=False, compare=False)
    """The whole response, including fields without an attribute here."""

    @property
    def typed_search_attributes(self) -> TypedSearchAttributes:
        """The search attributes, to be read by their keys."""
        return typed_attributes(self.search_attributes)

    @classmethod
    def read(cls, body: Json) -> WorkflowExecution:
        """Read a run of a list response."""
        return cls(**execution_fields(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingActivity:
    """An activity that a run waits for."""

    activity_id: str
    activity_type: str
    summary: str | None
    attempt: int
    last_heartbeat_time: datetime | None
    heartbeat_details: Sequence[Any]
    """Details of its last heartbeat."""
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, body: Json, converter: DataConverter = DEFAULT) -> PendingActivity:
        return cls(
            activity_id=body["activity_execution_id"],
            activity_type=body["activity_type"],
            summary=body.get("summary"),
            attempt=body.get("attempt_count", 0),
            last_heartbeat_time=moment(body.get("last_heartbeat_at")),
            heartbeat_details=heartbeat_details(body.get("last_heartbeat"), converter),
            raw=body,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowExecutionDescription(WorkflowExecution):
    """The description of a run."""

    is_current_run: bool
    """Whether it is the latest run of its id."""
    run_count: int
    """Number of runs of its id."""
    history_length: int
    wait_kind: str | None
    """What the run waits for: an activity, a timer, a child, a worker and so on."""
    wait_reason: str | None
    """Why it waits, as text."""
    pending: Mapping[str, int]
    """Numbers of open activities, timers, children, updates and signals."""
    pending_activities: Sequence[PendingActivity]
    """The first activities that the run waits for."""
    build_id: str | None
    parent_id: str | None
    parent_run_id: str | None
    continued_from_run_id: str | None
    execution_deadline: datetime | None
    run_deadline: datetime | None

    @classmethod
    def read(cls, body: Json, converter: DataConverter = DEFAULT) -> WorkflowExecutionDescription:
        """Read a response that describes a run."""
        parent = body.get("parent") or {}
        return cls(
            **execution_fields(body),
            is_current_run=body["is_current_run"],
            run_count=body["run_count"],
            history_length=body.get("history_length", 0),
            wait_kind=body.get("wait_kind"),
            wait_reason=body.get("wait_reason"),
            pending=body.get("pending") or {},
            pending_activities=[
                PendingActivity.read(each, converter) for each in body.get("pending_activities") or ()
            ],
            build_id=body.get("compatibility"),
            parent_id=parent.get("workflow_id"),
            parent_run_id=parent.get("run_id"),
            continued_from_run_id=body.get("continued_from_run_id"),
            execution_deadline=moment(body.get("execution_deadline_at")),
            run_deadline=moment(body.get("run_deadline_at")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityExecutionDescription:
    """The description of a standalone activity."""

    id: str
    run_id: str
    activity_type: str
    namespace: str
    task_queue: str
    status: WorkflowExecutionStatus
    attempt: int
    """Number of attempts so far."""
    start_time: datetime
    close_time: datetime | None
    last_heartbeat_time: datetime | None
    heartbeat_details: Sequence[Any]
    """Details of its last heartbeat."""
    summary: str | None
    """Text for people, given with the start."""
    business_key: str | None
    priority: int
    """Level 0 to 9; lower levels are dispatched first."""
    priority_key: int | None
    """1 to 5, for the levels 1, 3, 5, 7 and 9; None for a level between two keys."""
    fairness_key: str | None
    fairness_weight: float
    worker_deaths: int
    """Number of workers that died while running it."""
    is_quarantined: bool
    """Whether it has failed because of them."""
    raw: Mapping[str, Any] = field(repr=False, compare=False)
    """The whole response, including fields without an attribute here."""

    @property
    def activity_id(self) -> str:
        """`id`, by its name in code for Temporal."""
        return self.id

    @property
    def activity_run_id(self) -> str:
        """`run_id`, by its name in code for Temporal."""
        return self.run_id

    @classmethod
    def read(cls, body: Json, converter: DataConverter = DEFAULT) -> ActivityExecutionDescription:
        """Read a response that describes an activity."""
        return cls(
            id=body["activity_id"],
            run_id=body["workflow_run_id"],
            activity_type=body["activity_type"],
            namespace=body["namespace"],
            task_queue=body["task_queue"],
            status=WorkflowExecutionStatus.read(body),
            attempt=body["attempt_count"],
            start_time=_moment(body["started_at"]),
            close_time=moment(body.get("closed_at")),
            last_heartbeat_time=moment(body.get("last_heartbeat_at")),
            heartbeat_details=heartbeat_details(body.get("last_heartbeat"), converter),
            summary=body.get("summary"),
            business_key=body.get("business_key"),
            priority=body["priority"],
            priority_key=body["priority_key"],
            fairness_key=body.get("fairness_key"),
            fairness_weight=body["fairness_weight"],
            worker_deaths=body.get("worker_deaths", 0),
            is_quarantined=body.get("is_quarantined", False),
            raw=body,
        )


@dataclass(frozen=True, slots=True)
class WorkflowExecutionCount:
    """The number of runs that match a query."""

    count: int
    complete: bool
    """False if there are more: counting all would have taken too long."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """By status, if requested."""


@dataclass(frozen=True, slots=True)
class WorkflowHistory:
    """All events of a run as received, for inspection, for files and for replay."""

    workflow_id: str
    run_id: str
    events: Sequence[Json] = field(repr=False)

    def to_json(self) -> str:
        return msgspec.json.encode(
            {"workflow_id": self.workflow_id, "run_id": self.run_id, "events": list(self.events)}
        ).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> WorkflowHistory:
        """Read the output of `to_json`, or an exported history.

        Args:
            text: the JSON text.
        """
        body = msgspec.json.decode(text)
        about = body.get("workflow") or {}
        return cls(
            body.get("workflow_id") or about["instance_id"],
            body.get("run_id") or about["run_id"],
            [
                each
                for each in (body["events"] if "events" in body else body["history_events"])
                if not each.get("derived")
            ],
        )


def execution_fields(body: Json) -> dict[str, Any]:
    return {
        "id": body["workflow_id"],
        "run_id": body["run_id"],
        "run_number": body["run_number"],
        "workflow_type": body["workflow_type"],
        "namespace": body["namespace"],
        "task_queue": body["task_queue"],
        "status": WorkflowExecutionStatus.read(body),
        "start_time": _moment(body["started_at"]),
        "close_time": moment(body.get("closed_at")),
        "business_key": body.get("business_key"),
        "memo": body.get("memo") or {},
        "search_attributes": body.get("search_attributes") or {},
        "priority": body["priority"],
        "priority_key": body["priority_key"],
        "fairness_key": body.get("fairness_key"),
        "fairness_weight": body["fairness_weight"],
        "raw": body,
    }


def heartbeat_details(body: object, converter: DataConverter) -> tuple[Any, ...]:
    """Decode heartbeat details; return them undecoded if that fails."""
    details = body.get("details") if isinstance(body, Mapping) else None
    if details is None:
        return ()
    if isinstance(details, Mapping) and "blob" in details:
        try:
            return tuple(converter.decode_arguments(dict(details), what="the last heartbeat"))
        except ConversionError:
            return (details,)
    return (details,)  # from a worker that sends plain JSON


def moment(text: str | None) -> datetime | None:
    return None if text is None else _moment(text)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
