"""What reports on workflow tasks and on activity tasks have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.model import Task, TaskId
from penstock.core.scheduling.leases import lease_ends_after_ms
from penstock.errors import PenstockError, ValidationFailed
from penstock.server import rejected_reports
from penstock.server.endpoints.batch_requests import run_batch
from penstock.server.endpoints.pending_operation import PendingWork
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import strict_json
from penstock.wire.request_parser import UnknownField, parse, unknown_fields
from penstock.wire.requests import (
    ActivityLease,
    RequestModel,
    TaskLease,
)

HAND_BACK = "hand_back"
_COMMON_REPORT_FIELDS = frozenset({"task_id", "action"})
ReportsByAction = Mapping[
    str, tuple[type[RequestModel], Callable[[OperationCall, TaskId, Any, str], PendingWork]]
]
"""By the action of a report: its model, and what makes it a pending operation, given its task and digest."""


class TaskErrorDetails:
    """Adds the task to errors, as the contract requires, and logs those that a correct worker cannot cause."""

    def __init__(
        self, call: OperationCall, lease: TaskLease | ActivityLease, task_id: TaskId, **details: Any
    ) -> None:
        self._namespace, self._owner = call.namespace, lease.lease_owner
        self._details = {"task_id": task_id, **details}

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, PenstockError):
            raise self.add(error) from error

    def add(self, error: PenstockError) -> PenstockError:
        detailed = error.with_details(**self._details)
        rejected_reports.log_rejected_report(detailed, self._namespace, self._owner)
        return detailed


def lease_end(task: Task, renewed_at_ms: int | None) -> dict[str, int]:
    """When a renewed lease ends, in milliseconds since the worker sent its request, so that clocks may differ."""
    if task.lease_expires_at_ms is None or renewed_at_ms is None:
        return {}
    return {"lease_ends_after_ms": lease_ends_after_ms(task.lease_expires_at_ms, renewed_at_ms, 0)}


def path_task_id(call: OperationCall) -> TaskId:
    return TaskId(text_path(call, "task_id"))


async def run_reports(call: OperationCall, reports: ReportsByAction) -> Response:
    """Run a batch of reports, each by its `action`; a field that the model does not define only causes a warning."""

    def one(item: dict[str, Any]) -> PendingWork:
        task_id, action, digest = _parse_item(item)
        model, pending = reports[action]
        return pending(call, task_id, parse(item, model), digest)

    def ignored(item: dict[str, Any]) -> list[UnknownField]:
        action = item.get("action", "complete")
        found = reports.get(action) if isinstance(action, str) else None
        return [] if found is None else unknown_fields(item, found[0], _COMMON_REPORT_FIELDS)

    return await run_batch(call, one, ignored)


def _parse_item(item: dict[str, Any]) -> tuple[TaskId, str, str]:
    """Task id, action and digest of one report in a batch."""
    task_id, action = item.get("task_id"), item.get("action", "complete")
    if not isinstance(task_id, str) or not task_id or len(task_id) > 255 or not task_id.isprintable():
        raise ValidationFailed({"task_id": ["is required: the id of the task"]})
    if action not in ("complete", "fail", HAND_BACK):
        raise ValidationFailed({"action": ["must be complete, fail or hand_back"]})
    return TaskId(task_id), action, hashlib.sha256(strict_json.dumps(item)).hexdigest()


def without_nul(text: str) -> str:
    """Text as PostgreSQL can store it."""
    return text.replace("\x00", "\\x00")
