"""Polls: waiting, wakeups, and repeated poll request ids."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from tests.acceptance.cluster import Cluster, Hand, Json, Reply, open_polls
from tests.support.patience import PATIENCE_S


@contextlib.asynccontextmanager
async def waiting(
    worker: Hand, kind: str = "workflow", timeout: int = 40
) -> AsyncIterator[asyncio.Task[Reply]]:
    """A poll that is held by the first server when the block begins."""
    task = asyncio.create_task(worker.poll(kind, timeout, server=worker.cluster.first))
    await open_polls(worker.cluster, 1)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await open_polls(worker.cluster, 0)


async def answered(task: asyncio.Task[Reply]) -> Reply:
    """The answer of a poll that may be held for much longer than this waits."""
    return await asyncio.wait_for(asyncio.shield(task), PATIENCE_S)


@pytest.mark.parametrize("kind", ["workflow", "activity"])
async def test_a_poll_with_timeout_zero_answers_at_once(scene: Cluster, kind: str) -> None:
    worker = await scene.worker("w-1", supported_workflow_types=["a"], supported_activity_types=["b"])
    reply = await asyncio.wait_for(worker.poll(kind, 0), 20)
    reply.expect(200)
    assert (reply["task"], reply["poll_status"]) == (None, "empty")


async def test_a_poll_that_finds_nothing_is_held_as_long_as_it_asked(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    before = time.monotonic()
    reply = (await worker.poll(timeout=2)).expect(200)
    assert time.monotonic() - before >= 1.9
    assert (reply["task"], reply["poll_status"]) == (None, "empty")


@pytest.mark.parametrize("timeout", [-1, 601, 1.5, "1", True])
async def test_a_timeout_that_is_no_number_of_seconds_is_refused(scene: Cluster, timeout: object) -> None:
    worker = await scene.worker("w-1")
    reply = await worker.poll(timeout_seconds=timeout)
    reply.expect(422, "validation_failed")
    assert set(reply["errors"]) == {"timeout_seconds"}


async def test_a_waiting_poll_is_woken_by_a_start_on_another_server(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    async with waiting(worker) as poll:
        (await scene.start("order-1", server=scene.last)).expect(201)
        reply = (await answered(poll)).expect(200)
        assert reply["task"]["workflow_id"] == "order-1"


async def test_a_waiting_poll_is_woken_by_an_activity_that_is_scheduled_elsewhere(scene: Cluster) -> None:
    decider, doer = await scene.worker("decider"), await scene.worker("doer")
    (await scene.start("order-1")).expect(201)
    task = await decider.take()
    async with waiting(doer, "activity") as poll:
        (await decider.decide(task, {"type": "schedule_activity", "activity_type": "charge"})).expect(200)
        assert (await answered(poll)).expect(200)["task"]["activity_type"] == "charge"


async def test_of_two_waiting_polls_one_gets_the_task_and_the_other_waits_on(scene: Cluster) -> None:
    one, two = await scene.worker("one"), await scene.worker("two")
    polls = [
        asyncio.create_task(worker.poll(timeout=3, server=server))
        for worker, server in ((one, scene.first), (two, scene.last))
    ]
    (await scene.start("order-1")).expect(201)
    replies = await asyncio.gather(*polls)
    assert sorted(reply["poll_status"] for reply in replies) == ["empty", "leased"]


async def test_a_repeated_poll_gets_the_same_task_with_the_same_attempt(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    for number in (1, 2):
        (await scene.start(f"order-{number}")).expect(201)
        (await scene.start_activity(f"charge-{number}")).expect(201)
    for kind, attempt in (("workflow", "workflow_task_attempt"), ("activity", "activity_attempt_id")):
        first = await worker.take(kind, poll_request_id=f"{kind}-poll-1")
        for _ in range(3):
            again = await worker.take(kind, poll_request_id=f"{kind}-poll-1")
            assert (again["task_id"], again[attempt]) == (first["task_id"], first[attempt])
        other = await worker.take(kind, poll_request_id=f"{kind}-poll-2")
        assert other["task_id"] != first["task_id"]


async def test_a_poll_repeated_after_its_task_is_done_polls_anew(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    (await worker.finish(await worker.take(poll_request_id="p-1"))).expect(200)
    assert (await worker.poll(poll_request_id="p-1")).expect(200)["poll_status"] == "empty"


async def test_a_poll_request_id_belongs_to_one_worker(scene: Cluster) -> None:
    one, two = await scene.worker("one"), await scene.worker("two")
    (await scene.start("order-1")).expect(201)
    await one.take(poll_request_id="p-1")
    assert (await two.poll(poll_request_id="p-1")).expect(200)["poll_status"] == "empty"


async def test_a_poll_takes_up_to_max_tasks_in_the_order_of_their_start(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    for number in range(5):
        (await scene.start(f"order-{number}")).expect(201)
    batch = (await worker.poll(max_tasks=3)).expect(200)
    assert [task["workflow_id"] for task in batch["tasks"]] == ["order-0", "order-1", "order-2"]
    assert batch["task"] == batch["tasks"][0]
    rest = (await worker.poll(max_tasks=100)).expect(200)
    assert [task["workflow_id"] for task in rest["tasks"]] == ["order-3", "order-4"]
    none = (await worker.poll(max_tasks=2)).expect(200)
    assert (none["tasks"], none["task"], none["poll_status"]) == ([], None, "empty")
    (await worker.poll(max_tasks=101)).expect(422, "validation_failed")
    assert "tasks" not in (await worker.poll()).expect(200).body


async def test_a_repeated_batch_poll_gets_the_same_batch(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    for number in range(4):
        (await scene.start_activity(f"charge-{number}")).expect(201)
    first = (await worker.poll("activity", max_tasks=3, poll_request_id="p-1")).expect(200)
    again = (await worker.poll("activity", max_tasks=3, poll_request_id="p-1")).expect(200)

    def attempts(reply: Reply) -> list[str]:
        return sorted(task["activity_attempt_id"] for task in reply["tasks"])

    assert attempts(first) == attempts(again)
    assert len(first["tasks"]) == 3


async def test_many_pollers_at_once_share_the_tasks_without_doubles(scene: Cluster) -> None:
    workers = [await scene.worker(f"w-{number}") for number in range(4)]
    items = [{"workflow_type": "t", "workflow_id": f"order-{n}", "task_queue": "q"} for n in range(40)]
    assert (await scene.post("/api/workflows/batch", {"items": items})).expect(200)["accepted"] == 40
    polls = (worker.poll(max_tasks=5) for worker in workers for _ in range(4))
    replies = await asyncio.gather(*polls)
    taken = [task["workflow_id"] for reply in replies for task in reply["tasks"]]
    taken += [task["workflow_id"] for task in (await workers[0].poll(max_tasks=100))["tasks"]]
    assert sorted(taken) == sorted(item["workflow_id"] for item in items)


async def test_a_poller_that_hangs_up_gets_no_task(scene: Cluster) -> None:
    leaver, stayer = await scene.worker("leaver"), await scene.worker("stayer")
    for kind in ("workflow", "activity"):
        async with waiting(leaver, kind):
            pass
        start = scene.start if kind == "workflow" else scene.start_activity
        (await start(f"{kind}-1")).expect(201)
        task = await stayer.take(kind)
        assert (task.get("workflow_task_attempt"), task.get("attempt_number")) in ((1, None), (None, 1))


async def test_a_poller_that_hangs_up_in_the_moment_of_the_start_loses_nothing(scene: Cluster) -> None:
    leaver, stayer = await scene.worker("leaver"), await scene.worker("stayer")
    for number in range(8):
        asked: Json = {"server": scene.first, "poll_request_id": f"poll-{number}"}
        poll = asyncio.create_task(leaver.poll(timeout=40, **asked))
        await open_polls(scene, 1)
        start = asyncio.create_task(scene.start(f"order-{number}", server=scene.last))
        for _ in range(number):
            await asyncio.sleep(0)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        (await start).expect(201)
        holder, reply = stayer, (await stayer.poll(timeout=3)).expect(200)
        if (
            reply["task"] is None
        ):  # the answer was on its way when the poller hung up: it can ask for it again
            holder, reply = leaver, (await leaver.poll(timeout=40, **asked)).expect(200)
        assert reply["task"]["workflow_id"] == f"order-{number}"
        (await holder.finish(reply["task"])).expect(200)


@pytest.mark.parametrize(("polled", "other"), [("workflow", "activity"), ("activity", "workflow")])
async def test_a_worker_that_polls_one_kind_is_let_go_when_the_other_kind_has_work_for_it(
    scene: Cluster, polled: str, other: str
) -> None:
    types: Json = {"supported_workflow_types": ["greeter"], "supported_activity_types": ["greet"]}
    worker = await scene.worker("w-1", **types)
    async with waiting(worker, polled) as poll:
        (await (scene.start if other == "workflow" else scene.start_activity)("thing-1")).expect(201)
        early = (await answered(poll)).expect(200)
        assert (early["task"], early["poll_status"]) == (None, "empty")
    assert (await worker.poll(other)).expect(200)["poll_status"] == "leased"


async def test_a_worker_without_named_types_keeps_its_full_wait(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start_activity("charge-1")).expect(201)
    before = time.monotonic()
    assert (await worker.poll(timeout=2)).expect(200)["poll_status"] == "empty"
    assert time.monotonic() - before >= 1.9


async def test_the_backlog_and_the_leases_of_a_queue_are_counted(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    for number in range(3):
        (await scene.start(f"order-{number}")).expect(201)
    (await scene.start_activity("charge-1")).expect(201)
    task = await worker.take()
    queue = (await scene.get("/api/task-queues/q")).expect(200)
    stats = queue["stats"]
    assert stats["approximate_backlog_count"] == 3
    assert (stats["workflow_tasks"]["ready_count"], stats["workflow_tasks"]["leased_count"]) == (2, 1)
    assert stats["activity_tasks"]["ready_count"] == 1
    assert stats["tasks_dispatched_last_minute"] == 1
    assert stats["oldest_ready_task"]["workflow_id"] in ("order-1", "charge-1")
    (lease,) = queue["current_leases"]
    assert (lease["task_id"], lease["lease_owner"], lease["is_expired"]) == (task["task_id"], "w-1", False)
    assert lease["workflow_task_attempt"] == 1
