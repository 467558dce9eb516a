"""Slots: leases of a worker by kind and session, prefetched ones apart, and notifications at their ends."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.core.model import Queue, Task, TaskKind, TaskState
from penstock.core.scheduling.slots import SlotUsage
from penstock.ports.store import Store, TransactionClass, Tx
from penstock.ports.wakeups import queue_topic
from penstock.stores.sql.catalogue import Dialect, catalogue
from penstock.stores.sqlite.schema import prepare
from penstock.wakeups.local import LocalWakeups
from tests.stores.store_operations import ANYTHING, a_queue, claim, enqueue, look
from tests.support.builders import NOW_MS, a_task, leased, released

pytestmark = pytest.mark.fault("F66")


async def grant(store: Store, queue: Queue, *held: Task) -> None:
    """Lease some tasks."""
    await enqueue(store, *(replace(a_task(queue, task.task_id), key=task.key) for task in held))

    async def operation(tx: Tx) -> None:
        found = await tx.queues.take(queue.queue_id, [(3, "", len(held))], ANYTHING)
        for task, given in zip(found[0], held, strict=True):
            tx.tasks.lease(replace(given, seq=task.seq))

    await store.transact(operation, key="grant", tx_class=TransactionClass.CLAIM)


def given_at(queue: Queue, name: str, at_ms: int, owner: str = "w1", claimed: int = 0) -> Task:
    token = f"token-{name}"
    return leased(a_task(queue, name), token, granted_at_ms=at_ms, lease_owner=owner, claimed=claimed)


async def held(
    store: Store, *sessions: tuple[str, int], kind: TaskKind = TaskKind.ACTIVITY
) -> list[SlotUsage]:
    return [*await look(store, lambda tx: tx.tasks.held("default", kind, sessions))]


async def test_a_worker_holds_what_it_was_given_since_its_session_began(store: Store):
    queue = await a_queue(store)
    await grant(
        store,
        queue,
        given_at(queue, "r1-1", NOW_MS - 1),
        given_at(queue, "r2-1", NOW_MS),
        given_at(queue, "r3-1", NOW_MS + 5, claimed=500),
        given_at(queue, "r4-1", NOW_MS + 5, owner="w2"),
    )
    assert await held(store, ("w1", NOW_MS), ("w2", 0), ("w3", 0)) == [
        SlotUsage(1, 1, 2),
        SlotUsage(1, 0, 1),
        SlotUsage(),
    ]
    assert await held(store, ("w1", 0)) == [SlotUsage(2, 1, 3)]
    assert await held(store, ("w1", 0), kind=TaskKind.WORKFLOW) == [SlotUsage()]
    assert [*await look(store, lambda tx: tx.tasks.held("other", TaskKind.ACTIVITY, [("w1", 0)]))] == [
        SlotUsage()
    ]


async def test_the_ends_of_leases_ring_once_they_are_to_be_told(store: Store, wakeups: LocalWakeups):
    queue = await a_queue(store)
    rings: list[str] = []
    wakeups.listen(queue_topic(queue.queue_id), lambda: rings.append("rang"))
    await grant(store, queue, given_at(queue, "r1-1", NOW_MS), given_at(queue, "r2-1", NOW_MS))

    async def end(name: str) -> None:
        async def operation(tx: Tx) -> None:
            task = await tx.tasks.lock(a_task(queue, name).task_id)
            assert task is not None
            tx.tasks.save(released(task, TaskState.DONE), TaskState.LEASED)

        rings.clear()
        await store.transact(operation, key=name)

    async def tell(tx: Tx) -> None:
        await tx.tasks.notify_at_ends("default", TaskKind.ACTIVITY, ["w1", "w2"])

    await end("r1-1")
    assert rings == []
    await store.transact(tell, key="tell", tx_class=TransactionClass.CLAIM)
    assert await held(store, ("w1", 0)) == [SlotUsage(1, 0, 0)]
    await end("r2-1")
    assert rings == ["rang"]
    assert await held(store, ("w1", 0)) == [SlotUsage()]


async def test_a_lease_that_is_counted_by_key_stays_so(store: Store):
    queue = await a_queue(store)
    await grant(store, queue, replace(given_at(queue, "r1-1", NOW_MS), counted=1))

    async def tell(tx: Tx) -> None:
        await tx.tasks.notify_at_ends("default", TaskKind.ACTIVITY, ["w1"])

    await store.transact(tell, key="tell", tx_class=TransactionClass.CLAIM)
    task = await look(store, lambda tx: tx.tasks.get(a_task(queue, "r1-1").task_id))
    assert task is not None
    assert task.counted == 1
    assert await claim(store, queue.queue_id, 1) == []


@pytest.mark.parametrize(
    "name", ["held_by_worker", "notify_at_lease_end", "tasks_leased_by", "redelivered_tasks"]
)
def test_what_a_worker_holds_is_found_by_its_index(tmp_path: Path, name: str):
    path = tmp_path / "penstock.db"
    prepare(path)
    statement = catalogue(Dialect.SQLITE)[name]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", [""] * len(statement.takes))
        steps = [row[3] for row in plan]
    assert any("INDEX tasks_held_by (namespace=? AND lease_owner=?" in step for step in steps), steps
    assert not any(step.startswith("SCAN t") for step in steps), steps
