"""Queries: sent by clients, answered by workers."""

from __future__ import annotations

from typing import Any

from penstock.core.history.events import CODEC
from penstock.core.last_error import STACK_CHARS_MAX
from penstock.core.model import Blob, QueryState
from penstock.core.timestamps import iso
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.engine.messaging import queries
from penstock.engine.messaging.queries import QuerySubmission
from penstock.errors import Reason, Unavailable
from penstock.server.endpoints.messaging.query_polls import query_poll, requeue_query
from penstock.server.endpoints.workflows.addresses import address, scope
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import payloads
from penstock.wire.matching.tasks import worker_event
from penstock.wire.request_parser import field_error
from penstock.wire.requests import AnswerQueryTask, AskQuery, FailQueryTask, PollTasks
from penstock.wire.responses import envelope, readable


async def ask(call: OperationCall) -> Response:
    request: AskQuery = call.body
    bytes_max = call.ctx.settings.limits.operation_name_bytes_max
    name = text_path(call, "name", bytes_max)
    if len(name.encode()) > bytes_max:
        raise field_error("name", f"must be at most {bytes_max} bytes")
    target = address(call)
    arguments = Blob(payloads.parse(request.input, "input").blob)
    submission = QuerySubmission(
        target.namespace, target.workflow_id, name, arguments, target.run_id, target.chain
    )
    answer = await queries.ask(call.ctx, submission, call.dispatcher.draining)
    blob = answer.outcome.get("blob")
    return Response(
        {
            "workflow_id": answer.run.workflow_id,
            "run_id": answer.run.run_id,
            "target_scope": scope(target),
            "query_name": name,
            "result": answer.outcome["result"] if "result" in answer.outcome else readable(blob),
            "result_envelope": envelope(blob),
            "reason": None,
        }
    )


async def poll(call: OperationCall) -> Response:
    request: PollTasks = call.body
    try:
        leased = await queries.poll(
            call.ctx, query_poll(call, request), call.wait_ms, call.dispatcher.draining
        )
    except Unavailable as error:
        raise Unavailable(
            Reason.QUERY_TASK_QUEUE_UNAVAILABLE,
            error.message,
            task=None,
            poll_status="unavailable",
            namespace=call.namespace,
            task_queue=request.task_queue,
            retry_after_seconds=error.details.get("retry_after_seconds", 1),
        ) from error
    if leased is None:
        return Response({"task": None, "poll_status": "empty"})
    task = _task(leased, int((leased.lease_ends_at - call.arrived_at) * 1000))
    return Response({"task": task, "poll_status": "leased"}, on_undelivered=requeue_query(call, leased))


def _task(leased: LeasedQuery, lease_ends_after_ms: int) -> dict[str, Any]:
    query, run = leased.query, leased.run
    assert query.lease_expires_at_ms is not None
    return {
        "query_task_id": query.query_id,
        "query_task_attempt": query.attempt,
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "query_name": query.name,
        "payload_codec": CODEC,
        "workflow_arguments": envelope(run.input),
        "query_arguments": envelope(query.arguments),
        "history_events": [worker_event(event) for event in leased.events],
        "run_status": run.status.value,
        "last_history_sequence": run.last_sequence,
        "task_queue": query.task_queue,
        "lease_owner": query.lease_owner,
        "lease_expires_at": iso(query.lease_expires_at_ms),
        "lease_ends_after_ms": lease_ends_after_ms,
    }


async def answer(call: OperationCall) -> Response:
    request: AnswerQueryTask = call.body
    outcome: dict[str, Any] = {}
    if request.result is not None:
        outcome["result"] = request.result
    if request.result_envelope is not None:
        outcome["blob"] = payloads.parse_value(request.result_envelope, "result_envelope").blob
    elif request.result is None:
        outcome["result"] = None
    return await _report(
        call, request.lease_owner, request.query_task_attempt, QueryState.ANSWERED, outcome, "completed"
    )


async def fail(call: OperationCall) -> Response:
    request: FailQueryTask = call.body
    failure = request.failure
    outcome = {"message": failure.message, "reason": failure.reason, "type": failure.type}
    if failure.stack_trace:
        outcome["stack_trace"] = failure.stack_trace[-STACK_CHARS_MAX:]
    return await _report(
        call, request.lease_owner, request.query_task_attempt, QueryState.FAILED, outcome, "failed"
    )


async def _report(
    call: OperationCall, owner: str, attempt: int, state: QueryState, outcome: dict[str, Any], word: str
) -> Response:
    query_id = text_path(call, "query_task_id")
    done = await queries.report(call.ctx, call.namespace, query_id, owner, attempt, state, outcome)
    body = {"query_task_id": query_id, "query_task_attempt": done.attempt, "outcome": word}
    return Response(body | ({"reason": outcome.get("reason")} if state is QueryState.FAILED else {}))
