"""Retry budgets: every slot is given once, and a change of the budget frees all of them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from msgspec.structs import replace

from penstock.core.limits.rates import NANO, Rate
from penstock.core.model import QueueId, Task, TaskState
from penstock.core.scheduling.retries import RetrySlot
from penstock.ports.store import Store, TransactionClass, Tx
from tests.stores.store_operations import a_queue, enqueue, look
from tests.support.builders import NOW_MS, a_task

pytestmark = pytest.mark.fault("F74")
TWO_A_SECOND = Rate(2_000_000, burst_ms=0)


async def change(store: Store, queue_id: QueueId, rate: Rate | None) -> None:
    async def operation(tx: Tx) -> None:
        await tx.retry_budgets.change(queue_id, rate)

    await store.transact(operation, key="policy", tx_class=TransactionClass.CHANGE)


async def take(store: Store, queue_id: QueueId, key: str = "take") -> RetrySlot | None:
    async def operation(tx: Tx) -> RetrySlot | None:
        return await tx.retry_budgets.take_place(queue_id)

    return await store.transact(operation, key=key)


async def test_a_line_without_a_budget_has_no_places(store: Store):
    queue = await a_queue(store)
    assert await take(store, queue.queue_id) is None
    await change(store, queue.queue_id, TWO_A_SECOND)
    await change(store, queue.queue_id, None)
    assert await take(store, queue.queue_id) is None


async def test_places_follow_each_other_without_gap_or_overlap_however_many_ask_at_once(store: Store):
    queue = await a_queue(store)
    other = await a_queue(store, name="refunds")
    await change(store, queue.queue_id, TWO_A_SECOND)
    await change(store, other.queue_id, TWO_A_SECOND)
    taken = await asyncio.gather(*(take(store, queue.queue_id, f"key-{number}") for number in range(40)))
    starts = sorted(place.from_ns for place in taken if place is not None)
    assert [later - sooner for sooner, later in pairwise(starts)] == [NANO // 2] * 39
    assert {place.for_ns for place in taken if place is not None} == {NANO // 2}
    elsewhere = await take(store, other.queue_id)
    assert elsewhere is not None
    assert elsewhere.from_ns < starts[-1]


async def test_a_change_frees_all_places_and_retries_are_due_as_they_were(store: Store):
    queue = await a_queue(store)
    await change(store, queue.queue_id, TWO_A_SECOND)
    for _ in range(100):
        await take(store, queue.queue_id)
    moved = a_task(queue, "r1-1", state=TaskState.DELAYED, available_at_ms=NOW_MS)
    resting = a_task(queue, "r2-1", state=TaskState.DELAYED, available_at_ms=NOW_MS + 7)
    await enqueue(store, moved, resting)
    await save(store, replace(moved, available_at_ms=NOW_MS + 90_000, retry_due_at_ms=NOW_MS))
    last = await take(store, queue.queue_id)
    await change(store, queue.queue_id, Rate(4_000_000, burst_ms=0))
    first = await take(store, queue.queue_id)
    assert last is not None
    assert first is not None
    assert first.from_ns < last.from_ns - 40 * NANO
    assert first.for_ns == NANO // 4
    assert await times(store, moved) == (NOW_MS, None)
    assert await times(store, resting) == (NOW_MS + 7, None)
    assert [*await look(store, lambda tx: tx.tasks.due(NOW_MS, 10))] == ["r1-1"]


async def times(store: Store, task: Task) -> tuple[int, int | None]:
    found = await look(store, lambda tx: tx.tasks.get(task.task_id))
    assert found is not None
    return found.available_at_ms, found.retry_due_at_ms


async def save(store: Store, task: Task) -> None:
    async def operation(tx: Tx) -> None:
        tx.tasks.save(task, TaskState.DELAYED)

    await store.transact(operation, key=task.run_id)
