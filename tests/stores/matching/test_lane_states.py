"""Lane states, what a claim sees of them, and the backlog."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.model import Queue, QueueId, TaskState
from penstock.core.scheduling.backlog import Backlog, LevelBacklog
from penstock.core.scheduling.dispatch import BlockedLanes, WorkerFilter
from penstock.core.scheduling.fairness import (
    ALL_LEVELS,
    Arrival,
    Lane,
    LaneState,
    Starving,
    VirtualClock,
    rank,
)
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import (
    ANYTHING,
    a_lane,
    a_queue,
    busy_lanes,
    claim,
    enqueue,
    look,
    places,
    record,
    stand,
)
from tests.support.builders import NOW_MS, a_task, released

SHIPPING = WorkerFilter(("Pack", "Ship"), "build-2")


async def lanes(
    store: Store, queue: Queue, room: int = 10, levels: tuple[int, int] = ALL_LEVELS
) -> list[tuple[int, str]]:
    found = await look(store, lambda tx: tx.queues.lanes(queue.queue_id, ANYTHING, room, levels))
    return [lane.lane_key for lane in found]


async def to_place(
    store: Store, queue: Queue, lane_state: LaneState, worker_filter: WorkerFilter = ANYTHING
) -> Sequence[Lane]:
    return await look(store, lambda tx: tx.queues.lanes_to_tag(queue.queue_id, worker_filter, lane_state))


async def due(
    store: Store, queue: Queue, now_ms: int = NOW_MS, worker_filter: WorkerFilter = ANYTHING
) -> Sequence[Lane]:
    return await look(store, lambda tx: tx.queues.lanes_due(queue.queue_id, worker_filter, now_ms))


async def filled(store: Store, *lanes: Lane) -> Queue:
    """A queue where each lane has one task and a given state."""
    queue = await a_queue(store)
    tasks = (a_task(queue, f"r{n}-1", key=lane.key, level=lane.level) for n, lane in enumerate(lanes))
    await enqueue(store, *tasks)
    await stand(store, queue.queue_id, *lanes)
    return queue


def waiting(key: str, open_at_ms: int, level: int = 3) -> Lane:
    return a_lane(key, LaneState.THROTTLED, level, open_at_ms=open_at_ms)


# ── Coming and going ────────────────────────────────────────────────────────────────────────────────────


async def test_a_busy_lane_keeps_its_place_when_tasks_of_the_same_weight_join(store: Store):
    standing = {lane_state.name: lane_state for lane_state in LaneState}
    queue = await filled(store, *(a_lane(key, lane_state) for key, lane_state in standing.items()))
    await enqueue(store, *(a_task(queue, f"more{n}-1", key=key) for n, key in enumerate(standing)))
    found = await busy_lanes(store, queue.queue_id)
    assert {key: (lane.state, lane.count) for (_, key), lane in found.items()} == {
        key: (lane_state, 2) for key, lane_state in standing.items()
    }


async def test_a_busy_lane_keeps_its_place_when_a_task_comes_back(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, "r1-1"), a_task(queue, "r1-2"))
    [granted] = await claim(store, queue.queue_id, 1)
    await stand(store, queue.queue_id, a_lane(state=LaneState.BLOCKED))
    await record(store, lambda tx: tx.tasks.save(released(granted, TaskState.READY), TaskState.LEASED))
    assert await places(store, queue.queue_id) == {(3, ""): LaneState.BLOCKED}


async def test_a_lane_that_was_put_aside_is_fresh_when_work_comes_after_a_rest(store: Store):
    queue = await filled(store, a_lane("a", LaneState.BLOCKED))
    gone = released(a_task(queue, "r0-1", key="a"), TaskState.CANCELLED)
    await record(store, lambda tx: tx.tasks.save(gone, TaskState.READY))
    assert await places(store, queue.queue_id) == {}
    await enqueue(store, a_task(queue, "r1-1", key="a"))
    assert await places(store, queue.queue_id) == {(3, "a"): LaneState.NEW}


async def test_another_weight_makes_a_lane_fresh_wherever_it_stands(store: Store):
    queue = await filled(store, a_lane("a", LaneState.BLOCKED), waiting("b", NOW_MS))
    await enqueue(store, a_task(queue, "r8-1", key="a"), a_task(queue, "r9-1", key="b"), weight_milli=2000)
    assert await places(store, queue.queue_id) == {(3, "a"): LaneState.NEW, (3, "b"): LaneState.NEW}


async def test_the_weight_of_the_operator_beats_what_tasks_carry(store: Store):
    queue = await filled(store, a_lane("a"))
    await stand(store, queue.queue_id, a_lane("a", weight_milli=5000, override_milli=5000))
    assert await places(store, queue.queue_id) == {(3, "a"): LaneState.READY}
    await enqueue(store, a_task(queue, "r9-1", key="a"), weight_milli=2000)
    [lane] = (await busy_lanes(store, queue.queue_id)).values()
    assert (lane.state, lane.wanted_milli, lane.override_milli) == (LaneState.READY, 2000, 5000)
    await stand(store, queue.queue_id, a_lane("a", weight_milli=5000))
    assert await places(store, queue.queue_id) == {(3, "a"): LaneState.NEW}


async def test_a_weight_that_came_while_a_claim_put_a_lane_aside_makes_it_fresh(store: Store):
    queue = await filled(store, a_lane("a"))
    await enqueue(store, a_task(queue, "r9-1", key="a"), weight_milli=2000)
    await stand(store, queue.queue_id, a_lane("a", LaneState.BLOCKED, held_at=5))
    assert await places(store, queue.queue_id) == {(3, "a"): LaneState.NEW}


async def test_where_a_lane_stands_is_kept_whole(store: Store):
    queue = await filled(store, a_lane("a"))
    standing = a_lane("a", LaneState.THROTTLED, tag=2**62, rank=rank(0, 1_000), open_at_ms=NOW_MS + 7)
    await stand(store, queue.queue_id, standing)
    assert await busy_lanes(store, queue.queue_id) == {(3, "a"): replace(standing, count=1)}


async def test_a_lane_ranked_by_what_its_key_no_longer_runs_is_looked_at_again(store: Store):
    queue = await filled(store, a_lane("a"))
    await stand(store, queue.queue_id, a_lane("a", rank=rank(1, 1_000)))
    assert (await busy_lanes(store, queue.queue_id))[3, "a"].state == LaneState.DIRTY


# ── What a claim sees ───────────────────────────────────────────────────────────────────────────────────


async def test_only_ready_lanes_come_by_level_and_rank_and_tag_and_key(store: Store):
    queue = await filled(
        store,
        a_lane("a", weight_milli=500, override_milli=500, rank=rank(0, 500), tag=1),
        a_lane("b", rank=rank(0, 1_000), tag=9),
        a_lane("d", rank=rank(0, 1_000), tag=3),
        a_lane("c", rank=rank(0, 1_000), tag=3),
        a_lane("z", level=1, weight_milli=5, override_milli=5, rank=rank(0, 5)),
        a_lane("fresh", LaneState.NEW),
        a_lane("stale", LaneState.DIRTY),
        waiting("waiting", NOW_MS - 1),
        a_lane("held", LaneState.BLOCKED),
    )
    assert await lanes(store, queue) == [(1, "z"), (3, "c"), (3, "d"), (3, "b"), (3, "a")]
    assert await lanes(store, queue, room=2) == [(1, "z"), (3, "c")]


async def test_the_lanes_of_some_levels_can_be_asked_for(store: Store):
    queue = await filled(store, *(a_lane(f"k{level}", level=level) for level in range(10)))
    assert await lanes(store, queue, levels=(4, 6)) == [(4, "k4"), (5, "k5"), (6, "k6")]
    assert await lanes(store, queue, levels=(9, 9)) == [(9, "k9")]
    assert await lanes(store, queue, room=1, levels=(2, 9)) == [(2, "k2")]


async def test_fresh_and_stale_lanes_are_asked_for_apart(store: Store):
    queue = await filled(
        store,
        a_lane("b", LaneState.NEW),
        a_lane("a", LaneState.NEW, level=4),
        a_lane("d", LaneState.DIRTY, tag=77),
        a_lane("c", LaneState.DIRTY, level=2),
        a_lane("ready"),
        a_lane("held", LaneState.BLOCKED),
        waiting("waiting", NOW_MS),
    )
    assert [lane.lane_key for lane in await to_place(store, queue, LaneState.NEW)] == [(3, "b"), (4, "a")]
    stale = await to_place(store, queue, LaneState.DIRTY)
    assert stale == [
        a_lane("c", LaneState.DIRTY, level=2, count=1),
        a_lane("d", LaneState.DIRTY, tag=77, count=1),
    ]


async def test_at_most_256_stale_lanes_are_looked_at_together(store: Store):
    names = [f"k{n:03}" for n in range(300)]
    queue = await filled(store, *(a_lane(key, LaneState.DIRTY) for key in reversed(names)))
    assert [lane.key for lane in await to_place(store, queue, LaneState.DIRTY)] == names[:256]
    assert await to_place(store, queue, LaneState.NEW) == []


async def test_lanes_that_waited_long_enough_come_by_the_moment_they_waited_for(store: Store):
    queue = await filled(
        store,
        waiting("b", NOW_MS, level=2),
        waiting("d", NOW_MS - 1),
        waiting("a", NOW_MS),
        waiting("c", NOW_MS, level=2),
        waiting("later", NOW_MS + 1),
        a_lane("held", LaneState.BLOCKED, open_at_ms=NOW_MS - 5),
        a_lane("stale", LaneState.DIRTY, open_at_ms=NOW_MS - 5),
    )
    found = await due(store, queue)
    assert [lane.lane_key for lane in found] == [(3, "d"), (2, "b"), (2, "c"), (3, "a")]
    assert found[0] == replace(waiting("d", NOW_MS - 1), count=1)
    assert await due(store, queue, NOW_MS - 2) == []


async def test_at_most_256_due_lanes_are_looked_at_together(store: Store):
    names = [f"k{n:03}" for n in range(300)]
    queue = await filled(store, *(waiting(key, NOW_MS - n) for n, key in enumerate(names)))
    assert [lane.key for lane in await due(store, queue)] == names[:43:-1]


async def test_lanes_to_place_and_due_ones_say_whether_they_hold_something_that_fits(store: Store):
    queue = await a_queue(store)
    await enqueue(
        store,
        a_task(queue, "r1-1", key="a", type="Ship"),
        a_task(queue, "r1-2", key="b", type="Charge"),
        a_task(queue, "r1-3", key="c", type="Ship", compatibility="build-1"),
        a_task(queue, "r1-4", key="c", type="Ship", compatibility="build-2"),
        a_task(queue, "r1-5", key="d", type="Charge", compatibility="build-1"),
    )
    shipping, any_type = [("a", 1), ("b", 0), ("c", 1), ("d", 0)], [("a", 1), ("b", 1), ("c", 1), ("d", 0)]
    for lane_state in (LaneState.NEW, LaneState.DIRTY):
        await stand(store, queue.queue_id, *(a_lane(key, lane_state) for key in "abcd"))
        found = await to_place(store, queue, lane_state, SHIPPING)
        assert [(lane.key, lane.fits) for lane in found] == shipping
        found = await to_place(store, queue, lane_state, WorkerFilter((), "build-2"))
        assert [(lane.key, lane.fits) for lane in found] == any_type
    await stand(store, queue.queue_id, *(waiting(key, NOW_MS) for key in "abcd"))
    assert [(lane.key, lane.fits) for lane in await due(store, queue, worker_filter=SHIPPING)] == shipping
    found = await due(store, queue, worker_filter=WorkerFilter((), "build-2"))
    assert [(lane.key, lane.fits) for lane in found] == any_type


async def blocked(store: Store, queue: Queue) -> BlockedLanes:
    return await look(store, lambda tx: tx.queues.blocked(queue.queue_id))


async def test_a_queue_tells_when_the_first_of_its_waiting_lanes_opens_and_whether_any_is_held(store: Store):
    queue = await filled(
        store,
        waiting("a", NOW_MS + 9),
        waiting("b", NOW_MS + 5),
        a_lane("c", LaneState.DIRTY, open_at_ms=NOW_MS),
        a_lane("d"),
    )
    assert await blocked(store, queue) == BlockedLanes(NOW_MS + 5, any_held=False)
    await stand(store, queue.queue_id, a_lane("b", LaneState.BLOCKED))
    assert await blocked(store, queue) == BlockedLanes(NOW_MS + 9, any_held=True)


async def test_a_lane_without_tasks_blocks_nobody(store: Store):
    queue = await filled(store, waiting("a", NOW_MS), a_lane("b", LaneState.BLOCKED))
    await stand(store, queue.queue_id, waiting("a", NOW_MS), a_lane("b", LaneState.BLOCKED), taken=1)
    assert await blocked(store, queue) == BlockedLanes()
    assert await due(store, queue) == []


# ── In order of arrival ─────────────────────────────────────────────────────────────────────────────────


async def arrivals(
    store: Store,
    queue: Queue,
    worker_filter: WorkerFilter = ANYTHING,
    room: int = 10,
    levels: tuple[int, int] = ALL_LEVELS,
    now_ms: int = NOW_MS,
) -> list[tuple[Arrival, Lane]]:
    return [
        *await look(store, lambda tx: tx.queues.arrivals(queue.queue_id, worker_filter, room, now_ms, levels))
    ]


async def names(store: Store, found: Sequence[tuple[Arrival, Lane]], queue_id: QueueId) -> list[str]:
    """The tasks by their sequence numbers."""
    wanted = [(arrival.level, arrival.key, 99) for arrival, _ in found]
    taken = await store.transact(lambda tx: tx.queues.take(queue_id, wanted, ANYTHING), key="names")
    by_seq = {task.seq: task.task_id for tasks in taken for task in tasks}
    return [by_seq[arrival.seq] for arrival, _ in found]


async def test_tasks_come_by_level_and_arrival_whatever_their_key(store: Store):
    queue = await a_queue(store)
    for n, (level, key) in enumerate([(3, "b"), (3, "a"), (1, "z"), (3, "b"), (1, "a")]):
        await enqueue(store, a_task(queue, f"r{n}-1", level=level, key=key))
    found = await arrivals(store, queue)
    assert await names(store, found, queue.queue_id) == ["r2-1", "r4-1", "r0-1", "r1-1", "r3-1"]
    assert await arrivals(store, queue, room=2) == found[:2]
    assert await arrivals(store, queue, levels=(2, 9)) == found[2:]
    assert await arrivals(store, queue, levels=(1, 1), room=1) == found[:1]
    assert [(arrival.level, arrival.key) for arrival, _ in found] == [lane.lane_key for _, lane in found]
    everybody = await busy_lanes(store, queue.queue_id)
    assert {lane.lane_key: lane for _, lane in found} == everybody


async def test_arrivals_of_keys_that_may_not_go_are_stepped_over(store: Store):
    queue = await filled(
        store,
        a_lane("held", LaneState.BLOCKED),
        a_lane("held since it waited", LaneState.BLOCKED, open_at_ms=NOW_MS - 1),
        waiting("later", NOW_MS + 1),
        waiting("due", NOW_MS),
        a_lane("ready"),
        a_lane("fresh", LaneState.NEW),
        a_lane("stale", LaneState.DIRTY),
    )
    for worker_filter in (ANYTHING, WorkerFilter(("Order",), None)):
        found = await arrivals(store, queue, worker_filter, room=3)
        assert [arrival.key for arrival, _ in found] == ["due", "ready", "fresh"]
        found = await arrivals(store, queue, worker_filter, now_ms=NOW_MS + 1)
        assert [arrival.key for arrival, _ in found] == ["later", "due", "ready", "fresh", "stale"]


async def test_arrivals_that_do_not_fit_are_stepped_over(store: Store):
    queue = await a_queue(store)
    kinds = [
        ("Charge", None),
        ("Ship", "build-1"),
        ("Ship", "build-2"),
        ("Pack", None),
        ("Charge", "build-2"),
        ("Ship", None),
    ]
    for n, (kind, build) in enumerate(kinds):
        await enqueue(store, a_task(queue, f"r{n}-1", key=f"k{n}", type=kind, compatibility=build))
    for worker_filter, room, expected in (
        (SHIPPING, 9, ["k2", "k3", "k5"]),
        (SHIPPING, 2, ["k2", "k3"]),
        (WorkerFilter((), "build-2"), 4, ["k0", "k2", "k3", "k4"]),
        (ANYTHING, 9, ["k0", "k3", "k5"]),
    ):
        assert [arrival.key for arrival, _ in await arrivals(store, queue, worker_filter, room)] == expected


# ── How many, and for how long ──────────────────────────────────────────────────────────────────────────


async def starving(store: Store, queue: Queue, since_ms: int, most: int = 10) -> list[Starving]:
    return [*await look(store, lambda tx: tx.queues.starving(queue.queue_id, since_ms, most))]


async def test_a_level_starves_while_some_of_its_tasks_wait_too_long(store: Store):
    queue = await a_queue(store)
    ages = [(0, 9), (4, 7), (4, 6), (4, 5), (9, 1)]
    for n, (level, age) in enumerate(ages):
        task = a_task(queue, f"r{n}-1", level=level, key=f"k{n}", enqueued_at_ms=NOW_MS - age)
        await enqueue(store, task)
    await enqueue(store, a_task(queue, "r9-1", level=7, state=TaskState.DELAYED, enqueued_at_ms=NOW_MS - 99))
    assert await starving(store, queue, NOW_MS - 6) == [
        Starving(0, NOW_MS - 9, 1),
        Starving(4, NOW_MS - 7, 2),
    ]
    assert await starving(store, queue, NOW_MS, most=2) == [
        Starving(0, NOW_MS - 9, 1),
        Starving(4, NOW_MS - 7, 2),
        Starving(9, NOW_MS - 1, 1),
    ]
    assert await starving(store, queue, NOW_MS - 10) == []


async def test_what_runs_is_counted_no_further_than_asked(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")
    for line in (queue, other):
        await enqueue(store, *(a_task(line, f"{line.name}{n}-1") for n in range(5)))
        await claim(store, line.queue_id, 3)
    for most, running in ((0, 0), (2, 2), (3, 3), (9, 3)):
        assert await look(store, lambda tx, most=most: tx.queues.running(queue.queue_id, most)) == running  # type: ignore[misc]


async def test_virtual_time_can_start_again_with_all_as_far_apart_as_they_were(store: Store):
    queue = await filled(
        store, a_lane("a", tag=2**61 + 5), a_lane("b", tag=2**61 - 5), a_lane("c", level=4, tag=9)
    )
    clock = VirtualClock(3, 2**61, 2)

    def write(tx: Tx) -> None:
        tx.queues.settle(queue.queue_id, (), [clock])
        tx.queues.settle(queue.queue_id, (), [VirtualClock(4, 6, 1)])

    await record(store, write)
    await store.transact(lambda tx: tx.queues.rebase(queue.queue_id, clock), key="rebase")
    found = await busy_lanes(store, queue.queue_id)
    assert {lane_key: lane.tag for lane_key, lane in found.items()} == {
        (3, "a"): 5,
        (3, "b"): -5,
        (4, "c"): 9,
    }
    clocks = await look(store, lambda tx: tx.queues.clocks(queue.queue_id))
    assert clocks == [VirtualClock(3, 0, 2), VirtualClock(4, 6, 1)]


# ── The backlog ─────────────────────────────────────────────────────────────────────────────────────────


async def backlog(store: Store, queue: Queue, now_ms: int = NOW_MS, top: int = 10) -> Backlog:
    return await look(store, lambda tx: tx.queues.backlog(queue.queue_id, now_ms, top))


async def give(store: Store, queue: Queue, *lanes: Lane, taken: int) -> int:
    """Charge lanes for dispatched tasks; returns the time."""

    async def operation(tx: Tx) -> int:
        for lane in lanes:
            tx.queues.settle(queue.queue_id, [(lane, taken)])
        return tx.now_ms

    return await store.transact(operation, key="give")


async def test_an_empty_queue_has_no_backlog(store: Store):
    assert await backlog(store, await a_queue(store)) == Backlog()


async def test_a_backlog_tells_of_each_level_and_of_the_largest_lanes(store: Store):
    queue = await a_queue(store)
    for n, (level, key, weight_milli) in enumerate(
        [(3, "b", 1000), (3, "a", 2500), (3, "b", 1000), (0, "a", 500), (3, "c", 1000)]
    ):
        task = a_task(queue, f"r{n}-1", level=level, key=key, enqueued_at_ms=NOW_MS - 10 + n)
        await enqueue(store, task, weight_milli=weight_milli)
    await stand(store, queue.queue_id, a_lane("c", LaneState.BLOCKED, weight_milli=7000, override_milli=7000))
    found = await backlog(store, queue, top=2)
    assert found.levels == (
        LevelBacklog(0, 1, 1, 500, 0, 0, NOW_MS - 7),
        LevelBacklog(3, 4, 3, 10_500, 0, 0, NOW_MS - 10),
    )
    assert [(each.lane.lane_key, each.lane.count, each.oldest_ms) for each in found.lanes] == [
        ((3, "b"), 2, NOW_MS - 10),
        ((0, "a"), 1, NOW_MS - 7),
    ]
    largest = (await backlog(store, queue)).lanes
    assert [each.lane.lane_key for each in largest] == [(3, "b"), (0, "a"), (3, "a"), (3, "c")]
    assert largest[-1].lane == a_lane("c", LaneState.BLOCKED, weight_milli=7000, override_milli=7000, count=1)


def given(found: Backlog) -> list[tuple[str, int, int]]:
    return sorted((each.lane.key, each.dispatched, each.dispatched_before) for each in found.lanes)


async def test_a_backlog_tells_what_was_given_in_this_minute_and_in_the_one_before(store: Store):
    queue = await a_queue(store)
    await enqueue(store, *(a_task(queue, f"{key}{n}-1", key=key) for key in "ab" for n in range(9)))
    now_ms = await give(store, queue, a_lane("a"), taken=2)
    found = await backlog(store, queue, now_ms)
    assert given(found) == [("a", 2, 0), ("b", 0, 0)]
    assert [(level.dispatched, level.dispatched_before) for level in found.levels] == [(2, 0)]
    found = await backlog(store, queue, now_ms + 60_000)
    assert given(found) == [("a", 0, 2), ("b", 0, 0)]
    assert [(level.dispatched, level.dispatched_before) for level in found.levels] == [(0, 2)]
    assert given(await backlog(store, queue, now_ms + 120_000)) == [("a", 0, 0), ("b", 0, 0)]
    then_ms = await give(store, queue, a_lane("a"), a_lane("b"), taken=3)
    same = then_ms // 60_000 == now_ms // 60_000
    assert given(await backlog(store, queue, then_ms)) == [("a", *((5, 0) if same else (3, 2))), ("b", 3, 0)]
