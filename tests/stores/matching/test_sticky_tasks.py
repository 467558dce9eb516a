"""Sticky tasks: other workers skip them until they expire."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from penstock.core.limits.policies import LimitSetting, Policy, SettingValue
from penstock.core.model import Queue, TaskKind, TaskState
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import a_queue, claim, enqueue, ids, limit, look, record
from tests.support.builders import NOW_MS, a_task, released

FAR_MS = 10**15
"""Later than the clock of any store."""
PAST_MS = 1
TYPES = ("Order", "Pack", "Ship")
named = pytest.mark.parametrize(
    "types", [(), ("Order",), TYPES], ids=["any type", "one type", "several types"]
)
fair = pytest.mark.parametrize("order", ["fair", "arrival"])


async def a_line(store: Store, order: str = "fair") -> Queue:
    queue = await a_queue(store, TaskKind.WORKFLOW)
    policy = Policy(
        1, {LimitSetting.FAIRNESS: SettingValue("on" if order == "fair" else "off", "ann", NOW_MS)}
    )
    await record(store, lambda tx: tx.policies.save(queue.queue_id, policy))
    return queue


async def fill(store: Store, queue: Queue, reserved: Mapping[int, tuple[str, int]], count: int = 4) -> None:
    """Tasks r1-1, r2-1, … in order; some are sticky to a worker."""
    for number in range(1, count + 1):
        keeper, until_ms = reserved.get(number, (None, None))
        task = a_task(queue, f"r{number}-1", sticky_worker_id=keeper, sticky_until_ms=until_ms)
        await enqueue(store, task)


async def is_ready(store: Store, queue: Queue, worker_filter: WorkerFilter) -> bool:
    ready = await look(store, lambda tx: tx.tasks.any_ready(queue.queue_id, worker_filter))
    part = await look(store, lambda tx: tx.tasks.matchable(queue.queue_id, worker_filter))
    assert ready == (part is not None)
    assert part is None or part.sticky_workers == worker_filter.sticky_workers
    return ready


@named
@fair
async def test_others_step_over_a_reserved_task_and_its_worker_gets_it(
    store: Store, types: tuple[str, ...], order: str
):
    queue = await a_line(store, order)
    await fill(store, queue, {1: ("w1", FAR_MS), 3: ("w2", FAR_MS)})
    others, own = WorkerFilter(types, None), WorkerFilter(types, None, ("w1",))
    assert ids(await claim(store, queue.queue_id, 1, others)) == ["r2-1"]
    assert ids(await claim(store, queue.queue_id, 9, own)) == ["r1-1", "r4-1"]
    assert not await is_ready(store, queue, own)
    assert await claim(store, queue.queue_id, 9, own) == []
    assert ids(await claim(store, queue.queue_id, 9, WorkerFilter(types, None, ("w1", "w2")))) == ["r3-1"]


@named
@fair
async def test_a_task_whose_time_is_over_is_for_anybody_in_its_place(
    store: Store, types: tuple[str, ...], order: str
):
    queue = await a_line(store, order)
    await fill(store, queue, {1: ("w1", PAST_MS), 3: ("w2", PAST_MS)})
    assert ids(await claim(store, queue.queue_id, 9, WorkerFilter(types, None))) == [
        "r1-1",
        "r2-1",
        "r3-1",
        "r4-1",
    ]


@named
async def test_a_line_of_reserved_tasks_is_empty_for_others(store: Store, types: tuple[str, ...]):
    queue = await a_line(store)
    await fill(store, queue, {1: ("w1", FAR_MS), 2: ("w1", FAR_MS)}, count=2)
    assert not await is_ready(store, queue, WorkerFilter(types, None))
    assert not await is_ready(store, queue, WorkerFilter(types, None, ("w", "w11")))
    assert await is_ready(store, queue, WorkerFilter(types, None, ("w1",)))
    assert await claim(store, queue.queue_id, 9, WorkerFilter(types, None)) == []


@fair
async def test_a_key_whose_tasks_are_reserved_is_stepped_over_and_owed_its_turns_as_ever(
    store: Store, order: str
):
    queue = await a_line(store, order)
    for number in range(1, 7):
        key = "ab"[number % 2]
        sticky = {"sticky_worker_id": "w1", "sticky_until_ms": FAR_MS} if key == "a" else {}
        await enqueue(store, a_task(queue, f"{key}{number}-1", key=key, **sticky))
    assert ids(await claim(store, queue.queue_id, 2, WorkerFilter((), None))) == ["b1-1", "b3-1"]
    rest = ids(await claim(store, queue.queue_id, 9, WorkerFilter((), None, ("w1",))))
    assert sorted(rest) == ["a2-1", "a4-1", "a6-1", "b5-1"]
    assert [each for each in rest if each.startswith("a")] == ["a2-1", "a4-1", "a6-1"]


async def test_a_cap_holds_for_reserved_tasks_as_for_others(store: Store):
    queue = await a_line(store)
    await limit(store, "namespace:default", max_running=2)
    await fill(store, queue, {1: ("w1", FAR_MS), 2: ("w1", FAR_MS)})
    assert ids(await claim(store, queue.queue_id, 9, WorkerFilter((), None))) == ["r3-1", "r4-1"]
    assert await claim(store, queue.queue_id, 9, WorkerFilter((), None, ("w1",))) == []


async def test_it_is_told_for_whom_ready_tasks_wait_and_until_when(store: Store):
    queue, other = await a_line(store), await a_queue(store, TaskKind.WORKFLOW, name="other")
    waiting = {1: ("w1", FAR_MS + 5), 2: ("w1", FAR_MS), 3: ("w2", FAR_MS + 9), 4: ("w3", PAST_MS)}
    await fill(store, queue, waiting)
    assert await look(store, lambda tx: tx.tasks.sticky(queue.queue_id)) == {
        "w1": FAR_MS,
        "w2": FAR_MS + 9,
    }
    assert await look(store, lambda tx: tx.tasks.sticky(other.queue_id)) == {}
    await claim(store, queue.queue_id, 9, WorkerFilter((), None, ("w1",)))
    assert await look(store, lambda tx: tx.tasks.sticky(queue.queue_id)) == {"w2": FAR_MS + 9}


async def test_a_task_that_comes_back_without_its_reservation_is_for_anybody(store: Store):
    queue = await a_line(store)
    await fill(store, queue, {1: ("w1", FAR_MS)}, count=1)
    [held] = await claim(store, queue.queue_id, 1, WorkerFilter((), None, ("w1",)))

    async def give_back(tx: Tx) -> None:
        task = await tx.tasks.lock(held.task_id)
        assert task is not None
        assert (task.sticky_worker_id, task.sticky_until_ms) == ("w1", FAR_MS)
        freed = replace(released(task, TaskState.READY), sticky_worker_id=None, sticky_until_ms=None)
        tx.tasks.save(freed, TaskState.LEASED)

    await store.transact(give_back, key="r1")
    assert ids(await claim(store, queue.queue_id, 1, WorkerFilter((), None))) == ["r1-1"]
