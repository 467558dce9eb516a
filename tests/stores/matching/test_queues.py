"""Task queues: found by name, with exact counts and lanes that follow their tasks."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from penstock.core.model import QueueId, QueueStats, RunId, TaskKind, TaskState
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.core.scheduling.fairness import Lane, LaneState, VirtualClock
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import (
    ANYTHING,
    a_queue,
    claim,
    enqueue,
    ids,
    look,
    queue_now,
    record,
    untimed,
)
from tests.support.builders import NOW_MS, a_task, an_event, released, standing_of


async def lanes(
    store: Store, queue_id: QueueId, worker_filter: WorkerFilter = ANYTHING, room: int = 10
) -> list[Lane]:
    return [*await look(store, lambda tx: tx.queues.lanes(queue_id, worker_filter, room))]


async def new_lanes(store: Store, queue_id: QueueId, worker_filter: WorkerFilter = ANYTHING) -> list[Lane]:
    return [*await look(store, lambda tx: tx.queues.lanes_to_tag(queue_id, worker_filter, LaneState.NEW))]


async def stats(store: Store, queue_id: QueueId, now_ms: int = NOW_MS) -> QueueStats:
    return await look(store, lambda tx: tx.queues.stats(queue_id, now_ms))


async def test_a_queue_comes_to_be_when_it_is_first_named_and_keeps_its_id(store: Store):
    queue = await a_queue(store)
    assert (queue.namespace, queue.name, queue.kind) == ("default", "orders", TaskKind.ACTIVITY)
    assert untimed(await a_queue(store)) == untimed(queue)
    assert untimed(await queue_now(store, queue.queue_id)) == untimed(queue)
    assert await look(store, lambda tx: tx.queues.lock(QueueId(999_999))) is None


async def test_many_who_name_a_queue_at_once_get_the_same_one(store: Store):
    async def operation(tx: Tx) -> QueueId:
        return (await tx.queues.ensure("default", "orders", TaskKind.ACTIVITY)).queue_id

    found = await asyncio.gather(*(store.transact(operation, key=f"k{n}") for n in range(20)))
    assert len(set(found)) == 1


async def test_a_queue_named_by_an_operation_that_failed_is_not_remembered(store: Store):
    async def fail(tx: Tx) -> None:
        for _ in range(2):
            await tx.queues.ensure("default", "orders", TaskKind.ACTIVITY)
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        await store.transact(fail, key="fails")
    other = await a_queue(store, name="refunds")
    queue = await a_queue(store)
    assert queue.queue_id != other.queue_id
    found = await look(store, lambda tx: tx.queues.find("default", "orders"))
    assert [each.queue_id for each in found] == [queue.queue_id]


async def test_a_queue_has_one_id_though_a_neighbour_of_its_first_use_failed(store: Store):
    await record(store, lambda tx: tx.histories.append([an_event("r0", 1)]))

    async def operation(tx: Tx, n: int) -> QueueId:
        for _ in range(n % 4):
            await tx.runs.get(RunId("r0"))
        queue = await tx.queues.ensure("default", "orders", TaskKind.ACTIVITY)
        if n % 5 == 0:
            tx.histories.append([an_event("r0", 1)])
        return queue.queue_id

    outcomes = await asyncio.gather(
        *(store.transact(lambda tx, n=n: operation(tx, n), key=f"k{n}") for n in range(20)),  # type: ignore[misc]
        return_exceptions=True,
    )
    [queue] = await look(store, lambda tx: tx.queues.find("default", "orders"))
    assert {outcome for outcome in outcomes if not isinstance(outcome, Exception)} == {queue.queue_id}


async def test_queues_are_found_by_name_and_listed_by_name_and_kind(store: Store):
    for name in ("refunds", "orders"):
        for kind in (TaskKind.WORKFLOW, TaskKind.ACTIVITY):
            await a_queue(store, kind, name)
    found = await look(store, lambda tx: tx.queues.find("default", "orders"))
    assert [(queue.name, queue.kind) for queue in found] == [("orders", "activity"), ("orders", "workflow")]
    listed = await look(store, lambda tx: tx.queues.list("default"))
    assert [queue.name for queue in listed] == ["orders", "orders", "refunds", "refunds"]
    assert await look(store, lambda tx: tx.queues.list("other")) == []


async def test_a_new_lane_waits_to_be_placed(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, key="tenant"), weight_milli=2500)
    assert await new_lanes(store, queue.queue_id) == [
        Lane(3, "tenant", 0, weight_milli=2500, wanted_milli=2500, count=1, state=1, base=0)
    ]


async def test_more_tasks_of_a_placed_lane_only_raise_its_count(store: Store):
    queue = await a_queue(store)
    await enqueue(store, *(a_task(queue, f"r1-{n}") for n in range(3)))
    await claim(store, queue.queue_id, 1)
    [before] = await lanes(store, queue.queue_id)
    await enqueue(store, a_task(queue, "r2-1"))
    assert (before.count, before.state) == (2, 0)
    assert await lanes(store, queue.queue_id) == [replace(before, count=3)]


async def test_a_lane_that_ran_empty_is_placed_again_when_work_comes(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue))
    await claim(store, queue.queue_id, 1)
    assert await lanes(store, queue.queue_id) == []
    await enqueue(store, a_task(queue, "r2-1"))
    [lane] = await new_lanes(store, queue.queue_id)
    assert (lane.count, lane.state) == (1, 1)
    assert lane.tag > 0, "its debt is not forgiven"


async def test_the_last_weight_that_an_enqueue_carried_is_the_one_wanted(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, "r1-1"), a_task(queue, "r1-2"))
    await claim(store, queue.queue_id, 1)

    def write(tx: Tx) -> None:
        tx.tasks.insert(a_task(queue, "r2-1"), standing_of(a_task(queue), weight_milli=9000))
        tx.tasks.insert(a_task(queue, "r2-2"), standing_of(a_task(queue), weight_milli=2000))

    await record(store, write)
    [lane] = await new_lanes(store, queue.queue_id)
    assert (lane.weight_milli, lane.wanted_milli, lane.state, lane.count) == (1000, 2000, 1, 3)


async def test_a_weight_that_came_while_a_claim_decided_calls_for_another_placing(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, "r1-1"), a_task(queue, "r1-2"))
    [seen] = await new_lanes(store, queue.queue_id)
    await enqueue(store, a_task(queue, "r1-3"), weight_milli=5000)
    await record(
        store,
        lambda tx: tx.queues.settle(queue.queue_id, [(replace(seen, tag=77, state=LaneState.READY), 0)]),
    )
    [lane] = await new_lanes(store, queue.queue_id)
    assert lane == Lane(3, "", 77, weight_milli=1000, wanted_milli=5000, count=3, state=1, base=0)


async def test_a_placing_that_took_nothing_is_recorded_too(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue))
    [seen] = await new_lanes(store, queue.queue_id)
    placed = replace(seen, tag=77, state=LaneState.READY)
    await record(store, lambda tx: tx.queues.settle(queue.queue_id, [(placed, 0)]))
    assert await lanes(store, queue.queue_id) == [placed]
    assert await new_lanes(store, queue.queue_id) == []


async def test_a_cancelled_task_leaves_its_lane(store: Store):
    queue = await a_queue(store)
    first, second = a_task(queue, "r1-1"), a_task(queue, "r2-1")
    await enqueue(store, first, second)
    await record(store, lambda tx: tx.tasks.save(released(first, TaskState.CANCELLED), TaskState.READY))
    [lane] = await new_lanes(store, queue.queue_id)
    assert lane.count == 1
    assert ids(await claim(store, queue.queue_id, 5)) == ["r2-1"]
    assert await lanes(store, queue.queue_id) == []


async def test_a_task_whose_lease_was_lost_is_first_in_its_lane_again_at_the_same_weight(store: Store):
    queue = await a_queue(store)
    await enqueue(store, *(a_task(queue, f"r1-{n}") for n in range(3)), weight_milli=4000)
    [granted] = await claim(store, queue.queue_id, 1)
    ready = released(granted, TaskState.READY)
    await record(store, lambda tx: tx.tasks.save(ready, TaskState.LEASED))
    [lane] = await lanes(store, queue.queue_id)
    assert (lane.count, lane.state, lane.wanted_milli) == (3, 0, 4000)
    assert ids(await claim(store, queue.queue_id, 3)) == ["r1-0", "r1-1", "r1-2"]


async def test_a_delayed_task_joins_its_lane_when_it_becomes_ready(store: Store):
    queue = await a_queue(store)
    delayed = a_task(queue, key="tenant", state=TaskState.DELAYED)
    await enqueue(store, delayed, weight_milli=7000)
    assert await new_lanes(store, queue.queue_id) == []
    ready = replace(delayed, state=TaskState.READY)
    await record(store, lambda tx: tx.tasks.save(ready, TaskState.DELAYED))
    [lane] = await new_lanes(store, queue.queue_id)
    assert lane == Lane(3, "tenant", 0, weight_milli=1000, wanted_milli=1000, count=1, state=1, base=0)


async def test_a_change_that_keeps_a_task_ready_keeps_the_count(store: Store):
    queue = await a_queue(store)
    task = a_task(queue)
    await enqueue(store, task)
    await record(store, lambda tx: tx.tasks.save(replace(task, last_error="x"), TaskState.READY))
    [lane] = await new_lanes(store, queue.queue_id)
    assert lane.count == 1


async def test_lanes_to_be_placed_come_by_level_and_key_and_at_most_256_of_them(store: Store):
    queue = await a_queue(store)
    names = [f"k{n:03}" for n in range(150)]
    tasks = [a_task(queue, f"{key}-{level}", key=key, level=level) for key in names for level in (4, 2)]
    await enqueue(store, *tasks)
    found = await new_lanes(store, queue.queue_id)
    expected = [(level, key) for level in (2, 4) for key in names][:256]
    assert [(lane.level, lane.key) for lane in found] == expected


async def test_placed_lanes_come_by_level_and_tag_and_no_more_than_there_is_room(store: Store):
    queue = await a_queue(store)
    tags = {(1, "z"): 50, (1, "y"): 50, (1, "x"): 90, (0, "w"): 99, (2, "v"): 1}
    await enqueue(store, *(a_task(queue, f"{key}-1", level=level, key=key) for level, key in tags))
    fresh = await new_lanes(store, queue.queue_id)

    def write(tx: Tx) -> None:
        for lane in fresh:
            placed = replace(lane, tag=tags[lane.level, lane.key], state=LaneState.READY)
            tx.queues.settle(queue.queue_id, [(placed, 0)])

    await record(store, write)
    found = [(lane.level, lane.key) for lane in await lanes(store, queue.queue_id, room=4)]
    assert found == [(0, "w"), (1, "y"), (1, "z"), (1, "x")]


async def test_a_lane_without_a_fitting_task_is_marked_while_unplaced_and_left_out_when_placed(store: Store):
    queue = await a_queue(store)
    await enqueue(
        store,
        a_task(queue, "r1-1", key="a", type="Ship"),
        a_task(queue, "r1-2", key="b", type="Ship", compatibility="build-1"),
        a_task(queue, "r1-3", key="c", type="Charge"),
        a_task(queue, "r1-4", key="c", type="Ship"),
    )
    charging, shipping = WorkerFilter(("Charge",), None), WorkerFilter(("Pack", "Ship"), "build-2")
    fresh = await new_lanes(store, queue.queue_id, charging)
    assert [(lane.key, lane.fits) for lane in fresh] == [("a", 0), ("b", 0), ("c", 1)]
    fresh = await new_lanes(store, queue.queue_id, shipping)
    assert [(lane.key, lane.fits) for lane in fresh] == [("a", 1), ("b", 0), ("c", 1)]

    def write(tx: Tx) -> None:
        for lane in fresh:
            tx.queues.settle(queue.queue_id, [(replace(lane, state=LaneState.READY), 0)])

    await record(store, write)
    assert [lane.key for lane in await lanes(store, queue.queue_id, charging)] == ["c"]
    assert [lane.key for lane in await lanes(store, queue.queue_id, shipping)] == ["a", "c"]


async def test_taking_from_a_lane_gives_the_first_tasks_that_fit(store: Store):
    queue = await a_queue(store)
    types = ["Charge", "Ship", "Charge", "Charge"]
    tasks = [a_task(queue, f"r1-{n}", type=kind) for n, kind in enumerate(types)]
    await enqueue(store, *tasks, a_task(queue, "r2-1", key="other"), a_task(queue, "r2-2", level=4))

    async def take(tx: Tx, worker_filter: WorkerFilter, *wanted: tuple[int, str, int]) -> list[list[str]]:
        return [ids(tasks) for tasks in await tx.queues.take(queue.queue_id, wanted, worker_filter)]

    charging = WorkerFilter(("Charge",), None)
    few = await store.transact(lambda tx: take(tx, charging, (3, "", 2)), key="q")
    assert few == [["r1-0", "r1-2"]]
    many = await store.transact(
        lambda tx: take(tx, ANYTHING, (4, "", 1), (3, "", 9), (9, "nobody", 1), (3, "other", 1)), key="q"
    )
    assert many == [["r2-2"], ["r1-0", "r1-1", "r1-2", "r1-3"], [], ["r2-1"]]


async def test_the_clock_of_each_level_is_kept(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")
    assert await look(store, lambda tx: tx.queues.clocks(queue.queue_id)) == []

    def write(tx: Tx) -> None:
        tx.queues.settle(queue.queue_id, (), [VirtualClock(4, 2**62, 1)])
        tx.queues.settle(queue.queue_id, (), [VirtualClock(0, 5, 2)])
        tx.queues.settle(other.queue_id, (), [VirtualClock(0, 6, 3)])

    await record(store, write)
    await record(store, lambda tx: tx.queues.settle(queue.queue_id, (), [VirtualClock(0, 7, 0)]))
    found = await look(store, lambda tx: tx.queues.clocks(queue.queue_id))
    assert found == [VirtualClock(0, 7, 0), VirtualClock(4, 2**62, 1)]


async def test_the_counts_of_a_queue_are_exact(store: Store):
    queue = await a_queue(store)
    await enqueue(
        store,
        *(a_task(queue, f"r1-{n}", enqueued_at_ms=NOW_MS - 9 + n) for n in range(5)),
        a_task(queue, "r1-7", key="tenant", enqueued_at_ms=NOW_MS - 1),
        a_task(queue, "r1-8", state=TaskState.DELAYED),
    )
    granted = await claim(store, queue.queue_id, 3)
    late = replace(granted[0], lease_expires_at_ms=NOW_MS)
    await record(store, lambda tx: tx.tasks.save(late, TaskState.LEASED))
    counted = await stats(store, queue.queue_id)
    assert (counted.ready, counted.leased, counted.expired, counted.delayed) == (3, 2, 1, 1)


async def test_an_empty_queue_counts_nothing(store: Store):
    queue = await a_queue(store)
    assert await stats(store, queue.queue_id) == QueueStats()


async def test_the_oldest_task_of_a_queue_is_the_one_that_waits_longest_at_any_level(store: Store):
    queue = await a_queue(store)
    ages = {"r1-1": (5, "a", 8), "r1-2": (5, "b", 7), "r1-3": (0, "b", 9), "r1-4": (9, "c", 9)}
    for name, (level, key, age) in ages.items():
        task = a_task(queue, name, level=level, key=key, enqueued_at_ms=NOW_MS - age)
        await enqueue(store, task)
    await enqueue(store, a_task(queue, "r1-5", state=TaskState.DELAYED, enqueued_at_ms=NOW_MS - 99))
    oldest = (await stats(store, queue.queue_id)).oldest
    assert oldest is not None
    assert oldest.task_id == "r1-3"


async def test_the_meter_of_the_minute_counts_what_came_and_what_was_dispatched(store: Store):
    queue = await a_queue(store)

    async def operation(tx: Tx) -> int:
        for n in range(3):
            task = a_task(queue, f"r1-{n}", state=TaskState.DELAYED if n else TaskState.READY)
            tx.tasks.insert(task, standing_of(task))
        tx.queues.count_dispatches(queue.queue_id, tx.now_ms // 60_000, 2)
        return tx.now_ms

    now_ms = await store.transact(operation, key="r1")
    await record(store, lambda tx: tx.queues.count_dispatches(queue.queue_id, now_ms // 60_000, 5))
    counted = await stats(store, queue.queue_id, now_ms)
    assert (counted.added_last_minute, counted.dispatched_last_minute) == (3, 7)
    counted = await stats(store, queue.queue_id, now_ms + 60_000)
    assert (counted.added_last_minute, counted.dispatched_last_minute) == (0, 0)


async def test_one_ready_task_of_each_type_and_build_and_how_many_there_are(store: Store):
    queue = await a_queue(store)
    wanted = [("Charge", None), ("Charge", "b2"), ("Ship", None), ("Charge", None), ("Ärger", "b1")]
    for number, (type_, build) in enumerate(wanted):
        await enqueue(store, replace(a_task(queue, f"t{number}"), type=type_, compatibility=build))
    found = await look(store, lambda tx: tx.queues.route_heads(queue.queue_id, 100))
    assert [(each.type, each.compatibility) for each in found] == [
        ("Charge", None),
        ("Charge", "b2"),
        ("Ship", None),
        ("Ärger", "b1"),
    ]
    assert found[0].task_id == "t0"
    assert len(await look(store, lambda tx: tx.queues.route_heads(queue.queue_id, 2))) == 2

    async def count(type_: str, build: str | None, most: int = 10) -> int:
        return await look(store, lambda tx: tx.queues.count_route(queue.queue_id, type_, build, most))

    assert [await count("Charge", None), await count("Charge", "b2"), await count("Refund", None)] == [
        2,
        1,
        0,
    ]
    assert await count("Charge", None, most=1) == 1
    other = await a_queue(store, name="other")
    assert await look(store, lambda tx: tx.queues.route_heads(other.queue_id, 10)) == []
