"""Update validation: tasks are leased to workers, which approve or reject the update."""

from __future__ import annotations

from typing import Any

from penstock.core.model import QueryState, TaskKind
from penstock.engine.matching import query_tasks, update_validation
from penstock.engine.matching.claim import Poll
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.errors import Unavailable
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.messaging import update_validation as wire
from penstock.wire.messaging.update_validation import ApproveUpdate, RejectUpdate
from penstock.wire.numbers import whole_ms
from penstock.wire.requests import PollTasks


async def poll(call: OperationCall) -> Response:
    request: PollTasks = call.body
    policy = call.ctx.settings.polls
    wait_ms = policy.poll_timeout_ms if request.timeout_seconds is None else request.timeout_seconds * 1000
    poll_request = Poll(
        call.namespace, request.worker_id, request.task_queue, TaskKind.WORKFLOW, request.build_id
    )
    try:
        leased = await update_validation.poll(
            call.ctx, poll_request, min(wait_ms, policy.poll_timeout_ms_max), call.dispatcher.draining
        )
    except Unavailable as error:
        raise error.with_details(task=None, poll_status="unavailable") from error
    return Response({"task": None, "poll_status": "empty"}) if leased is None else task_response(call, leased)


def task_response(call: OperationCall, leased: LeasedQuery, *, batch: bool = False) -> Response:
    """The response to a poll that leased an update validation; requeued if it cannot be delivered."""
    ends_after_ms = whole_ms(leased.lease_ends_at - call.arrived_at)
    task = wire.task(leased.query, leased.run, [*leased.events], ends_after_ms)
    body: dict[str, Any] = {"task": task, "poll_status": "leased"}

    def give_back() -> None:
        call.dispatcher.undo(query_tasks.hand_back(call.ctx, leased))

    return Response(body | {"tasks": [task]} if batch else body, on_undelivered=give_back)


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
