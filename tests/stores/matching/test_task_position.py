"""What is ahead of a task: read by index, with the same result in all stores."""

from __future__ import annotations

from penstock.core.model import QueueId, Task, TaskId
from penstock.core.scheduling.fairness import Lane, stride
from penstock.core.timestamps import MINUTE_MS
from penstock.ports.store import Store
from tests.stores.store_operations import a_queue, claim, enqueue, look
from tests.support.builders import NOW_MS, a_task

ALL = 2**62


async def filled(store: Store) -> QueueId:
    """Three of `a` and two of `b` at level 3, one of `a` at level 1; the first of `a` at level 3 was dispatched."""
    queue = await a_queue(store)
    for number, (key, level) in enumerate([("a", 3), ("a", 3), ("b", 3), ("a", 3), ("b", 3)], 1):
        await enqueue(store, a_task(queue, f"r{number}-1", key=key, level=level))
    await claim(store, queue.queue_id, 1)
    await enqueue(store, a_task(queue, "r6-1", key="a", level=1, cost=7))
    return queue.queue_id


async def task(store: Store, name: str) -> Task:
    found = await look(store, lambda tx: tx.tasks.get(TaskId(name)))
    assert found is not None
    return found


async def test_one_lane_with_what_it_gave_in_this_minute_and_the_one_before(store: Store):
    queue_id = await filled(store)
    found = await look(store, lambda tx: tx.queues.lane(queue_id, 3, "a", tx.now_ms))
    assert found is not None
    assert (found.lane.count, found.lane.tag) == (2, stride(1000))
    assert found.dispatched + found.dispatched_before == 1
    later = await look(store, lambda tx: tx.queues.lane(queue_id, 3, "a", tx.now_ms + 9 * MINUTE_MS))
    assert later is not None
    assert (later.dispatched, later.dispatched_before) == (0, 0)
    assert await look(store, lambda tx: tx.queues.lane(queue_id, 3, "nobody", tx.now_ms)) is None


async def test_lanes_up_to_a_point_least_first(store: Store):
    queue_id = await filled(store)

    async def before(tag: int, most: int = 10) -> list[Lane]:
        return [*await look(store, lambda tx: tx.queues.lanes_before(queue_id, 3, 0, tag, most))]

    assert [lane.key for lane in await before(ALL)] == ["b", "a"]
    assert [lane.key for lane in await before(stride(1000) - 1)] == ["b"]
    assert [lane.key for lane in await before(ALL, most=1)] == ["b"]
    assert await look(store, lambda tx: tx.queues.count_lanes_before(queue_id, 3, 0, ALL, 10)) == 2
    assert await look(store, lambda tx: tx.queues.count_lanes_before(queue_id, 3, 0, ALL, 1)) == 1
    assert await look(store, lambda tx: tx.queues.count_lanes_before(queue_id, 1, 0, ALL, 9)) == 0, "fresh"


async def test_tasks_that_came_before_in_a_lane_and_in_a_level(store: Store):
    queue_id = await filled(store)
    last = await task(store, "r5-1")

    async def before(key: str | None, most: int = 10) -> int:
        return await look(store, lambda tx: tx.queues.count_before(queue_id, 3, key, last.seq, most))

    assert (await before("b"), await before("a"), await before(None), await before(None, 2)) == (1, 2, 3, 2)


async def test_the_head_of_a_lane_and_of_a_level(store: Store):
    queue_id = await filled(store)

    async def head(level: int, key: str | None) -> str | None:
        found = await look(store, lambda tx: tx.queues.head(queue_id, level, key))
        return None if found is None else str(found.task_id)

    assert await head(3, "b") == "r3-1"
    assert await head(3, None) == "r2-1"
    assert await head(1, None) == "r6-1"
    assert await head(2, None) is None


async def test_what_may_go_at_each_level_and_what_went(store: Store):
    queue_id = await filled(store)
    found = await look(store, lambda tx: tx.queues.level_counts(queue_id, 3, tx.now_ms, 100))
    assert [(each.level, each.keys, each.tasks) for each in found if each.keys] == [(1, 1, 1), (3, 2, 4)]
    assert sum(each.dispatched + each.dispatched_before for each in found) == 1
    assert await look(store, lambda tx: tx.queues.dispatched(queue_id, NOW_MS // MINUTE_MS - 9)) == 0


async def test_the_lanes_of_a_level_that_are_to_be_placed(store: Store):
    queue_id = await filled(store)

    async def fresh(level: int) -> list[str]:
        return [lane.key for lane in await look(store, lambda tx: tx.queues.new_lanes(queue_id, level, 9))]

    assert (await fresh(1), await fresh(3)) == (["a"], [])


async def test_a_level_with_more_lanes_than_are_counted_is_not_exact(store: Store):
    queue_id = await filled(store)
    found = await look(store, lambda tx: tx.queues.level_counts(queue_id, 3, NOW_MS, 1))
    assert not found[-1].is_exact
