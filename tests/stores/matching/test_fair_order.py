"""The order in which a queue dispatches its tasks, decided by the core over the rows of each store."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

from penstock.core.model import Queue, TaskState
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.ports.store import Store
from tests.stores.store_operations import a_queue, claim, enqueue, ids, record
from tests.support.builders import a_task, released


async def backlog(store: Store, queue: Queue, key: str, count: int, weight_milli: int = 1000) -> None:
    tasks = [a_task(queue, f"{key}-{n}", key=key) for n in range(count)]
    await enqueue(store, *tasks, weight_milli=weight_milli)


async def drain(store: Store, queue: Queue, count: int, batch: int) -> list[str]:
    """The keys of the next `count` dispatches."""
    served: list[str] = []
    while len(served) < count:
        granted = await claim(store, queue.queue_id, min(batch, count - len(served)))
        assert granted, "ran dry"
        served += [task.key for task in granted]
    return served


async def test_inside_a_key_the_first_to_come_is_the_first_to_go(store: Store):
    queue = await a_queue(store)
    for n in range(7):
        await enqueue(store, a_task(queue, f"r{7 - n}-1"))
    granted = [*await claim(store, queue.queue_id, 3), *await claim(store, queue.queue_id, 9)]
    assert ids(granted) == [f"r{7 - n}-1" for n in range(7)]


async def test_a_lower_level_goes_first_whatever_waits_below(store: Store):
    queue = await a_queue(store)
    for n, level in enumerate((9, 3, 0, 3, 0)):
        await enqueue(store, a_task(queue, f"r{n}-1", level=level, key=f"k{n % 2}"))
    assert [task.level for task in await claim(store, queue.queue_id, 9)] == [0, 0, 3, 3, 9]


async def test_keys_share_by_weight_at_every_moment(store: Store):
    """Weights 5, 3 and 2 never stray more than one task from their share."""
    queue = await a_queue(store)
    shares = {"a": 5, "b": 3, "c": 2}
    for key, weight in shares.items():
        await backlog(store, queue, key, 60, weight * 1000)
    served = await drain(store, queue, 100, batch=7)
    assert Counter(served[:10]) == shares
    for turn in range(1, 101):
        counts = Counter(served[:turn])
        assert all(abs(counts[key] - turn * weight / 10) <= 1 for key, weight in shares.items())


async def test_one_large_claim_serves_in_the_order_of_many_small_ones(store: Store):
    orders = []
    for name, batch in (("single", 1), ("seven", 7), ("all", 40)):
        queue = await a_queue(store, name=name)
        for key, weight in {"a": 1000, "b": 2500, "c": 400}.items():
            tasks = [a_task(queue, f"{name}{key}-{n}", key=key) for n in range(20)]
            await enqueue(store, *tasks, weight_milli=weight)
        orders.append(await drain(store, queue, 40, batch))
    assert orders[0] == orders[1] == orders[2]


async def test_a_late_key_does_not_wait_behind_a_backlog(store: Store):
    queue = await a_queue(store)
    await backlog(store, queue, "big", 50)
    await drain(store, queue, 10, batch=10)
    await backlog(store, queue, "late", 3)
    served = await drain(store, queue, 8, batch=4)
    assert [place for place, key in enumerate(served) if key == "late"] in ([0, 2, 4], [1, 3, 5])


async def test_a_new_weight_counts_for_the_backlog_from_the_next_claim_on(store: Store):
    queue = await a_queue(store)
    for key in ("a", "b"):
        await backlog(store, queue, key, 60)
    await drain(store, queue, 20, batch=5)
    await enqueue(store, a_task(queue, "new-1", key="a"), weight_milli=4000)
    counts = Counter(await drain(store, queue, 50, batch=5))
    assert abs(counts["a"] - 40) <= 1


async def test_a_key_whose_tasks_nobody_here_can_run_is_stepped_over_and_not_billed(store: Store):
    queue = await a_queue(store)
    await enqueue(store, *(a_task(queue, f"a-{n}", key="a", type="Ship") for n in range(4)))
    await enqueue(store, *(a_task(queue, f"b-{n}", key="b", type="Charge") for n in range(4)))
    charging, shipping = WorkerFilter(("Charge",), None), WorkerFilter(("Ship",), None)
    assert ids(await claim(store, queue.queue_id, 3, charging)) == ["b-0", "b-1", "b-2"]
    assert ids(await claim(store, queue.queue_id, 9, shipping)) == ["a-0", "a-1", "a-2", "a-3"]
    assert ids(await claim(store, queue.queue_id, 9, shipping)) == []


async def test_claimers_that_race_never_share_a_task_and_leave_none_behind(store: Store):
    queue = await a_queue(store)
    for key in ("a", "b", "c", "d"):
        await backlog(store, queue, key, 15)
    claims = (claim(store, queue.queue_id, 5, key=f"claimer-{n}") for n in range(14))
    granted = [task for batch in await asyncio.gather(*claims) for task in batch]
    assert len(granted) == len({task.task_id for task in granted}) == 60


async def test_racing_claimers_are_as_fair_as_one(store: Store):
    queue = await a_queue(store)
    for key in ("a", "b", "c", "d"):
        await backlog(store, queue, key, 30)
    claims = (claim(store, queue.queue_id, 4, key=f"claimer-{n}") for n in range(10))
    granted = [task for batch in await asyncio.gather(*claims) for task in batch]
    assert len({task.task_id for task in granted}) == 40
    assert Counter(task.key for task in granted) == dict.fromkeys("abcd", 10)


async def test_tasks_enqueued_while_others_claim_are_all_dispatched_once(store: Store):
    queue = await a_queue(store)

    async def produce(producer: int) -> list[str]:
        for n in range(5):
            await enqueue(store, a_task(queue, f"p{producer}-{n}", key=f"k{producer % 3}"))
        return []

    async def consume(consumer: int) -> list[str]:
        return [
            name for _ in range(5) for name in ids(await claim(store, queue.queue_id, 3, key=f"c{consumer}"))
        ]

    seen = await asyncio.gather(*(produce(n) for n in range(8)), *(consume(n) for n in range(4)))
    seen.append(ids(await claim(store, queue.queue_id, 100)))
    names = [name for batch in seen for name in batch]
    assert sorted(names) == sorted(f"p{producer}-{n}" for producer in range(8) for n in range(5))
    assert await claim(store, queue.queue_id, 1) == []


async def test_a_task_given_back_goes_before_younger_ones_of_its_key(store: Store):
    queue = await a_queue(store)
    await backlog(store, queue, "a", 6)
    granted = await claim(store, queue.queue_id, 3)
    back = released(granted[1], TaskState.READY)
    await record(store, lambda tx: tx.tasks.save(back, TaskState.LEASED))
    after = await claim(store, queue.queue_id, 9)
    assert ids(after) == ["a-1", "a-3", "a-4", "a-5"]
    assert all(one.seq < other.seq for one, other in pairwise(after))
