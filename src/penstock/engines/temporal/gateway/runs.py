"""Runs of workflows: descriptions, lists and histories."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import WorkflowExecution as ProtoExecution
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    GetWorkflowExecutionHistoryRequest,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus

from penstock.core.timestamps import iso
from penstock.engines.temporal.gateway.context import GatewayRequest, Json, refusals
from penstock.engines.temporal.gateway.filters import visibility_query
from penstock.engines.temporal.gateway.requests import shown_attributes
from penstock.engines.temporal.payloads import CONVERTER
from penstock.engines.temporal.refusals import not_here

STATUSES: Final = {
    WorkflowExecutionStatus.RUNNING: "running",
    WorkflowExecutionStatus.COMPLETED: "completed",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.CONTINUED_AS_NEW: "continued",
    WorkflowExecutionStatus.TIMED_OUT: "timed_out",
}
_STATUS_NAMES: Final = {str(int(each)): name for each, name in STATUSES.items()}
_CLOSING: Final = {
    "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED": "WorkflowCompleted",
    "EVENT_TYPE_WORKFLOW_EXECUTION_FAILED": "WorkflowFailed",
    "EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED": "WorkflowCancelled",
    "EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED": "WorkflowTerminated",
    "EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT": "WorkflowTimedOut",
    "EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW": "WorkflowContinuedAsNew",
}
_LEVELS: Final = {1: 1, 2: 3, 3: 5, 4: 7, 5: 9}
"""Levels of our scale by priority key."""


async def describe(request: GatewayRequest) -> Json:
    names = request.names
    run_id = names[1] if len(names) > 1 else None
    handle = request.client.get_workflow_handle(names[0], run_id=run_id)
    with refusals("instance_not_found", f"Workflow {names[0]!r}"):
        found = await handle.describe()
    raw = found.raw_description
    pending = [await _pending(each) for each in raw.pending_activities]
    counts = {"activities": len(raw.pending_activities), "children": len(raw.pending_children)}
    config = raw.execution_config
    return await execution(found) | {
        "is_current_run": run_id is None,
        "run_count": 1,
        "history_length": found.history_length,
        "wait_kind": "activity" if pending else None,
        "wait_reason": None,
        "pending": counts,
        "pending_activities": pending,
        "parent": None
        if found.parent_id is None
        else {"workflow_id": found.parent_id, "run_id": found.parent_run_id},
        "execution_timeout_seconds": config.workflow_execution_timeout.ToSeconds() or None,
        "engine": "temporal",
    }


async def _pending(activity: Any) -> Json:
    beat = activity.last_heartbeat_time
    details = await CONVERTER.decode(activity.heartbeat_details.payloads)
    return {
        "activity_execution_id": activity.activity_id,
        "activity_type": activity.activity_type.name,
        "attempt_count": activity.attempt,
        "last_heartbeat_at": iso(beat.ToMilliseconds()) if beat.seconds else None,
        "last_heartbeat": {"details": details[0] if len(details) == 1 else details} if details else None,
        "last_failure": activity.last_failure.message or None,
        "state": PendingActivityState.Name(activity.state).removeprefix("PENDING_ACTIVITY_STATE_").lower(),
        "last_worker": activity.last_worker_identity or None,
    }


async def execution(found: WorkflowExecution) -> Json:
    """Return a run as our lists and descriptions have it."""
    status = STATUSES[found.status] if found.status is not None else "running"
    closed = found.close_time
    given = found.raw_info.priority
    key = given.priority_key or 3
    return {
        "workflow_id": found.id,
        "run_id": found.run_id,
        "run_number": 1,
        "workflow_type": found.workflow_type,
        "namespace": found.namespace,
        "task_queue": found.task_queue,
        "status": status,
        "closed_reason": None if status == "running" else status,
        "is_terminal": status != "running",
        "started_at": found.start_time.isoformat(),
        "closed_at": None if closed is None else closed.isoformat(),
        "business_key": None,
        "memo": dict(await found.memo()),
        "search_attributes": shown_attributes(found.typed_search_attributes),
        "priority": _LEVELS[key],
        "priority_key": key,
        "fairness_key": given.fairness_key or None,
        "fairness_weight": given.fairness_weight or 1.0,
    }


async def list_runs(request: GatewayRequest) -> Json:
    """List runs. The query is Temporal's: `WorkflowType = 'Order' AND ExecutionStatus = 'Running'`."""
    token = request.query.get("next_page_token")
    with refusals("instance_not_found", "The list"):
        page = await request.client.workflow_service.list_workflow_executions(
            ListWorkflowExecutionsRequest(
                namespace=request.client.namespace,
                query=_query(request),
                page_size=int(request.query.get("page_size") or 100),
                next_page_token=base64.b64decode(token) if token else b"",
            )
        )
    rows = []
    for info in page.executions:
        found = WorkflowExecution._from_raw_info(info, request.client.namespace, CONVERTER)
        rows.append(await execution(found))
    following = base64.b64encode(page.next_page_token).decode() if page.next_page_token else None
    return {"workflows": rows, "next_page_token": following}


def _query(request: GatewayRequest) -> str:
    query = request.query
    return visibility_query(
        query.get("query"), status=query.get("status"), workflow_type=query.get("workflow_type")
    )


async def count_runs(request: GatewayRequest) -> Json:
    query = _query(request)
    grouped = request.query.get("group_by") == "status"
    with refusals("instance_not_found", "The count"):
        found = await request.client.workflow_service.count_workflow_executions(
            CountWorkflowExecutionsRequest(
                namespace=request.client.namespace,
                query=f"{query} GROUP BY ExecutionStatus".strip() if grouped else query,
            )
        )
    groups = {
        json.loads(group.group_values[0].data).lower(): group.count for group in found.groups if grouped
    }
    return {"count": found.count, "complete": True, "groups": groups}


async def history(request: GatewayRequest) -> Json:
    """Return the events of a run as Temporal has them. They are for reading: no other engine can replay them."""
    if request.query.get("wait_new_event") in (True, "true"):
        raise not_here("following a history", "use `temporal workflow show --follow`")
    seen = (
        int(base64.b64decode(request.query["next_page_token"])) if "next_page_token" in request.query else 0
    )
    events: list[Json] = []
    token = b""
    with refusals("run_not_found", f"Run {request.names[1]!r}"):
        while True:
            page = await request.client.workflow_service.get_workflow_execution_history(
                GetWorkflowExecutionHistoryRequest(
                    namespace=request.client.namespace,
                    execution=ProtoExecution(workflow_id=request.names[0], run_id=request.names[1]),
                    next_page_token=token,
                )
            )
            events += [_event(each) for each in page.history.events if each.event_id > seen]
            token = page.next_page_token
            if not token:
                return {"events": events, "next_page_token": None}


def _event(event: Any) -> Json:
    name = EventType.Name(event.event_type)
    body = MessageToDict(event)
    attributes: Json = next((value for key, value in body.items() if key.endswith("EventAttributes")), {})
    return {
        "sequence": event.event_id,
        "event_type": _CLOSING.get(name, name.removeprefix("EVENT_TYPE_")),
        "timestamp": event.event_time.ToDatetime().isoformat() + "+00:00",
        "payload": attributes,
    }
