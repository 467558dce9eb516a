"""Queries whose caller or worker disconnects, over HTTP; no timeout elapses during a test."""

from __future__ import annotations

import asyncio

from tests.acceptance.cluster import Cluster, until
from tests.acceptance.messaging.test_queries import a_waiting_run, answer, ask

SETTINGS = {
    "DW_QUERY_TASK_TIMEOUT": "600",
    "DW_QUERY_TASK_LEASE_TIMEOUT": "1",
    "DW_QUERY_TASK_MAX_PENDING_PER_QUEUE": "1",
}


async def pending(scene: Cluster, count: int) -> None:
    """Wait until so many queries wait."""

    async def so_many() -> bool:
        section = (await scene.get("/api/task-queues/q")).ok()["admission"]["query_tasks"]
        return bool(section["approximate_pending_count"] == count)

    await until(so_many)


async def test_a_query_whose_asker_hangs_up_is_gone_and_makes_room(scene: Cluster):
    hand = await a_waiting_run(scene)
    asked = ask(scene)
    await pending(scene, 1)
    (await ask(scene)).expect(429, "query_task_queue_full")
    asked.cancel()
    await asyncio.wait([asked])
    await pending(scene, 0)
    assert (await hand.poll("query")).expect(200)["poll_status"] == "empty"
    again = ask(scene)
    (await answer(hand, await hand.take("query"), result=1)).expect(200)
    assert (await again).expect(200)["result"] == 1


async def test_an_answer_to_an_asker_that_hung_up_is_refused(scene: Cluster):
    hand = await a_waiting_run(scene)
    asked = ask(scene)
    task = await hand.take("query")
    asked.cancel()
    await asyncio.wait([asked])

    async def nobody_asks() -> bool:
        reply = await answer(hand, task | {"query_task_attempt": 99}, result=1)
        return bool(reply.reason == "query_task_not_found")

    await until(nobody_asks)


async def test_a_query_whose_worker_died_is_answered_by_another(scene: Cluster):
    dead = await a_waiting_run(scene)
    alive = await scene.worker("w2", supported_workflow_types=["greeter"])
    asked = ask(scene)
    first = await dead.take("query")
    second = await alive.take("query")
    assert second["query_task_id"] == first["query_task_id"]
    assert (first["query_task_attempt"], second["query_task_attempt"]) == (1, 2)
    late = await answer(dead, first, result="late")
    assert late.status in (404, 409), late.body
    while (reply := await answer(alive, second, result="from another")).status != 200:
        second = await alive.take("query")
    reply.expect(200)
    assert (await asked).expect(200)["result"] == "from another"
