"""Standalone activities: tasks of an app, and activities without a workflow."""

from __future__ import annotations

import asyncio
import base64
import uuid
from typing import Any, Final

from temporalio.api.common.v1 import ActivityType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import StartActivityExecutionRequest
from temporalio.client import ActivityExecutionStatus, ActivityFailureError
from temporalio.common import ActivityIDConflictPolicy as Conflict
from temporalio.common import ActivityIDReusePolicy as Reuse
from temporalio.service import RPCError, RPCStatusCode

from penstock.engines.temporal.failures import from_temporal
from penstock.engines.temporal.gateway import requests
from penstock.engines.temporal.gateway.context import GatewayRequest, Json, refusals, retry_policy_of
from penstock.engines.temporal.gateway.filters import visibility_query
from penstock.engines.temporal.options import UNLIMITED, retry_policy
from penstock.engines.temporal.payloads import envelope_of, plain_arguments
from penstock.engines.temporal.refusals import not_here
from penstock.sdk.converters import DEFAULT
from penstock.sdk.failures import CancelledError, ServerRefused, TerminatedError, failure_of, refusal
from penstock.sdk.failures import TimeoutError as TimedOut
from penstock.wire.requests import StartActivity

_REUSE: Final = {
    "allow_duplicate": Reuse.ALLOW_DUPLICATE,
    "allow_duplicate_failed_only": Reuse.ALLOW_DUPLICATE_FAILED_ONLY,
    "reject_duplicate": Reuse.REJECT_DUPLICATE,
}
_CONFLICT: Final = {"fail": Conflict.FAIL, "use_existing": Conflict.USE_EXISTING}
_CLOCKS: Final = (
    "start_to_close_timeout",
    "schedule_to_start_timeout",
    "schedule_to_close_timeout",
    "heartbeat_timeout",
    "start_delay",
)
_FIELDS: Final = frozenset(
    {
        *("activity_id", "activity_type", "task_queue", "input", "retry_policy", "on_lost_lease"),
        *(
            "routing_key",
            "dispatch",
        ),  # how its options were found: the options themselves are fields of their own
        *(f"{name}_{unit}" for name in _CLOCKS for unit in ("seconds", "ms")),
        *requests.PRIORITY_FIELDS,
        *requests.ID_FIELDS,
    }
)
ACTIVITY_STATUSES: Final = {
    ActivityExecutionStatus.RUNNING: "running",
    ActivityExecutionStatus.COMPLETED: "completed",
    ActivityExecutionStatus.FAILED: "failed",
    ActivityExecutionStatus.CANCELED: "cancelled",
    ActivityExecutionStatus.TERMINATED: "terminated",
    ActivityExecutionStatus.TIMED_OUT: "timed_out",
}


async def start(request: GatewayRequest) -> Json:
    body = request.parse(StartActivity, "a standalone activity", _FIELDS)
    activity_id = body.get("activity_id") or f"act-{uuid.uuid4()}"
    if body.get("on_lost_lease") == "redeliver":
        raise not_here("on_lost_lease='redeliver'", "an attempt whose worker died counts there")
    reuse, conflict = requests.id_policies(body)
    if conflict not in _CONFLICT:
        raise not_here(f"id_conflict_policy={conflict!r} of a standalone activity")
    clocks = requests.durations(body, **{name: name for name in _CLOCKS})
    if not clocks.keys() & {"start_to_close_timeout", "schedule_to_close_timeout"}:
        clocks |= requests.durations(
            {"unlimited_seconds": UNLIMITED.total_seconds()}, schedule_to_close_timeout="unlimited"
        )
    policies: Json = {
        "id_reuse_policy": int(_REUSE[reuse]),
        "id_conflict_policy": int(_CONFLICT[conflict]),
    }
    made = StartActivityExecutionRequest(
        **requests.sent_by(request.client, request.key),
        activity_id=activity_id,
        activity_type=ActivityType(name=body["activity_type"]),
        task_queue=TaskQueue(name=body["task_queue"]),
        input=await requests.payloads(plain_arguments(body.get("input"))),
        **policies,
        priority=requests.priority(body),
        **clocks,
    )
    retry_policy(retry_policy_of(body.get("retry_policy"))).apply_to_proto(made.retry_policy)
    with refusals("activity_not_found", f"Activity {activity_id!r}"):
        try:
            answer = await request.client.workflow_service.start_activity_execution(made, retry=True)
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                raise
            message = f"The activity id {activity_id!r} is in use"
            raise refusal(409, {"reason": "instance_already_started", "message": message}) from error
    return {
        "activity_id": activity_id,
        "workflow_run_id": answer.run_id,
        "outcome": "started_new" if answer.started else "returned_existing_active",
    }


async def start_many(request: GatewayRequest) -> Json:
    """Start one after the other: Temporal has no batch of starts."""
    items: list[Json] = []
    for body in request.body["items"]:
        one = GatewayRequest(request.client, (), body, {}, body.get("idempotency_key"))
        try:
            items.append({"http_status": 201} | await start(one))
        except ServerRefused as refused:
            items.append(
                {"http_status": refused.status, "reason": refused.reason, "message": refused.message}
            )
    return {"items": items}


async def result(request: GatewayRequest) -> Json:
    handle: Any = request.client.get_activity_handle(request.names[0], run_id=request.query.get("run_id"))
    running: Json = {"is_terminal": False, "status": "running", "activity_id": handle.id}
    with refusals("activity_not_found", f"Activity {handle.id!r}"):
        try:
            async with asyncio.timeout(float(request.query.get("wait_seconds") or 30)):
                value = await handle.result()
        except TimeoutError:
            return running
        except ActivityFailureError as error:
            return running | _closed(error.cause)
    return running | {"is_terminal": True, "status": "completed", "result_envelope": envelope_of(value)}


def _closed(cause: BaseException) -> Json:
    error = from_temporal(cause)
    names = {CancelledError: "cancelled", TerminatedError: "terminated", TimedOut: "timed_out"}
    status = next((name for kind, name in names.items() if isinstance(error, kind)), "failed")
    return {"is_terminal": True, "status": status, "failure": failure_of(error, DEFAULT)}


async def cancel(request: GatewayRequest) -> Json:
    handle: Any = request.client.get_activity_handle(request.names[0], run_id=request.query.get("run_id"))
    with refusals("activity_not_found", f"Activity {handle.id!r}"):
        await handle.cancel(reason=request.body.get("reason"))
    return {"activity_id": handle.id, "outcome": "accepted"}


async def describe(request: GatewayRequest) -> Json:
    handle: Any = request.client.get_activity_handle(request.names[0], run_id=request.query.get("run_id"))
    with refusals("activity_not_found", f"Activity {handle.id!r}"):
        found = await handle.describe()
    key = found.priority.priority_key or 3
    beat = found.last_heartbeat_time
    return _row(found) | {
        "attempt_count": found.attempt,
        "last_heartbeat_at": None if beat is None else beat.isoformat(),
        "priority": 2 * key - 1,
        "priority_key": key,
        "fairness_key": found.priority.fairness_key or None,
        "fairness_weight": found.priority.fairness_weight or 1.0,
    }


async def list_activities(request: GatewayRequest) -> Json:
    """List standalone activities, without the fields that only a description has."""
    token = request.query.get("next_page_token")
    same = {"attempt_count": 0, "priority": 5, "priority_key": 3, "fairness_weight": 1.0}
    page = request.client.list_activities(
        visibility_query(status=request.query.get("status"), of_workflows=False),
        page_size=int(request.query.get("page_size") or 100),
        next_page_token=base64.b64decode(token) if token else None,
    )
    with refusals("activity_not_found", "The list"):
        await page.fetch_next_page()
    following = base64.b64encode(page.next_page_token).decode() if page.next_page_token else None
    rows = [_row(each) | same for each in page.current_page or ()]
    return {"activities": rows, "next_page_token": following}


def _row(found: Any) -> Json:
    status = ACTIVITY_STATUSES.get(found.status, "running")
    closed = found.close_time
    return {
        "activity_id": found.activity_id,
        "workflow_run_id": found.activity_run_id,
        "activity_type": found.activity_type,
        "namespace": found.namespace,
        "task_queue": found.task_queue,
        "status": status,
        "closed_reason": None if status == "running" else status,
        "is_terminal": status != "running",
        "started_at": found.schedule_time.isoformat(),
        "closed_at": None if closed is None else closed.isoformat(),
    }
