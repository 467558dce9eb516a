"""Queries over HTTP: sent to one server, answered through another, bounded, never recorded."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.wire import payloads
from tests.acceptance.cluster import Cluster, Hand, Json, value

SETTINGS = {"DW_QUERY_TASK_TIMEOUT": "4", "DW_QUERY_TASK_MAX_PENDING_PER_QUEUE": "3"}


async def a_waiting_run(scene: Cluster) -> Hand:
    """A run that waits for a timer, and the worker that put it there."""
    hand = await scene.worker("w1", supported_workflow_types=["greeter"])
    (await scene.start("order-1", input=["ada"])).expect(201)
    (await hand.decide(await hand.take(), {"type": "start_timer", "delay_seconds": 600})).expect(200)
    return hand


def ask(scene: Cluster, name: str = "state", **fields: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(scene.post(f"/api/workflows/order-1/query/{name}", fields))


async def answer(hand: Hand, task: Json, **fields: Any) -> Any:
    path = f"/api/worker/query-tasks/{task['query_task_id']}/complete"
    held = {"lease_owner": hand.worker_id, "query_task_attempt": task["query_task_attempt"]}
    return await hand.cluster.post(path, held | fields, role="worker")


async def test_a_query_is_answered_by_a_worker_and_leaves_no_trace_in_the_history(scene: Cluster):
    hand = await a_waiting_run(scene)
    before = await scene.event_types("order-1")
    asked = ask(scene, input=[7])
    task = await hand.take("query")
    assert (task["query_name"], task["workflow_id"]) == ("state", "order-1")
    assert (value(task["query_arguments"]), value(task["workflow_arguments"])) == ([7], ["ada"])
    assert (task["task_queue"], task["lease_owner"]) == ("q", "w1")
    assert [event["event_type"] for event in task["history_events"]] == before
    envelope = payloads.encode({"total": 3}).envelope()
    (await answer(hand, task, result={"total": 3}, result_envelope=envelope)).expect(200)
    reply = (await asked).expect(200)
    assert (reply["result"], reply["result_envelope"]) == ({"total": 3}, envelope)
    assert reply["control_plane"]["operation_name"] == "state"
    assert await scene.event_types("order-1") == before


async def test_an_answer_in_an_envelope_alone_is_also_shown_as_json(scene: Cluster):
    hand = await a_waiting_run(scene)
    asked = ask(scene)
    (
        await answer(hand, await hand.take("query"), result_envelope=payloads.encode([1, "a"]).envelope())
    ).expect(200)
    assert (await asked).expect(200)["result"] == [1, "a"]


async def test_a_query_that_the_worker_does_not_know_is_a_404_with_its_reason(scene: Cluster):
    hand = await a_waiting_run(scene)
    asked = ask(scene, "nonsense")
    task = await hand.take("query")
    path = f"/api/worker/query-tasks/{task['query_task_id']}/fail"
    failure = {"message": "unknown query 'nonsense'", "reason": "rejected_unknown_query"}
    held = {"lease_owner": "w1", "query_task_attempt": 1, "failure": failure}
    (await scene.post(path, held, role="worker")).expect(200, "rejected_unknown_query")
    (await asked).expect(404, "rejected_unknown_query")


async def test_without_an_active_worker_a_query_is_refused_at_once(scene: Cluster):
    (await scene.start("order-1")).expect(201)
    (await ask(scene)).expect(409, "query_worker_unavailable")


async def test_a_query_that_nobody_answers_ends_with_a_timeout(scene: Cluster):
    await a_waiting_run(scene)
    (await ask(scene)).expect(504, "query_worker_timeout")


async def test_queries_beyond_the_bound_are_told_to_come_back(scene: Cluster):
    await a_waiting_run(scene)
    waiting = [ask(scene, f"q{number}") for number in range(6)]
    replies = [await each for each in waiting]
    assert sorted(reply.status for reply in replies) == [429, 429, 429, 504, 504, 504]
    full = next(reply for reply in replies if reply.status == 429)
    full.expect(429, "query_task_queue_full")
    assert full.headers["Retry-After"] == "4", "nothing was answered yet, but by then somebody has given up"


async def test_the_queue_shows_how_many_queries_wait(scene: Cluster):
    hand = await a_waiting_run(scene)
    asked = ask(scene)
    task = await hand.take("query")
    section = (await scene.get("/api/task-queues/q")).ok()["admission"]["query_tasks"]
    assert (section["status"], section["max_pending_per_queue"]) == ("accepting", 3)
    (await answer(hand, task, result=1)).expect(200)
    (await asked).expect(200)


async def test_late_and_foreign_answers_are_refused_by_name(scene: Cluster):
    hand = await a_waiting_run(scene)
    other = await scene.worker("w2")
    asked = ask(scene)
    task = await hand.take("query")
    (await answer(other, task, result=1)).expect(409, "lease_owner_mismatch")
    wrong = task | {"query_task_attempt": 9}
    (await answer(hand, wrong, result=1)).expect(409, "query_task_attempt_mismatch")
    (await answer(hand, task, result=1)).expect(200)
    assert (await asked).expect(200)["result"] == 1
    gone = await answer(hand, task, result=2)
    assert (gone.status, gone.reason) in ((404, "query_task_not_found"), (409, "query_task_not_leased"))


async def test_query_polls_are_refused_like_other_polls(scene: Cluster):
    stranger = Hand(scene, "nobody", "q")
    (await stranger.poll("query")).expect(412, "worker_not_registered")
    hand = await scene.worker("w1")
    (await Hand(scene, "w1", "elsewhere").poll("query")).expect(409, "task_queue_mismatch")
    assert (await hand.poll("query")).expect(200).body["poll_status"] == "empty"


async def test_a_closed_run_can_still_be_asked_and_an_old_run_cannot(scene: Cluster):
    hand = await scene.worker("w1")
    old = (await scene.start("order-1")).expect(201)["run_id"]
    (await hand.decide(await hand.take(), {"type": "continue_as_new"})).expect(200)
    (await hand.finish(await hand.take(), "done")).expect(200)
    asked = ask(scene)
    (await answer(hand, await hand.take("query"), result="still here")).expect(200)
    assert (await asked).expect(200)["result"] == "still here"
    path = "/api/workflows/order-1/runs/{}/query/state"
    (await scene.post(path.format(old), {})).expect(409, "historical_run_command_rejected")
    (await scene.post(path.format("another-run"), {})).expect(404, "run_not_found")
    (await scene.post("/api/workflows/unknown/query/state", {})).expect(404, "instance_not_found")
