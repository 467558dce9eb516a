"""Query tasks: counted, leased one by one, and deleted with their caller."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from penstock.core.model import Blob, QueryState, QueryTask, RunId
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import record
from tests.support.builders import NOW_MS

ANY = WorkerFilter((), None)
LATER_MS = NOW_MS + 30_000


def a_query(query_id: str = "q1", **changes: object) -> QueryTask:
    plain = QueryTask(
        query_id=query_id,
        namespace="default",
        task_queue="orders",
        run_id=RunId("r1"),
        workflow_type="order",
        compatibility=None,
        name="state",
        arguments=Blob("args"),
        created_at_ms=NOW_MS,
        expires_at_ms=LATER_MS,
    )
    return replace(plain, **changes)


async def lease_next(store: Store, worker_filter: WorkerFilter = ANY, worker: str = "w1") -> str | None:
    async def operation(tx: Tx) -> str | None:
        query = await tx.queries.lock_next("default", "orders", worker_filter, NOW_MS)
        if query is None:
            return None
        tx.queries.save(
            replace(
                query,
                state=QueryState.LEASED,
                attempt=query.attempt + 1,
                lease_owner=worker,
                lease_expires_at_ms=NOW_MS + 5,
            )
        )
        return query.query_id

    return await store.transact(operation, key="queries:default:orders")


async def pending(store: Store, now_ms: int = NOW_MS) -> int:
    async def operation(tx: Tx) -> int:
        return await tx.queries.count_pending("default", "orders", now_ms)

    return await store.read(operation)


async def test_the_oldest_query_is_leased_first(store: Store):
    await record(store, lambda tx: tx.queries.insert(a_query("late", created_at_ms=NOW_MS + 1)))
    await record(store, lambda tx: tx.queries.insert(a_query("early")))
    assert [await lease_next(store) for _ in range(3)] == ["early", "late", None]


async def test_a_query_goes_only_to_a_worker_that_knows_its_type_and_build(store: Store):
    await record(store, lambda tx: tx.queries.insert(a_query("pinned", compatibility="b2")))
    assert await lease_next(store, WorkerFilter(("invoice",), "b2")) is None
    assert await lease_next(store, WorkerFilter(("order",), "b1")) is None
    assert await lease_next(store, WorkerFilter(("invoice", "order"), "b2")) == "pinned"


async def test_only_queries_that_wait_and_whose_caller_waits_are_counted(store: Store):
    await record(store, lambda tx: tx.queries.insert(a_query("leased", created_at_ms=NOW_MS - 1)))
    await record(store, lambda tx: tx.queries.insert(a_query("waiting")))
    await record(store, lambda tx: tx.queries.insert(a_query("elsewhere", task_queue="mail")))
    assert await lease_next(store) == "leased"
    assert await pending(store) == 1
    assert await pending(store, LATER_MS) == 0


async def test_of_many_racing_workers_one_gets_the_query(store: Store):
    await record(store, lambda tx: tx.queries.insert(a_query()))
    got = await asyncio.gather(*(lease_next(store, worker=f"w{number}") for number in range(10)))
    assert sorted(each for each in got if each) == ["q1"]


async def test_a_query_lapses_with_its_caller_or_with_its_lease(store: Store):
    await record(store, lambda tx: tx.queries.insert(a_query("abandoned", expires_at_ms=NOW_MS)))
    await record(store, lambda tx: tx.queries.insert(a_query("stuck")))
    assert await lease_next(store) == "stuck"

    async def lapsed(tx: Tx) -> list[str]:
        return sorted(await tx.queries.lapsed(NOW_MS + 5, 10))

    assert await store.read(lapsed) == ["abandoned", "stuck"]


async def test_a_forgotten_query_is_gone(store: Store):
    await record(store, lambda tx: tx.queries.insert(a_query()))
    await record(store, lambda tx: tx.queries.delete("q1"))
    await record(store, lambda tx: tx.queries.delete("q1"))

    async def find(tx: Tx) -> QueryTask | None:
        return await tx.queries.get("q1")

    assert await store.read(find) is None


async def test_meters_of_old_minutes_are_forgotten_and_young_ones_kept(store: Store):
    async def make(tx: Tx) -> int:
        from penstock.core.model import TaskKind

        queue = await tx.queues.ensure("default", "orders", TaskKind.ACTIVITY)
        tx.queues.count_dispatches(queue.queue_id, 10, 1)
        return queue.queue_id

    await store.transact(make, key="make")

    async def any_before(minute: int) -> bool:
        async def operation(tx: Tx) -> bool:
            return await tx.queues.any_meter_before(minute)

        return await store.read(operation)

    await record(store, lambda tx: tx.queues.forget_meters(10))
    assert await any_before(11)
    await record(store, lambda tx: tx.queues.forget_meters(11))
    assert not await any_before(11)
