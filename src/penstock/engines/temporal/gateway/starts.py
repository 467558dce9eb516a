"""Starting workflows."""

from __future__ import annotations

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

_LACKS: Final = ("business_key", "build_id", "retry_policy", "concurrency_key", "unique_key")
_CONFLICT: Final = {
    "fail": Conflict.FAIL,
    "use_existing": Conflict.USE_EXISTING,
    "terminate_existing": Conflict.TERMINATE_EXISTING,
}


async def start(request: GatewayRequest) -> Json:
    service, made = request.client.workflow_service, StartWorkflowExecutionRequest
    with _in_use(request):
        return _started(
            request, await service.start_workflow_execution(made(**await _body(request)), retry=True)
        )


async def signal_with_start(request: GatewayRequest) -> Json:
    body, service = request.body, request.client.workflow_service
    signal = {
        "signal_name": body["signal_name"],
        "signal_input": await requests.payloads(plain_arguments(body["signal_input"])),
    }
    if body.get("id_conflict_policy") in (None, "fail"):
        body["id_conflict_policy"] = "use_existing"
    made = SignalWithStartWorkflowExecutionRequest(**await _body(request), **signal)
    with _in_use(request):
        return _started(request, await service.signal_with_start_workflow_execution(made, retry=True))


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


async def _body(request: GatewayRequest) -> dict[str, Any]:
    body = request.body
    request.refuse("a start", *_LACKS)
    return {
        **requests.sent_by(request.client, request.key),
        "workflow_id": body["workflow_id"],
        "workflow_type": WorkflowType(name=body["workflow_type"]),
        "task_queue": TaskQueue(name=body["task_queue"]),
        "input": await requests.payloads(plain_arguments(body.get("input"))),
        "workflow_id_reuse_policy": int(
            translated.reuse_policy(str(body.get("id_reuse_policy") or "allow_duplicate"))
        ),
        "workflow_id_conflict_policy": int(_CONFLICT[str(body.get("id_conflict_policy") or "fail")]),
        "memo": await requests.memo(body.get("memo")),
        "search_attributes": requests.search_attributes(
            translated.search_attributes(body.get("search_attributes"))
        ),
        "priority": requests.priority(body),
        **requests.durations(
            body,
            workflow_execution_timeout="execution_timeout",
            workflow_run_timeout="run_timeout",
            workflow_task_timeout="task_timeout",
            workflow_start_delay="start_delay",
        ),
    }


def _started(request: GatewayRequest, answer: Any) -> Json:
    return {
        "workflow_id": request.body["workflow_id"],
        "run_id": answer.run_id,
        "outcome": "started_new" if answer.started else "returned_existing",
    }


@contextmanager
def _in_use(request: GatewayRequest) -> Iterator[None]:
    """Raise the errors of a start as those of our server."""
    workflow_id = request.body["workflow_id"]
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
                "workflow_type": request.body["workflow_type"],
                "run_id": None if found is None else found.run_id,
            }
            raise refusal(409, body) from error
