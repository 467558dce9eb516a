"""Updates to be validated: leased to workers, approved or rejected by them."""

from __future__ import annotations

from typing import Any

from penstock.core.model import QueryState, TaskKind
from penstock.engine import desk, validation
from penstock.engine.desk import LeasedQuery
from penstock.engine.polls import Poll
from penstock.errors import Unavailable
from penstock.server.operation import Answer, Call, text_path
from penstock.wire import validation as wire
from penstock.wire.numbers import whole_ms
from penstock.wire.requests import PollTasks
from penstock.wire.validation import ApproveUpdate, RejectUpdate


async def poll(call: Call) -> Answer:
    request: PollTasks = call.body
    policy = call.house.settings.polls
    wait_ms = policy.poll_timeout_ms if request.timeout_seconds is None else request.timeout_seconds * 1000
    asked = Poll(call.namespace, request.worker_id, request.task_queue, TaskKind.WORKFLOW, request.build_id)
    try:
        leased = await validation.poll(
            call.house, asked, min(wait_ms, policy.poll_timeout_ms_max), call.dispatcher.draining
        )
    except Unavailable as refusal:
        raise refusal.with_details(task=None, poll_status="unavailable") from refusal
    return Answer({"task": None, "poll_status": "empty"}) if leased is None else given(call, leased)


def given(call: Call, leased: LeasedQuery, *, batch: bool = False) -> Answer:
    """The answer to a poll that got an update; if nobody is there to hear it, the update waits again."""
    ends_after_ms = whole_ms(leased.lease_ends_at - call.arrived_at)
    task = wire.task(leased.query, leased.run, [*leased.events], ends_after_ms)
    body: dict[str, Any] = {"task": task, "poll_status": "leased"}

    def give_back() -> None:
        call.dispatcher.undo(desk.hand_back(call.house, leased))

    return Answer(body | {"tasks": [task]} if batch else body, undelivered=give_back)


async def approve(call: Call) -> Answer:
    request: ApproveUpdate = call.body
    return await _report(call, request, QueryState.ANSWERED, {})


async def reject(call: Call) -> Answer:
    request: RejectUpdate = call.body
    failure = request.failure
    outcome = {
        "message": failure.message,
        "reason": failure.reason,
        "type": failure.type,
        "validation_errors": failure.validation_errors,
    }
    return await _report(call, request, QueryState.FAILED, outcome)


async def _report(call: Call, request: ApproveUpdate, state: QueryState, outcome: dict[str, Any]) -> Answer:
    validation_id = text_path(call, "validation_id")
    done = await validation.report(
        call.house,
        call.namespace,
        validation_id,
        request.lease_owner,
        request.update_validation_attempt,
        state,
        outcome,
    )
    approved = state is QueryState.ANSWERED
    return Answer(
        {
            "update_validation_task_id": validation_id,
            "update_validation_attempt": done.attempt,
            "outcome": "approved" if approved else "rejected",
            "reason": outcome.get("reason"),
        }
    )
