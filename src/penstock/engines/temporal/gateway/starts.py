"""Starting workflows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowType
from temporalio.api.errordetails.v1 import WorkflowExecutionAlreadyStartedFailure
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    SignalWithStartWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
)
from temporalio.common import WorkflowIDConflictPolicy as Conflict
from temporalio.service import RPCError, RPCStatusCode

from penstock.engines.temporal import options as translated
from penstock.engines.temporal.gateway import requests
from penstock.engines.temporal.gateway.context import GatewayRequest, Json, refusals
from penstock.engines.temporal.payloads import plain_arguments
from penstock.sdk.failures import ServerRefused, refusal
from penstock.wire.requests import SignalWithStart, StartWorkflow

_FIELDS: Final = frozenset(
    {
        *(
            "workflow_id",
            "workflow_type",
            "task_queue",
            "input",
            "memo",
            "search_attributes",
            "deliver_cancel",
        ),
        *("execution_timeout_seconds", "run_timeout_seconds", "start_delay_seconds", "start_delay_ms"),
        *requests.PRIORITY_FIELDS,
        *requests.ID_FIELDS,
    }
)
_SIGNAL_FIELDS: Final = frozenset({"signal_name", "signal_input", "signal_request_id"})
_QUEUE: Final = "default"
"""The task queue of a start that names none, as on our server."""
_CONFLICT: Final = {
    "fail": Conflict.FAIL,
    "use_existing": Conflict.USE_EXISTING,
    "terminate_existing": Conflict.TERMINATE_EXISTING,
}


async def start(request: GatewayRequest) -> Json:
    body = request.parse(StartWorkflow, "a start", _FIELDS)
    made = StartWorkflowExecutionRequest(**await _made(request, body))
    with _in_use(body["workflow_id"], body["workflow_type"]):
        answer = await request.client.workflow_service.start_workflow_execution(made, retry=True)
    return _started(body, answer)


async def signal_with_start(request: GatewayRequest) -> Json:
    body = request.parse(SignalWithStart, "a start", _FIELDS | _SIGNAL_FIELDS)
    if body.get("id_conflict_policy") in (None, "fail"):
        body["id_conflict_policy"] = "use_existing"
    signal = {
        "signal_name": body["signal_name"],
        "signal_input": await requests.payloads(plain_arguments(body.get("signal_input"))),
    }
    made = SignalWithStartWorkflowExecutionRequest(**await _made(request, body), **signal)
    with _in_use(body["workflow_id"], body["workflow_type"]):
        answer = await request.client.workflow_service.signal_with_start_workflow_execution(made, retry=True)
    return _started(body, answer)


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
                | dict(refused.details)
            )
    return {"items": items}


async def _made(request: GatewayRequest, body: Json) -> dict[str, Any]:
    """Return the fields of Temporal's request. An id that the body has none of is generated, and put into it."""
    body.setdefault("workflow_id", f"wf-{uuid.uuid4()}")
    reuse, conflict = requests.id_policies(body)
    return {
        **requests.sent_by(request.client, request.key),
        "workflow_id": body["workflow_id"],
        "workflow_type": WorkflowType(name=body["workflow_type"]),
        "task_queue": TaskQueue(name=body.get("task_queue") or _QUEUE),
        "input": await requests.payloads(plain_arguments(body.get("input"))),
        "workflow_id_reuse_policy": int(translated.reuse_policy(reuse)),
        "workflow_id_conflict_policy": int(_CONFLICT[conflict]),
        "memo": await requests.memo(body.get("memo")),
        "search_attributes": requests.search_attributes(
            translated.search_attributes(body.get("search_attributes"))
        ),
        "priority": requests.priority(body),
        **requests.durations(
            body,
            workflow_execution_timeout="execution_timeout",
            workflow_run_timeout="run_timeout",
            workflow_start_delay="start_delay",
        ),
    }


def _started(body: Json, answer: Any) -> Json:
    return {
        "workflow_id": body["workflow_id"],
        "run_id": answer.run_id,
        "workflow_type": body["workflow_type"],
        "outcome": "started_new" if answer.started else "returned_existing_active",
    }


@contextmanager
def _in_use(workflow_id: str, workflow_type: str) -> Iterator[None]:
    """Raise the errors of a start as those of our server."""
    with refusals("instance_not_found", f"Workflow {workflow_id!r}"):
        try:
            yield
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                raise
            found = requests.unpacked(error, WorkflowExecutionAlreadyStartedFailure())
            body = {
                "reason": "instance_already_started",
                "message": f"The workflow id {workflow_id!r} is in use",
                "workflow_id": workflow_id,
                "workflow_type": workflow_type,
                "run_id": None if found is None else found.run_id,
            }
            raise refusal(409, body) from error
