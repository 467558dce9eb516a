"""Messages to workflows and their results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    RequestCancelWorkflowExecutionRequest,
    SignalWorkflowExecutionRequest,
)
from temporalio.client import (
    RPCTimeoutOrCancelledError,
    WorkflowContinuedAsNewError,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateStage,
)
from temporalio.service import RPCError, RPCStatusCode

from penstock.engines.temporal.definitions import REJECTED
from penstock.engines.temporal.failures import from_temporal
from penstock.engines.temporal.gateway import requests
from penstock.engines.temporal.gateway.context import GatewayRequest, Json, refusals
from penstock.engines.temporal.payloads import envelope_of, plain_arguments
from penstock.engines.temporal.port import READ_ONLY
from penstock.sdk.converters import DEFAULT
from penstock.sdk.failures import (
    ApplicationError,
    CancelledError,
    TerminatedError,
    failure_of,
    refusal,
)
from penstock.sdk.failures import TimeoutError as TimedOut

_NO_SERVER: Final = "connect error"
_QUERY_TIMEOUT: Final = timedelta(seconds=10)


async def result(request: GatewayRequest) -> Json:
    """Wait for the end of a workflow as long as the client asks, following its chain of runs."""
    run_id = request.names[1] if len(request.names) > 1 else None
    handle = request.client.get_workflow_handle(
        request.names[0],
        run_id=run_id or request.query.get("first_execution_run_id"),
    )
    what = f"Workflow {request.names[0]!r}"
    running: Json = {"is_terminal": False, "status": "running", "workflow_id": handle.id, "run_id": run_id}
    with refusals("instance_not_found", what):
        try:
            async with asyncio.timeout(float(request.query.get("wait_seconds") or 30)):
                value = await handle.result(follow_runs=run_id is None)
        except TimeoutError:
            return running
        except WorkflowFailureError as error:
            return running | _closed(error.cause)
        except WorkflowContinuedAsNewError:
            return running | {"is_terminal": True, "status": "completed", "closed_reason": "continued"}
    return running | {
        "is_terminal": True,
        "status": "completed",
        "closed_reason": "completed",
        "result_envelope": envelope_of(value),
    }


def _closed(cause: BaseException) -> Json:
    error = from_temporal(cause)
    status = "failed"
    for kind, name in (
        (CancelledError, "cancelled"),
        (TerminatedError, "terminated"),
        (TimedOut, "timed_out"),
    ):
        if isinstance(error, kind):
            status = name
    return {
        "is_terminal": True,
        "status": status,
        "closed_reason": status,
        "failure": failure_of(error, DEFAULT),
    }


async def signal(request: GatewayRequest) -> Json:
    """Send a signal. Its request id makes a repetition harmless."""
    *named, name = request.names
    with refusals("instance_not_found", f"Workflow {named[0]!r}"):
        await request.client.workflow_service.signal_workflow_execution(
            SignalWorkflowExecutionRequest(
                **requests.sent_by(request.client, request.body.get("request_id")),
                workflow_execution=_execution(named),
                signal_name=name,
                input=await requests.payloads(plain_arguments(request.body.get("input"))),
            ),
            retry=True,
        )
    return {"workflow_id": named[0], "outcome": "accepted"}


async def query(request: GatewayRequest) -> Json:
    handle = _addressed(request)
    name = request.names[-1]
    try:
        with refusals("instance_not_found", f"Workflow {handle.id!r}"):
            value = await handle.query(
                name, args=plain_arguments(request.body.get("input")), rpc_timeout=_QUERY_TIMEOUT
            )
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
        text = str(error)
        if READ_ONLY in text:
            raise refusal(409, {"reason": "query_workflow_state_unavailable", "message": text}) from error
        is_unknown = "expected but not found" in text
        reason = "rejected_unknown_query" if is_unknown else "query_rejected"
        body = {"reason": reason, "message": text, "failure": {"message": text}}
        raise refusal(409, body) from error
    except Exception as error:
        if _timed_out(error):
            message = f"No worker answered query {name!r} of workflow {handle.id!r} in time"
            raise refusal(504, {"reason": "query_worker_timeout", "message": message}) from error
        raise
    return {"result": value, "result_envelope": envelope_of(value)}


def _timed_out(error: BaseException | None) -> bool:
    cause = error.__cause__ if error is not None and not isinstance(error, RPCError) else error
    return (
        isinstance(cause, RPCError)
        and cause.status
        in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.UNAVAILABLE)
        and _NO_SERVER not in cause.message
    )


async def update(request: GatewayRequest) -> Json:
    """Send an update, or wait again for one that was sent: its id makes it the same."""
    handle, body = _addressed(request), request.body
    name, wait_s = request.names[-1], float(body.get("wait_timeout_seconds") or 30)
    with refusals("instance_not_found", f"Workflow {handle.id!r}"):
        try:
            async with asyncio.timeout(wait_s):
                started = await handle.start_update(
                    name,
                    args=plain_arguments(body.get("input")),
                    id=body["request_id"],
                    wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                )
                found: Json = {
                    "run_id": started.workflow_run_id,
                    "update_status": "accepted",
                    "result_envelope": None,
                }
                if body.get("wait_for") == "completed":
                    value = await started.result()
                    found |= {"update_status": "completed", "result_envelope": envelope_of(value)}
        except WorkflowUpdateFailedError as error:
            raise _update_refused(error) from error
        except (TimeoutError, RPCTimeoutOrCancelledError):
            return {"run_id": handle.run_id, "update_status": "accepted", "result_envelope": None}
    return found


def _update_refused(error: WorkflowUpdateFailedError) -> Exception:
    """Return the refusal: a rejection, or a failure."""
    cause: Any = from_temporal(error.cause)
    is_rejected = isinstance(cause, ApplicationError) and cause.type == REJECTED
    if is_rejected and cause.__cause__ is not None:
        cause = cause.__cause__
    reason = "update_validator_rejected" if is_rejected else "update_failed"
    message = str(getattr(cause, "message", cause))
    return refusal(422, {"reason": reason, "message": message, "failure": failure_of(cause, DEFAULT)})


async def cancel(request: GatewayRequest) -> Json:
    workflow_id = request.names[0]
    with refusals("instance_not_found", f"Workflow {workflow_id!r}"):
        await request.client.workflow_service.request_cancel_workflow_execution(
            RequestCancelWorkflowExecutionRequest(
                **requests.sent_by(request.client, request.body.get("request_id")),
                workflow_execution=_execution(request.names),
                first_execution_run_id=request.query.get("first_execution_run_id") or "",
                reason=request.body.get("reason") or "",
            ),
            retry=True,
        )
    return {"workflow_id": workflow_id, "outcome": "accepted"}


async def terminate(request: GatewayRequest) -> Json:
    handle = _handle(request, request.names)
    with refusals("instance_not_found", f"Workflow {handle.id!r}"):
        await handle.terminate(reason=request.body.get("reason"))
    return {"workflow_id": handle.id, "outcome": "accepted"}


def _addressed(request: GatewayRequest) -> WorkflowHandle[Any, Any]:
    """The run of a message: the last open part of its path is the name of the message."""
    return _handle(request, request.names[:-1])


def _execution(names: Sequence[str]) -> WorkflowExecution:
    return WorkflowExecution(workflow_id=names[0], run_id=names[1] if len(names) > 1 else "")


def _handle(request: GatewayRequest, names: Any) -> WorkflowHandle[Any, Any]:
    run_id = names[1] if len(names) > 1 else None
    first = None if run_id else request.query.get("first_execution_run_id")
    return request.client.get_workflow_handle(names[0], run_id=run_id, first_execution_run_id=first)
