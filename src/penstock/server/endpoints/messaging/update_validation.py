"""Update validation: tasks are leased to workers, which approve or reject the update."""

from __future__ import annotations

from typing import Any

from penstock.core.model import QueryState
from penstock.engine.matching import update_validation
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.errors import Unavailable
from penstock.server.endpoints.messaging.query_polls import query_poll, requeue_query
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.messaging import update_validation as wire
from penstock.wire.messaging.update_validation import ApproveUpdate, RejectUpdate
from penstock.wire.requests import PollTasks


async def poll(call: OperationCall) -> Response:
    request: PollTasks = call.body
    try:
        leased = await update_validation.poll(
            call.ctx, query_poll(call, request), call.wait_ms, call.dispatcher.draining
        )
    except Unavailable as error:
        raise error.with_details(task=None, poll_status="unavailable") from error
    return Response({"task": None, "poll_status": "empty"}) if leased is None else task_response(call, leased)


def task_response(call: OperationCall, leased: LeasedQuery, *, batch: bool = False) -> Response:
    """The response to a poll that leased an update validation; requeued if it cannot be delivered."""
    ends_after_ms = int((leased.lease_ends_at - call.arrived_at) * 1000)
    task = wire.task(leased.query, leased.run, [*leased.events], ends_after_ms)
    body: dict[str, Any] = {"task": task, "poll_status": "leased"}
    return Response(body | {"tasks": [task]} if batch else body, on_undelivered=requeue_query(call, leased))


async def approve(call: OperationCall) -> Response:
    request: ApproveUpdate = call.body
    return await _report(call, request, QueryState.ANSWERED, {})


async def reject(call: OperationCall) -> Response:
    request: RejectUpdate = call.body
    failure = request.failure
    outcome = {
        "message": failure.message,
        "reason": failure.reason,
        "type": failure.type,
        "validation_errors": failure.validation_errors,
    }
    return await _report(call, request, QueryState.FAILED, outcome)


async def _report(
    call: OperationCall, request: ApproveUpdate, state: QueryState, outcome: dict[str, Any]
) -> Response:
    validation_id = text_path(call, "validation_id")
    done = await update_validation.report(
        call.ctx,
        call.namespace,
        validation_id,
        request.lease_owner,
        request.update_validation_attempt,
        state,
        outcome,
    )
    approved = state is QueryState.ANSWERED
    return Response(
        {
            "update_validation_task_id": validation_id,
            "update_validation_attempt": done.attempt,
            "outcome": "approved" if approved else "rejected",
            "reason": outcome.get("reason"),
        }
    )
