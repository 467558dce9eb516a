"""Information about a running activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.sdk.converters import DataConverter
from penstock.sdk.priority import Priority, priority_in


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Namespace, task queue and name of a worker."""

    namespace: str
    task_queue: str
    identity: str


@dataclass(frozen=True, slots=True)
class ActivityInfo:
    activity_id: str
    activity_type: str
    attempt: int
    """1 for the first attempt."""
    workflow_id: str | None
    workflow_run_id: str | None
    workflow_type: str | None
    task_queue: str
    namespace: str
    task_id: str
    task_token: str
    """Identifies this attempt, for `Client.get_async_activity_handle`."""
    idempotency_key: str
    """The same for all attempts of this activity, and unique to it."""
    scheduled_time: datetime
    started_time: datetime
    heartbeat_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    schedule_to_close_timeout: timedelta | None = None
    heartbeat_details: Sequence[Any] = ()
    """Details of the last recorded heartbeat, including those of earlier attempts."""
    is_local: bool = False
    priority: Priority = field(default_factory=Priority)
    deadline: datetime | None = None
    """When the attempt is stopped, by the local clock."""

    @property
    def ids(self) -> dict[str, Any]:
        """The fields added to log records."""
        return {
            "activity_id": self.activity_id,
            "activity_type": self.activity_type,
            "attempt": self.attempt,
            "workflow_id": self.workflow_id,
            "workflow_run_id": self.workflow_run_id,
            "workflow_type": self.workflow_type,
            "task_queue": self.task_queue,
            "namespace": self.namespace,
        }

    @property
    def in_workflow(self) -> bool:
        """Whether a workflow called it. A standalone activity has none."""
        return self.workflow_id is not None

    @property
    def workflow_namespace(self) -> str | None:
        """The namespace of the workflow, which is that of the activity; None without a workflow."""
        return None if self.workflow_id is None else self.namespace

    @property
    def activity_run_id(self) -> str | None:
        """The run of a standalone activity; None for an activity of a workflow."""
        return self.workflow_run_id if self.workflow_id is None else None


Info = ActivityInfo
"""The name in code for Temporal."""


def info_of(
    task: Mapping[str, Any], worker: WorkerIdentity, converter: DataConverter, now: datetime
) -> ActivityInfo:
    """Create the info of a polled task. Durations are differences of server times, never of two clocks."""
    activity_id = str(task.get("activity_execution_id") or task["task_id"])
    started = _instant(task.get("started_at"))
    scheduled = _instant(task.get("scheduled_at"))
    begun = started or now
    start_to_close = _timeout(task, "start_to_close", started)
    schedule_to_close = _timeout(task, "schedule_to_close", scheduled)
    waited = started - scheduled if started and scheduled else timedelta(0)
    return ActivityInfo(
        activity_id=activity_id,
        activity_type=str(task["activity_type"]),
        attempt=int(task.get("attempt_number") or 1),
        workflow_id=task.get("workflow_id"),
        workflow_run_id=task.get("run_id"),
        workflow_type=task.get("workflow_type"),
        task_queue=str(task.get("task_queue") or worker.task_queue),
        namespace=worker.namespace,
        task_id=str(task["task_id"]),
        task_token=f"{activity_id}/{task.get('activity_attempt_id') or ''}",
        idempotency_key=str(task.get("idempotency_key") or activity_id),
        scheduled_time=scheduled or begun,
        started_time=begun,
        heartbeat_timeout=_timeout(task, "heartbeat", started),
        start_to_close_timeout=start_to_close,
        schedule_to_close_timeout=schedule_to_close,
        heartbeat_details=tuple(_details(task, converter)),
        priority=priority_in(task),
        deadline=_deadline(now, start_to_close, schedule_to_close, waited),
    )


def last_heartbeat_details(task: Mapping[str, Any]) -> Any:
    """Return the encoded details of the last heartbeat; None if there are none."""
    return task.get("heartbeat_details")


def _details(task: Mapping[str, Any], converter: DataConverter) -> list[Any]:
    details = last_heartbeat_details(task)
    if details is None:
        return []
    if isinstance(details, Mapping) and "blob" in details:
        return converter.decode_arguments(details, what="the last heartbeat")
    return [details]  # from a worker that sends plain JSON


def _timeout(task: Mapping[str, Any], name: str, begin: datetime | None) -> timedelta | None:
    policy: Mapping[str, Any] = task.get("retry_policy") or {}
    exact = policy.get(f"{name}_timeout_ms")
    if exact is not None:
        return timedelta(milliseconds=exact)
    end = _instant((task.get("deadlines") or {}).get(name))
    if end is not None and begin is not None:
        return end - begin
    seconds = policy.get(f"{name}_timeout")
    return timedelta(seconds=seconds) if seconds else None


def _deadline(
    now: datetime, start_to_close: timedelta | None, schedule_to_close: timedelta | None, waited: timedelta
) -> datetime | None:
    whole = None if schedule_to_close is None else schedule_to_close - waited
    left = [each for each in (start_to_close, whole) if each is not None]
    return now + min(left) if left else None


def _instant(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
