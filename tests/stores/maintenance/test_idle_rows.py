"""Deletion of idle rows: workers without heartbeats, and lanes without state."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.model import QueueId, TaskKind, TaskPriority, WorkerRecord, WorkerStatus
from penstock.core.scheduling.fairness import Lane, VirtualClock
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import record
from tests.support.builders import NOW_MS, a_task, a_worker


async def register(store: Store, worker: WorkerRecord) -> None:
    await record(store, lambda tx: tx.workers.save(worker))


async def give_one(store: Store, queue_id: QueueId, lane: Lane) -> None:
    await record(store, lambda tx: tx.queues.settle(queue_id, [(lane, 1)]))


async def drop(store: Store, queue_id: QueueId, key: str) -> None:
    await record(store, lambda tx: tx.queues.drop_lane(queue_id, 3, key))


async def find_worker(store: Store, worker_id: str = "w1") -> object:
    async def operation(tx: Tx) -> object:
        return await tx.workers.get("default", worker_id)

    return await store.read(operation)


async def test_the_longest_silent_workers_are_found_first(store: Store):
    for number in range(3):
        await register(store, a_worker(worker_id=f"w{number}", heartbeat_at_ms=NOW_MS - number))

    async def operation(tx: Tx) -> list[tuple[str, str]]:
        return [*await tx.workers.silent(NOW_MS, 10)]

    assert await store.read(operation) == [("default", "w2"), ("default", "w1")]


async def test_marking_changes_a_workers_status_and_nothing_else(store: Store):
    worker = a_worker(worker_id="w1")
    await record(store, lambda tx: tx.workers.save(worker))
    await record(store, lambda tx: tx.workers.mark(a_worker(worker_id="w1"), WorkerStatus.DRAINING))
    found = await find_worker(store)
    assert replace(found, updated_at_ms=worker.updated_at_ms) == replace(worker, status=WorkerStatus.DRAINING)  # type: ignore[type-var]


async def test_neither_a_mark_nor_a_heartbeat_brings_back_a_worker_that_has_left(store: Store):
    await record(store, lambda tx: tx.workers.mark(a_worker(worker_id="w1"), WorkerStatus.DRAINING))
    await record(store, lambda tx: tx.workers.heartbeat(a_worker(worker_id="w1")))
    assert await find_worker(store) is None


async def test_a_heartbeat_keeps_the_registration_as_it_is(store: Store):
    registered = a_worker(worker_id="w1", workflow_types=("new",), heartbeat_at_ms=NOW_MS)
    await record(store, lambda tx: tx.workers.save(registered))
    late = replace(
        registered, workflow_types=("old",), heartbeat_at_ms=NOW_MS + 5, task_slots={"workflow_available": 1}
    )
    await record(store, lambda tx: tx.workers.heartbeat(late))
    found = await find_worker(store)
    assert (found.workflow_types, found.heartbeat_at_ms) == (("new",), NOW_MS + 5)  # type: ignore[attr-defined]
    assert found.task_slots == {"workflow_available": 1}  # type: ignore[attr-defined]


async def idle(store: Store) -> list[tuple[int, str]]:
    async def operation(tx: Tx) -> list[tuple[int, str]]:
        return sorted((level, key) for _, level, key in await tx.queues.idle_lanes(10))

    return await store.read(operation)


async def test_a_lane_is_forgotten_when_it_is_idle_and_virtual_time_has_passed_it(store: Store):
    async def fill(tx: Tx) -> QueueId:
        queue = await tx.queues.ensure("default", "orders", TaskKind.ACTIVITY)
        for key in ("done", "ahead", "busy"):
            task = a_task(queue, task_id=f"r-{key}", run_id=f"r-{key}", key=key)
            tx.tasks.insert(task, TaskPriority(task.level, key))
        return queue.queue_id

    queue_id = await store.transact(fill, key="fill")
    for key, tag in (("done", 5), ("ahead", 50)):
        await give_one(store, queue_id, Lane(3, key, tag, 1000, 1000, 0))
    assert await idle(store) == []
    await record(store, lambda tx: tx.queues.settle(queue_id, (), [VirtualClock(3, 10, 0)]))
    assert await idle(store) == [(3, "done")]
    for key in ("done", "ahead", "busy"):
        await drop(store, queue_id, key)
    await record(store, lambda tx: tx.queues.settle(queue_id, (), [VirtualClock(3, 100, 0)]))
    assert await idle(store) == [(3, "ahead")]
