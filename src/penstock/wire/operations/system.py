"""Requests and responses of the system operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta

from penstock.core.model import Run, RunStatus, Task
from penstock.core.operations.run_counts import ClosedRuns, FailingType, OpenRuns, PurgedRows
from penstock.core.timestamps import iso_or_none
from penstock.wire.fields import Name, RequestId, WorkflowId
from penstock.wire.requests import RequestModel

Body = dict[str, Any]

AT_ONCE_MAX: Final = 100
TYPES_SHOWN: Final = 50
Limit = Annotated[int, Meta(ge=1, le=AT_ONCE_MAX)]
Ids = Annotated[list[Annotated[str, Meta(min_length=1, max_length=128)]], Meta(max_length=AT_ONCE_MAX)]


class ReadDebug(RequestModel):
    include_last_event_payload: bool = False


class RepairRun(RequestModel):
    request_id: RequestId | None = None


class ScanParameters(RequestModel):
    """The number of results; at most 100."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = AT_ONCE_MAX

    @property
    def most(self) -> int:
        return min(self.limit, AT_ONCE_MAX)


class RepairPass(RequestModel):
    run_ids: Ids | None = None
    instance_id: WorkflowId | None = None


class TimeoutPass(RequestModel):
    limit: Limit | None = None
    execution_ids: Annotated[list[Name], Meta(max_length=AT_ONCE_MAX)] | None = None


class RetentionPass(RequestModel):
    limit: Limit | None = None
    run_ids: Ids | None = None


def failing(found: Sequence[FailingType], *, truncated: bool) -> Body:
    """Workflow types whose tasks fail repeatedly; a bounded number of types."""
    listed, left_out = found[:TYPES_SHOWN], found[TYPES_SHOWN:]
    return {
        "max_consecutive_failures": max((each.failures_most for each in found), default=0),
        "failed_task_count": sum(each.runs for each in found),
        "workflow_type_count": len(found),
        "workflow_type_limit": TYPES_SHOWN,
        "workflow_types_truncated": bool(left_out) or truncated,
        "suppressed_workflow_type_count": len(left_out),
        "suppressed_failed_task_count": sum(each.runs for each in left_out),
        "label_cardinality_policy": "bounded",
        "by_workflow_type": [
            {
                "workflow_type": each.workflow_type,
                "max_consecutive_failures": each.failures_most,
                "failed_task_count": each.runs,
            }
            for each in listed
        ],
    }


NO_DRIFT: Final[Body] = {
    "total": 0,
    "table_count": 0,
    "tables_with_drift": 0,
    "scope": "server",
    "label_cardinality_policy": "bounded",
    "by_table": [],
}
"""The repair view of a namespace. There is no drift: counts are read from the authoritative rows."""


def runs(open_: OpenRuns, closed: ClosedRuns, most: int, repair_needed: int) -> Body:
    return {
        "total": open_.count + closed.count,
        "current": open_.count,
        "pending": open_.by_status.get(RunStatus.PENDING, 0),
        "running": open_.by_status.get(RunStatus.RUNNING, 0),
        "waiting": open_.by_status.get(RunStatus.WAITING, 0),
        "completed": closed.by_status.get(RunStatus.COMPLETED, 0),
        "failed": closed.by_status.get(RunStatus.FAILED, 0),
        "cancelled": closed.by_status.get(RunStatus.CANCELLED, 0),
        "terminated": closed.by_status.get(RunStatus.TERMINATED, 0),
        "archived": closed.archived,
        "blocked": open_.blocked,
        "failing": open_.failing,
        "repair_needed": repair_needed,
        "counted_at_most": most,
        "is_truncated": open_.count >= most or closed.count >= most,
    }


def candidates(
    tasks: Sequence[Task],
    stranded: Sequence[Run],
    now_ms: int,
    limit: int,
    *,
    more_tasks: bool,
    more_runs: bool,
) -> Body:
    oldest_task = min((task.lease_expires_at_ms or now_ms for task in tasks), default=None)
    oldest_run = min((run.started_at_ms for run in stranded), default=None)
    return {
        "existing_task_candidates": len(tasks),
        "missing_task_candidates": len(stranded),
        "total_candidates": len(tasks) + len(stranded),
        "scan_limit": limit,
        "scan_strategy": "oldest_first",
        "selected_existing_task_candidates": len(tasks),
        "selected_missing_task_candidates": len(stranded),
        "selected_total_candidates": len(tasks) + len(stranded),
        "existing_task_scan_limit_reached": more_tasks,
        "missing_task_scan_limit_reached": more_runs,
        "scan_pressure": more_tasks or more_runs,
        "oldest_task_candidate_created_at": iso_or_none(oldest_task),
        "oldest_missing_run_started_at": iso_or_none(oldest_run),
        "max_task_candidate_age_ms": 0 if oldest_task is None else now_ms - oldest_task,
        "max_missing_run_age_ms": 0 if oldest_run is None else now_ms - oldest_run,
        "scopes": [],
    }


def pruned(run_id: str, outcome: str, cleared: PurgedRows, reason: str | None) -> Body:
    body: Body = {"run_id": run_id, "outcome": outcome}
    if reason is not None:
        return body | {"reason": reason}
    return body | {
        "history_events_deleted": cleared.events,
        "tasks_deleted": cleared.tasks,
        "activities_deleted": cleared.activities,
        "timers_deleted": cleared.timers,
        "external_payloads_deleted": 0,
    }
