"""Update validation by workflow code over HTTP, with short timeouts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.acceptance.cluster import Cluster, Hand, Json, Reply, value

SETTINGS = {
    "DW_QUERY_TASK_TIMEOUT": "3",
    "DW_QUERY_TASK_MAX_PENDING_PER_QUEUE": "2",
}
CONTRACTS = {"greeter": {"updates": ["rename"], "update_validators": ["rename"]}}
BOTH = ["workflow", "update_validation"]
_pending: set[asyncio.Task[Reply]] = set()


async def a_waiting_run(scene: Cluster, **worker: Any) -> Hand:
    """A run that waits, and the worker that validates its updates."""
    said = {"capabilities": ["update_validation_tasks"], "workflow_command_contracts": CONTRACTS} | worker
    hand = await scene.worker("w1", supported_workflow_types=["greeter"], **said)
    (await scene.start("run", input=["Ada"])).expect(201)
    task = await hand.take(task_kinds=BOTH)
    assert task["task_kind"] == "workflow"
    (await hand.decide(task, {"type": "open_condition_wait", "condition_key": "renamed"})).expect(200)
    return hand


def update(scene: Cluster, request_id: str = "u1", *arguments: Any) -> asyncio.Task[Reply]:
    body = {"input": [*arguments], "request_id": request_id}
    asked = asyncio.create_task(scene.post("/api/workflows/run/update/rename", body))
    _pending.add(asked)
    asked.add_done_callback(_pending.discard)
    return asked


async def say(hand: Hand, task: Json, word: str, **fields: Any) -> Reply:
    """Approve or reject an update."""
    lease = {"lease_owner": hand.worker_id, "update_validation_attempt": task["update_validation_attempt"]}
    path = f"/api/worker/update-validation-tasks/{task['update_validation_task_id']}/{word}"
    return await hand.cluster.post(path, lease | fields, role="worker")


async def test_an_update_is_validated_by_the_poll_for_workflow_tasks_and_then_applied(scene: Cluster):
    hand = await a_waiting_run(scene)
    asked = update(scene, "u1", "Grace")
    task = await hand.take(task_kinds=BOTH)
    assert (task["task_kind"], task["update_name"], task["workflow_id"]) == (
        "update_validation",
        "rename",
        "run",
    )
    assert (value(task["workflow_arguments"]), value(task["update_arguments"])) == (["Ada"], ["Grace"])
    assert [event["event_type"] for event in task["history_events"]] == [
        "WorkflowStarted",
        "ConditionWaitOpened",
    ]
    assert (await say(hand, task, "approve")).expect(200)["outcome"] == "approved"
    accepted = (await asked).expect(202)
    assert accepted["update_status"] == "accepted"
    applying = await hand.take(task_kinds=BOTH)
    assert (applying["task_kind"], applying["workflow_update_id"]) == ("workflow", accepted["update_id"])


async def test_an_update_that_is_rejected_leaves_no_trace(scene: Cluster):
    hand = await a_waiting_run(scene)
    before = await scene.event_types("run")
    asked = update(scene)
    task = await hand.take(task_kinds=BOTH)
    errors = {"name": ["is empty"]}
    failure = {"message": "no name", "reason": "update_validator_rejected", "validation_errors": errors}
    rejected = (await say(hand, task, "reject", failure=failure)).expect(200, "update_validator_rejected")
    assert rejected["outcome"] == "rejected"
    refused = (await asked).expect(422, "update_validator_rejected")
    assert (refused["message"], refused["validation_errors"]) == ("no name", errors)
    assert refused["control_plane"]["operation"] == "update"
    assert await scene.event_types("run") == before
    again = update(scene)
    (await say(hand, await hand.take(task_kinds=BOTH), "approve")).expect(200)
    (await again).expect(202)


async def test_a_worker_that_cannot_validate_says_so(scene: Cluster):
    hand = await a_waiting_run(scene)
    asked = update(scene)
    failure = {"message": "cannot replay", "reason": "update_validation_worker_failed"}
    task = await hand.take("update-validation")
    (await say(hand, task, "reject", failure=failure)).expect(200, "update_validation_worker_failed")
    refused = (await asked).expect(409, "update_validation_worker_failed")
    assert (refused["message"], refused["retryable"]) == ("cannot replay", False)


async def test_a_poll_that_names_no_kinds_gets_workflow_tasks_only(scene: Cluster):
    hand = await a_waiting_run(scene)
    asked = update(scene)
    task = await hand.take("update-validation")
    again = update(scene, "u2")
    assert (await hand.poll()).expect(200)["task"] is None
    (await say(hand, task, "approve")).expect(200)
    (await asked).expect(202)
    (await say(hand, await hand.take("update-validation"), "approve")).expect(200)
    (await again).expect(202)


async def test_an_update_that_nobody_takes_may_be_tried_again(scene: Cluster):
    await a_waiting_run(scene)
    assert (await update(scene)).expect(504, "update_validation_task_not_claimed")["retryable"] is True


async def test_an_update_that_somebody_took_and_forgot_may_be_tried_again(scene: Cluster):
    hand = await a_waiting_run(scene)
    asked = update(scene)
    task = await hand.take(task_kinds=BOTH)
    assert (await asked).expect(504, "update_validation_execution_timeout")["retryable"] is True
    (await say(hand, task, "approve")).expect(404, "update_validation_task_not_found")


async def test_so_many_updates_and_no_more_wait_to_be_validated(scene: Cluster):
    await a_waiting_run(scene)
    replies = await asyncio.gather(*(update(scene, f"u{n}") for n in range(5)))
    reasons = sorted(str(reply.reason) for reply in replies)
    assert reasons == [
        *["update_validation_task_not_claimed"] * 2,
        *["update_validator_worker_unavailable"] * 3,
    ]
    for reply in replies:
        assert reply["retryable"] is True


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        ({"capabilities": []}, "update_validation_capability_unsupported"),
        ({"build_id": "b2"}, "update_validator_worker_incompatible"),
    ],
)
async def test_an_update_is_refused_at_once_when_no_worker_could_validate_it(
    scene: Cluster, worker: Json, reason: str
):
    said: Json = {
        "capabilities": ["update_validation_tasks"],
        "workflow_command_contracts": CONTRACTS,
        "build_id": "b1",
    }
    await scene.worker("w1", supported_workflow_types=["greeter"], **(said | worker))
    (await scene.start("run", build_id="b1")).expect(201)
    (await update(scene)).expect(409, reason)


async def test_only_who_holds_a_validation_answers_it(scene: Cluster):
    hand = await a_waiting_run(scene)
    other = await scene.worker(
        "w2", supported_workflow_types=["greeter"], workflow_command_contracts=CONTRACTS
    )
    asked = update(scene)
    task = await hand.take(task_kinds=BOTH)
    (await say(other, task, "approve")).expect(409, "stale_update_validation_completion")
    late = task | {"update_validation_attempt": 7}
    (await say(hand, late, "approve")).expect(409, "stale_update_validation_completion")
    (await say(hand, task, "approve")).expect(200)
    again = await say(hand, task, "approve")
    assert again.reason in ("update_validation_task_not_leased", "update_validation_task_not_found")
    (await asked).expect(202)
