"""What can be known of a cluster, of its queues, and of why a run waits.

Temporal keeps no record of why a task was not dispatched. What it does know is put into words (pollers, backlog and
its age, attempts, the last failure, the next retry), and what it cannot know is said, not guessed.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.enums.v1 import DescribeTaskQueueMode, PendingActivityState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetSystemInfoRequest
from temporalio.client import ActivityExecutionStatus, WorkflowExecutionStatus

from penstock.engines.temporal.gateway.activities import ACTIVITY_STATUSES
from penstock.engines.temporal.gateway.context import GatewayRequest, Json, refusals
from penstock.engines.temporal.gateway.runs import STATUSES
from penstock.sdk.failures import refusal

_TYPES: Final = {
    "workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
}
UNKNOWN: Final = (
    "which rule holds a single task back: Temporal records none",
    "the place of a task in its queue, and the share of its fairness key",
)
"""What `why` cannot answer here."""


async def cluster_info(request: GatewayRequest) -> Json:
    with refusals("server_unreachable", "The server"):
        info = await request.client.workflow_service.get_system_info(GetSystemInfoRequest())
    return {
        "engine": "temporal",
        "version": info.server_version,
        "namespace": request.client.namespace,
        "control_plane": {"version": "2"},
    }


async def describe_queue(request: GatewayRequest) -> Json:
    name = request.names[0]
    kinds = {kind: await _described(request, name, kind) for kind in _TYPES}
    pollers = [
        {
            "worker_id": identity,
            "status": "active",
            "is_stale": False,
            "kinds": found[0],
            "last_poll_at": found[1],
        }
        for identity, found in _pollers(kinds).items()
    ]
    backlog = {kind: each.stats.approximate_backlog_count for kind, each in kinds.items()}
    age = max(each.stats.approximate_backlog_age.ToMilliseconds() for each in kinds.values()) / 1000
    return {
        "name": name,
        "engine": "temporal",
        "namespace": request.client.namespace,
        "stats": {
            "approximate_backlog_count": sum(backlog.values()),
            "approximate_backlog_age_seconds": age,
            "workflow_tasks": {"ready_count": backlog["workflow"]},
            "activity_tasks": {"ready_count": backlog["activity"]},
            "pollers": {"active_count": len(pollers), "stale_count": 0},
            "tasks_added_last_minute": round(60 * sum(each.stats.tasks_add_rate for each in kinds.values())),
            "tasks_dispatched_last_minute": round(
                60 * sum(each.stats.tasks_dispatch_rate for each in kinds.values())
            ),
        },
        "pollers": pollers,
        "rate_limit": _rate(kinds["activity"]),
        "unknown": list(UNKNOWN),
    }


async def _described(request: GatewayRequest, name: str, kind: str) -> Any:
    with refusals("queue_not_found", f"Task queue {name!r}"):
        return await request.client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=request.client.namespace,
                task_queue=TaskQueue(name=name),
                task_queue_type=_TYPES[kind],
                api_mode=DescribeTaskQueueMode.DESCRIBE_TASK_QUEUE_MODE_UNSPECIFIED,
                report_stats=True,
                report_config=True,
            )
        )


def _pollers(kinds: dict[str, Any]) -> dict[str, tuple[list[str], str]]:
    found: dict[str, tuple[list[str], str]] = {}
    for kind, described in kinds.items():
        for poller in described.pollers:
            seen = poller.last_access_time.ToDatetime().replace(tzinfo=UTC).isoformat()
            known = found.setdefault(poller.identity, ([], seen))[0]
            found[poller.identity] = ([*known, kind], seen)
    return found


def _rate(described: Any) -> Json | None:
    """Return the rate limit of a queue that an operator has set. Those of workers are not reported."""
    limit = described.config.queue_rate_limit.rate_limit
    return {"per_second": limit.requests_per_second} if limit.requests_per_second else None


async def why(request: GatewayRequest) -> Json:
    """Explain what a run waits for, as far as its cluster knows."""
    run_id = request.names[1] if len(request.names) > 1 else None
    handle = request.client.get_workflow_handle(request.names[0], run_id=run_id)
    with refusals("instance_not_found", f"Workflow {request.names[0]!r}"):
        found = await handle.describe()
    base: Json = {
        "workflow_id": found.id,
        "run_id": found.run_id,
        "engine": "temporal",
        "unknown": list(UNKNOWN),
    }
    if found.status is not WorkflowExecutionStatus.RUNNING:
        status = STATUSES.get(found.status, "closed") if found.status is not None else "closed"
        return base | {"waits": False, "summary": f"It does not wait: it is {status}.", "findings": []}
    raw = found.raw_description
    findings = [await _activity(request, found.task_queue, each) for each in raw.pending_activities]
    findings += [
        {"kind": "child", "message": f"child workflow {each.workflow_id} ({each.workflow_type_name}) is open"}
        for each in raw.pending_children
    ]
    if raw.HasField("pending_workflow_task"):
        findings.insert(0, await _workflow_task(request, found.task_queue, raw.pending_workflow_task))
    if not findings:
        findings = [{"kind": "code", "message": "its code waits for a timer, a signal or an update"}]
    return base | {"waits": True, "summary": findings[0]["message"], "findings": findings}


async def why_activity(request: GatewayRequest) -> Json:
    """Explain what a standalone activity waits for."""
    handle: Any = request.client.get_activity_handle(request.names[0], run_id=request.query.get("run_id"))
    with refusals("activity_not_found", f"Activity {request.names[0]!r}"):
        found = await handle.describe()
    base: Json = {"activity_id": found.activity_id, "engine": "temporal", "unknown": list(UNKNOWN)}
    if found.status is not ActivityExecutionStatus.RUNNING:
        status = ACTIVITY_STATUSES[found.status]
        return base | {"waits": False, "summary": f"It does not wait: it is {status}.", "findings": []}
    described = await _described(request, found.task_queue, "activity")
    if found.last_started_time is not None and found.next_attempt_schedule_time is None:
        message = f"it runs on {found.last_worker_identity or 'a worker'}, attempt {found.attempt}"
    elif not described.pollers:
        message = f"no worker polls the task queue {found.task_queue} for activities"
    else:
        message = f"it waits in {found.task_queue}, which {len(described.pollers)} workers poll"
    return base | {"waits": True, "summary": message, "findings": [{"kind": "activity", "message": message}]}


async def no_task(request: GatewayRequest) -> Json:
    """Tasks have no ids of their own on Temporal."""
    raise refusal(404, {"reason": "task_not_found", "message": f"There is no task {request.names[0]!r}"})


async def _workflow_task(request: GatewayRequest, queue: str, task: Any) -> Json:
    described = await _described(request, queue, "workflow")
    if task.attempt > 1:
        return {
            "kind": "workflow_task",
            "message": f"its workflow task has failed and is tried again, attempt {task.attempt}",
        }
    if not described.pollers:
        return {"kind": "no_worker", "message": f"no worker polls the task queue {queue} for workflow tasks"}
    return {"kind": "workflow_task", "message": f"a workflow task waits in {queue}, or a worker runs it"}


async def _activity(request: GatewayRequest, home: str, activity: Any) -> Json:
    name, state = activity.activity_type.name, activity.state
    who = f"activity {name} ({activity.activity_id})"
    body: Json = {"kind": "activity", "activity_id": activity.activity_id, "attempt": activity.attempt}
    if state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED:
        by = activity.last_worker_identity or "a worker"
        return body | {"message": f"{who} runs on {by}, attempt {activity.attempt}"}
    failure = activity.last_failure.message
    due = activity.scheduled_time.ToDatetime().replace(tzinfo=UTC)
    if failure and due > datetime.fromtimestamp(time.time(), UTC):
        return body | {
            "message": f"{who} failed and is tried again at {due.isoformat(timespec='seconds')}: {failure}"
        }
    queue = activity.activity_options.task_queue.name or home
    described = await _described(request, queue, "activity")
    if not described.pollers:
        return body | {"kind": "no_worker", "message": f"{who} waits: no worker polls {queue} for activities"}
    return body | {
        "message": f"{who} waits in {queue}, which {len(described.pollers)} workers poll; Temporal does not say why"
    }
