"""Policies of queues and keys, rate debts and lease counts of keys, and the log of changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import pytest
from msgspec.structs import replace

from penstock.core.limits.admission import NO_LIMITS
from penstock.core.limits.policies import (
    NO_POLICY,
    KeySettings,
    KeyState,
    LimitSetting,
    Policy,
    PolicyChange,
    SettingValue,
)
from penstock.core.limits.rate_reports import RateConflict, WorkerRate
from penstock.core.limits.windows import NOTHING
from penstock.core.model import Queue, QueueId, Task, TaskId, TaskState
from penstock.core.scheduling.fairness import Lane, LaneState, rank
from penstock.ports.store import Store, Tx
from penstock.ports.wakeups import queue_topic
from penstock.wakeups.local import LocalWakeups
from tests.stores.store_operations import (
    ANYTHING,
    a_lane,
    a_queue,
    busy_lanes,
    claim,
    enqueue,
    look,
    places,
    queue_now,
    record,
    stand,
    untimed,
)
from tests.support.builders import NOW_MS, a_namespace, a_task, released
from tests.support.patience import PATIENCE_S

LATER_NS = 1 << 62
"""Later than the clock of any store."""
POLICY = Policy(
    version=7,
    settings={
        LimitSetting.QUEUE_RATE: SettingValue(2_500_000, "ann", NOW_MS, "the bank asked, süß & gentle"),
        LimitSetting.COUNTS: SettingValue("running", "bob", NOW_MS + 1),
        LimitSetting.AGING_WAIT: SettingValue(60_000, "ann", NOW_MS),
        LimitSetting.AGING_EVERY: SettingValue(5, "ann", NOW_MS),
    },
    overridden_keys=1,
    limited_keys=3,
    capped_keys=2,
)
RATE = WorkerRate(
    1_500_000,
    "worker-1",
    NOW_MS,
    NOW_MS + 315_000,
    250,
    RateConflict("worker-ß", 9_000_000, "worker-1", 1_500_000, NOW_MS - 5, NOW_MS),
)


def said(queue: Queue) -> Queue:
    """A queue without the time at which it was read and the limits computed from it."""
    return replace(untimed(queue), limits=NO_LIMITS)


async def states(store: Store, queue_id: QueueId, *keys: str) -> Mapping[str, KeyState]:
    return await look(store, lambda tx: tx.policies.key_states(queue_id, keys))


async def key_names(store: Store, queue_id: QueueId, limit: int = 100) -> list[str]:
    return [
        each.key for each in await look(store, lambda tx: tx.policies.keys_with_settings(queue_id, limit))
    ]


def asked(key: str, **values: int | None) -> KeySettings:
    return replace(KeySettings(key, author="ann", at_ms=NOW_MS, reason="because"), **values)


def spend(tx: Tx, queue: Queue, running: Mapping[str, int]) -> None:
    for key, leased in running.items():
        tx.policies.spend(queue.queue_id, key, None, leased)


# ── The settings of a line ──────────────────────────────────────────────────────────────────────────────


async def test_a_line_has_no_settings_until_somebody_asks_for_some(store: Store):
    queue = await a_queue(store)
    assert untimed(queue) == Queue(queue.queue_id, "default", "orders", queue.kind)
    assert (queue.policy, queue.worker_rate, queue.paid_until_ns, queue.aging_turn) == (NO_POLICY, None, 0, 0)
    assert untimed(await queue_now(store, queue.queue_id)) == untimed(queue)


async def test_settings_are_found_wherever_the_line_is(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")

    def write(tx: Tx) -> None:
        tx.policies.save(queue.queue_id, POLICY)
        tx.policies.save_worker_rate(queue.queue_id, RATE)
        tx.policies.settle(queue.queue_id, LATER_NS, 4, NOTHING)

    await record(store, write)
    expected = replace(queue, policy=POLICY, worker_rate=RATE, paid_until_ns=LATER_NS, aging_turn=4)
    found = await look(store, lambda tx: tx.queues.find("default", "orders"))
    listed = await look(store, lambda tx: tx.queues.list("default"))
    for each in (await queue_now(store, queue.queue_id), *found, listed[0]):
        assert said(each) == said(expected)
    assert [said(each) for each in listed] == [said(expected), said(other)]
    assert expected.rules.queue_rate is not None


async def test_a_later_policy_takes_the_place_of_the_one_before(store: Store):
    queue = await a_queue(store)
    await record(store, lambda tx: tx.policies.save(queue.queue_id, POLICY))
    await record(store, lambda tx: tx.policies.save(queue.queue_id, Policy(8)))
    assert (await queue_now(store, queue.queue_id)).policy == Policy(8)


def _convey(queue: Queue, rate: WorkerRate | None, tx: Tx) -> None:
    tx.policies.save_worker_rate(queue.queue_id, rate)


async def test_what_a_worker_conveyed_can_be_forgotten(store: Store):
    queue = await a_queue(store)
    for rate in (RATE, replace(RATE, until_ms=None, burst_ms=None, conflict=None)):
        await record(store, partial(_convey, queue, rate))
        assert (await queue_now(store, queue.queue_id)).worker_rate == rate
    await record(store, partial(_convey, queue, None))
    assert untimed(await queue_now(store, queue.queue_id)) == untimed(queue)


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_policy_survives_a_restart(store: Store, reopened: Callable[[], Awaitable[Store]]):
    queue = await a_queue(store)
    change = PolicyChange(7, NOW_MS, "ann", LimitSetting.QUEUE_RATE, None, None, "2500000", "the bank asked")

    def write(tx: Tx) -> None:
        tx.policies.save(queue.queue_id, POLICY)
        tx.policies.settle(queue.queue_id, LATER_NS, 2, NOTHING)
        tx.policies.save_key(queue.queue_id, asked("tenant", rate_micro=5))
        tx.policies.spend(queue.queue_id, "tenant", LATER_NS, 3)
        tx.policies.log(queue.queue_id, [change])

    await record(store, write)
    again = await reopened()
    assert said(await a_queue(again)) == said(
        replace(queue, policy=POLICY, paid_until_ns=LATER_NS, aging_turn=2)
    )
    assert await states(again, queue.queue_id, "tenant") == {
        "tenant": KeyState("tenant", rate_micro=5, paid_until_ns=LATER_NS, running=3)
    }
    assert await look(again, lambda tx: tx.policies.changes(queue.queue_id, 10)) == [change]


async def test_a_line_knows_what_its_namespace_says_of_fairness(store: Store):
    queue = await a_queue(store)
    assert queue.fair_by_default == 1, "nobody said anything"
    unfair = a_namespace(queue.namespace, fair=0)
    await store.transact(lambda tx: tx.namespaces.reserve(unfair), key="ns")
    assert (await queue_now(store, queue.queue_id)).fair_by_default == 0
    assert [each.fair_by_default for each in await look(store, lambda tx: tx.queues.list("default"))] == [0]
    assert (await a_queue(store, name="refunds")).fair_by_default == 0
    await record(store, lambda tx: tx.namespaces.save(replace(unfair, fair=1)))
    assert [
        each.fair_by_default for each in await look(store, lambda tx: tx.queues.find("default", "orders"))
    ] == [1]


async def test_an_operation_that_fails_changes_no_settings(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, "r1-1", key="a"), a_task(queue, "r1-2", key="a"))
    [task] = await claim(store, queue.queue_id, 1)
    before = await busy_lanes(store, queue.queue_id)

    async def fail(tx: Tx) -> None:
        tx.policies.save(queue.queue_id, POLICY)
        tx.policies.save_key(queue.queue_id, asked("a", paused=1))
        tx.policies.touch_key(queue.queue_id, "a", LaneState.NEW)
        await tx.policies.count_leases(queue.queue_id)
        await tx.policies.rank_lanes(queue.queue_id, by_running=True)
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        await store.transact(fail, key="fails")
    assert (await queue_now(store, queue.queue_id)).policy == NO_POLICY
    assert await states(store, queue.queue_id, "a") == {}
    assert await busy_lanes(store, queue.queue_id) == before
    assert await look(store, lambda tx: tx.tasks.get(task.task_id)) == task


# ── Keys ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_asked_for_a_key_is_kept_for_this_line_alone(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")
    mine = asked("tenant", weight_milli=2500, rate_micro=0, lease_cap=7, paused=1)

    def write(tx: Tx) -> None:
        tx.policies.save_key(queue.queue_id, mine)
        tx.policies.save_key(other.queue_id, asked("tenant", paused=1))
        tx.policies.spend(queue.queue_id, "paying", 5, 0)

    await record(store, write)
    names = ["tenant", "paying", "nobody", "tenant"]
    found = await look(store, lambda tx: tx.policies.key_settings(queue.queue_id, names))
    assert found == {"tenant": mine}
    assert await states(store, queue.queue_id, *names) == {
        "tenant": KeyState("tenant", 2500, 0, 7, 1),
        "paying": KeyState("paying", paid_until_ns=5),
    }
    assert await states(store, queue.queue_id) == {}


async def test_keys_with_settings_come_by_name_and_are_counted(store: Store):
    queue = await a_queue(store)
    names = ["b", "B", "", "ä", "a"]

    def write(tx: Tx) -> None:
        for key in names:
            tx.policies.save_key(queue.queue_id, asked(key, paused=1))
        tx.policies.spend(queue.queue_id, "other", 5, 1)

    await record(store, write)
    assert await key_names(store, queue.queue_id) == ["", "B", "a", "b", "ä"]
    assert await key_names(store, queue.queue_id, limit=2) == ["", "B"]
    assert await look(store, lambda tx: tx.policies.count_keys_with_settings(queue.queue_id)) == 5


async def test_a_key_for_which_nothing_is_asked_any_more_has_no_settings_and_keeps_the_rest(store: Store):
    queue = await a_queue(store)
    await record(store, lambda tx: tx.policies.spend(queue.queue_id, "tenant", 5, 2))
    await record(store, lambda tx: tx.policies.save_key(queue.queue_id, asked("tenant", lease_cap=3)))
    assert (await states(store, queue.queue_id, "tenant"))["tenant"].lease_cap == 3
    await record(store, lambda tx: tx.policies.save_key(queue.queue_id, asked("tenant")))
    assert await key_names(store, queue.queue_id) == []
    assert await look(store, lambda tx: tx.policies.count_keys_with_settings(queue.queue_id)) == 0
    assert await look(store, lambda tx: tx.policies.key_settings(queue.queue_id, ["tenant"])) == {}
    assert await states(store, queue.queue_id, "tenant") == {
        "tenant": KeyState("tenant", paid_until_ns=5, running=2)
    }


async def test_leases_of_a_key_add_up_and_what_it_has_paid_is_the_latest(store: Store):
    queue = await a_queue(store)
    for paid_until_ns, leased in ((5, 2), (None, 1), (9, 0)):
        await record(
            store,
            lambda tx, paid=paid_until_ns, more=leased: tx.policies.spend(queue.queue_id, "a", paid, more),  # type: ignore[misc]
        )
    assert await states(store, queue.queue_id, "a") == {"a": KeyState("a", paid_until_ns=9, running=3)}


async def test_a_key_that_tells_nothing_is_found_and_forgotten(store: Store):
    queue = await a_queue(store)

    def write(tx: Tx) -> None:
        tx.policies.spend(queue.queue_id, "idle", NOW_MS * 1_000_000, 0)
        tx.policies.spend(queue.queue_id, "owing", NOW_MS * 1_000_000 + 1, 0)
        tx.policies.spend(queue.queue_id, "running", 5, 1)
        tx.policies.save_key(queue.queue_id, asked("asked", paused=1))
        tx.policies.save_key(queue.queue_id, asked("unasked"))

    await record(store, write)
    found = await look(store, lambda tx: tx.policies.idle_keys(NOW_MS, 10))
    assert sorted(found) == [(queue.queue_id, "idle"), (queue.queue_id, "unasked")]
    assert len(await look(store, lambda tx: tx.policies.idle_keys(NOW_MS, 1))) == 1
    names = ["idle", "running", "asked", "unasked", "nobody"]

    def drop(tx: Tx) -> None:
        for key in names:
            tx.policies.drop_key(queue.queue_id, key)

    await record(store, drop)
    assert set(await states(store, queue.queue_id, *names)) == {"running", "asked"}


async def test_a_key_that_owes_again_since_it_was_found_is_not_forgotten(store: Store):
    queue = await a_queue(store)
    await record(store, lambda tx: tx.policies.spend(queue.queue_id, "a", 1, 0))
    assert await look(store, lambda tx: tx.policies.idle_keys(NOW_MS, 10)) == [(queue.queue_id, "a")]
    await record(store, lambda tx: tx.policies.spend(queue.queue_id, "a", LATER_NS, 0))
    await record(store, lambda tx: tx.policies.drop_key(queue.queue_id, "a"))
    assert (await states(store, queue.queue_id, "a"))["a"].paid_until_ns == LATER_NS


# ── The log ─────────────────────────────────────────────────────────────────────────────────────────────


def a_change(version: int, setting: str, key: str | None = None, **values: str | None) -> PolicyChange:
    plain = PolicyChange(version, NOW_MS + version, "ann", setting, key, None, "1", None)
    return replace(plain, **values)


async def test_the_log_tells_the_newest_change_first_and_its_parts_in_order(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")
    first = [
        a_change(1, "max_running", before="2", reason="süß"),
        a_change(1, "paused", "tenant", after=None),
    ]
    second = [a_change(2, "max_running", before="1", after=None)]

    def write(tx: Tx) -> None:
        tx.policies.log(queue.queue_id, second)
        tx.policies.log(other.queue_id, [a_change(9, "paused", "tenant")])

    await record(store, lambda tx: tx.policies.log(queue.queue_id, first))
    await record(store, write)
    assert await look(store, lambda tx: tx.policies.changes(queue.queue_id, 10)) == [*second, *first]
    assert await look(store, lambda tx: tx.policies.changes(queue.queue_id, 2)) == [*second, first[0]]


async def test_old_versions_are_forgotten(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")

    def write(tx: Tx) -> None:
        for line in (queue, other):
            for version in (1, 2, 3):
                tx.policies.log(line.queue_id, [replace(a_change(version, "max_running"), key=f"{version}")])

    await record(store, write)
    await record(store, lambda tx: tx.policies.forget_changes(queue.queue_id, 2))
    changes = await look(store, lambda tx: tx.policies.changes(queue.queue_id, 10))
    assert [change.version for change in changes] == [3]
    assert len(await look(store, lambda tx: tx.policies.changes(other.queue_id, 10))) == 3


# ── What runs ───────────────────────────────────────────────────────────────────────────────────────────


async def leases(store: Store, queue: Queue, *keys: str) -> list[Task]:
    """One lease per key, and one more ready task of each."""
    tasks = [a_task(queue, f"r{n}-1", key=key) for n, key in enumerate(keys)]
    spare = [a_task(queue, f"spare-{n}", key=key) for n, key in enumerate(dict.fromkeys(keys))]
    await enqueue(store, *tasks)
    granted = await claim(store, queue.queue_id, len(tasks))
    await enqueue(store, *spare)
    return sorted(granted, key=lambda task: task.task_id)


async def count_leases(store: Store, queue: Queue) -> None:
    await store.transact(lambda tx: tx.policies.count_leases(queue.queue_id), key="count")


async def end(store: Store, task: Task, state: TaskState = TaskState.DONE) -> None:
    await record(store, lambda tx: tx.tasks.save(released(task, state), TaskState.LEASED))


async def counted(store: Store, task_id: TaskId) -> Task:
    task = await look(store, lambda tx: tx.tasks.get(task_id))
    assert task is not None
    return task


async def test_leases_are_counted_after_the_fact(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")
    tasks = await leases(store, queue, "a", "b", "a")

    def write(tx: Tx) -> None:
        spend(tx, queue, {"gone": 7, "b": 7})
        tx.policies.save_key(queue.queue_id, asked("a", weight_milli=2000))
        spend(tx, other, {"a": 5})

    await record(store, write)
    await count_leases(store, queue)
    found = await states(store, queue.queue_id, "a", "b", "gone")
    assert {key: state.running for key, state in found.items()} == {"a": 2, "b": 1, "gone": 0}
    assert found["a"].weight_milli == 2000
    assert (await states(store, other.queue_id, "a"))["a"].running == 5
    assert [(await counted(store, task.task_id)).counted for task in tasks] == [1, 1, 1]
    assert (await counted(store, TaskId("spare-0"))).counted == 0


@pytest.mark.parametrize("state", [TaskState.DONE, TaskState.READY, TaskState.DELAYED, TaskState.CANCELLED])
async def test_when_a_counted_lease_ends_its_key_runs_one_less(store: Store, state: TaskState):
    queue = await a_queue(store)
    [first, _] = await leases(store, queue, "a", "a")
    await count_leases(store, queue)
    await end(store, await counted(store, first.task_id), state)
    assert (await states(store, queue.queue_id, "a"))["a"].running == 1
    assert (await counted(store, first.task_id)).counted == 0


async def test_several_counted_leases_may_end_together(store: Store):
    queue = await a_queue(store)
    tasks = await leases(store, queue, "a", "b", "a", "a")
    await count_leases(store, queue)
    ending = [await counted(store, task.task_id) for task in tasks[:3]]

    def write(tx: Tx) -> None:
        for task in ending:
            tx.tasks.save(released(task, TaskState.DONE), TaskState.LEASED)

    await record(store, write)
    found = await states(store, queue.queue_id, "a", "b")
    assert {key: state.running for key, state in found.items()} == {"a": 1, "b": 0}


async def test_a_lease_that_is_not_counted_ends_without_a_word(store: Store, wakeups: LocalWakeups):
    queue = await a_queue(store)
    rang, rang_later = asyncio.Event(), asyncio.Event()
    wakeups.listen(queue_topic(queue.queue_id), rang.set)
    wakeups.listen("run:later", rang_later.set)
    [task] = await leases(store, queue, "a")
    await record(store, lambda tx: spend(tx, queue, {"a": 5}))
    await stand(store, queue.queue_id, a_lane("a", LaneState.BLOCKED))
    await end(store, task)
    await record(store, lambda tx: tx.wake("run:later"))
    async with asyncio.timeout(PATIENCE_S):
        await rang_later.wait()
    assert (await states(store, queue.queue_id, "a"))["a"].running == 5
    assert await places(store, queue.queue_id) == {(3, "a"): LaneState.BLOCKED}
    assert not rang.is_set()


async def test_a_lease_that_goes_on_is_still_counted(store: Store):
    queue = await a_queue(store)
    [task] = await leases(store, queue, "a")
    await count_leases(store, queue)
    renewed = replace(await counted(store, task.task_id), lease_expires_at_ms=NOW_MS + 99_000)
    await record(store, lambda tx: tx.tasks.save(renewed, TaskState.LEASED))
    assert await counted(store, task.task_id) == renewed
    assert (await states(store, queue.queue_id, "a"))["a"].running == 1


async def test_the_end_of_a_counted_lease_rings_for_the_queue(store: Store, wakeups: LocalWakeups):
    queue = await a_queue(store)
    rang = asyncio.Event()
    wakeups.listen(queue_topic(queue.queue_id), rang.set)
    [task] = await leases(store, queue, "a")
    await count_leases(store, queue)
    await end(store, await counted(store, task.task_id))
    async with asyncio.timeout(PATIENCE_S):
        await rang.wait()


# ── What runs, and where lanes stand ────────────────────────────────────────────────────────────────────


async def test_when_a_counted_lease_ends_what_its_key_held_is_looked_at_again(store: Store):
    queue = await a_queue(store)
    [task, _] = await leases(store, queue, "a", "b")
    levels = {
        0: LaneState.BLOCKED,
        1: LaneState.READY,
        2: LaneState.THROTTLED,
        4: LaneState.NEW,
        5: LaneState.DIRTY,
        9: LaneState.BLOCKED,
    }
    await enqueue(store, *(a_task(queue, f"l{level}-1", key="a", level=level) for level in levels))
    await stand(
        store,
        queue.queue_id,
        *(a_lane("a", lane_state, level) for level, lane_state in levels.items()),
        a_lane("a", LaneState.READY, rank=5),
        a_lane("b", LaneState.BLOCKED),
    )
    await count_leases(store, queue)
    await end(store, await counted(store, task.task_id))
    assert await places(store, queue.queue_id) == {
        (0, "a"): LaneState.DIRTY,
        (1, "a"): LaneState.READY,
        (2, "a"): LaneState.THROTTLED,
        (3, "a"): LaneState.DIRTY,
        (4, "a"): LaneState.NEW,
        (5, "a"): LaneState.DIRTY,
        (9, "a"): LaneState.DIRTY,
        (3, "b"): LaneState.BLOCKED,
    }


@pytest.mark.parametrize(
    ("running", "held_at", "lane_state"),
    [
        (2, 2, LaneState.BLOCKED),
        (3, 2, LaneState.BLOCKED),
        (1, 2, LaneState.DIRTY),
        (1, None, LaneState.BLOCKED),
        (0, 0, LaneState.BLOCKED),
    ],
)
async def test_a_lane_is_held_at_a_limit_only_while_its_key_runs_that_much(
    store: Store, running: int, held_at: int | None, lane_state: LaneState
):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, key="a"))
    await record(store, lambda tx: spend(tx, queue, {"a": running}))
    await stand(store, queue.queue_id, a_lane("a", LaneState.BLOCKED, held_at=held_at))
    assert await places(store, queue.queue_id) == {(3, "a"): lane_state}


async def test_a_key_without_a_row_runs_nothing(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, key="a"))
    await stand(store, queue.queue_id, a_lane("a", LaneState.BLOCKED, held_at=1))
    assert await places(store, queue.queue_id) == {(3, "a"): LaneState.DIRTY}


async def test_what_a_claim_gave_counts_before_its_lanes_are_held(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, key="a"))

    def write(tx: Tx) -> None:
        tx.queues.settle(queue.queue_id, [(a_lane("a", LaneState.BLOCKED, held_at=2), 0)])
        tx.policies.spend(queue.queue_id, "a", None, 2)

    await record(store, write)
    assert await places(store, queue.queue_id) == {(3, "a"): LaneState.BLOCKED}


async def test_a_lease_that_ends_beside_a_claim_counts_before_its_lanes_are_held(store: Store):
    queue = await a_queue(store)
    [task, _] = await leases(store, queue, "a", "a")
    await count_leases(store, queue)
    ending = await counted(store, task.task_id)

    def write(tx: Tx) -> None:
        tx.queues.settle(queue.queue_id, [(a_lane("a", LaneState.BLOCKED, held_at=2), 0)])
        tx.tasks.save(released(ending, TaskState.DONE), TaskState.LEASED)

    await record(store, write)
    assert await places(store, queue.queue_id) == {(3, "a"): LaneState.DIRTY}


async def test_what_changes_for_a_key_has_its_lanes_looked_at_again(store: Store):
    queue = await a_queue(store)
    standing = {0: LaneState.READY, 1: LaneState.NEW, 2: LaneState.THROTTLED, 3: LaneState.BLOCKED}
    await enqueue(
        store,
        *(a_task(queue, f"a{level}-1", key="a", level=level) for level in standing),
        a_task(queue, "b-1", key="b"),
    )
    lanes = [a_lane("a", lane_state, level) for level, lane_state in standing.items()]
    await stand(store, queue.queue_id, *lanes, a_lane("b", LaneState.BLOCKED))
    await record(store, lambda tx: tx.policies.touch_key(queue.queue_id, "a", LaneState.DIRTY))
    found = await places(store, queue.queue_id)
    assert [found[level, "a"] for level in standing] == [
        LaneState.DIRTY,
        LaneState.NEW,
        LaneState.DIRTY,
        LaneState.DIRTY,
    ]
    await record(store, lambda tx: tx.policies.touch_key(queue.queue_id, "a", LaneState.NEW))
    found = await places(store, queue.queue_id)
    assert {found[level, "a"] for level in standing} == {LaneState.NEW}
    assert found[3, "b"] == LaneState.BLOCKED


@pytest.mark.parametrize("to", [LaneState.DIRTY, LaneState.READY])
async def test_a_change_of_the_limits_stirs_every_lane_that_stands_aside(store: Store, to: LaneState):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")
    standing = {lane_state.name: lane_state for lane_state in LaneState}
    for line in (queue, other):
        tasks = (a_task(line, f"{line.name}-{n}", key=key) for n, key in enumerate(standing))
        await enqueue(store, *tasks)
        await stand(store, line.queue_id, *(a_lane(key, lane_state) for key, lane_state in standing.items()))
    await record(store, lambda tx: tx.policies.reset_lanes(queue.queue_id, to))
    found = await places(store, queue.queue_id)
    assert {key: lane_state for (_, key), lane_state in found.items()} == standing | {
        "DIRTY": to,
        "THROTTLED": to,
        "BLOCKED": to,
    }
    found = await places(store, other.queue_id)
    assert {key: lane_state for (_, key), lane_state in found.items()} == standing


async def test_what_a_key_is_given_at_one_level_changes_its_rank_at_the_others(store: Store):
    queue = await a_queue(store)
    lanes = [a_lane("a"), a_lane("a", level=0), a_lane("a", LaneState.BLOCKED, level=9), a_lane("b", level=0)]
    await enqueue(
        store, *(a_task(queue, f"r{n}-1", key=lane.key, level=lane.level) for n, lane in enumerate(lanes))
    )
    await stand(store, queue.queue_id, *lanes)
    await record(store, lambda tx: tx.policies.rerank_others(queue.queue_id, 3, "a"))
    assert await places(store, queue.queue_id) == {
        (0, "a"): LaneState.DIRTY,
        (0, "b"): LaneState.READY,
        (3, "a"): LaneState.READY,
        (9, "a"): LaneState.BLOCKED,
    }


async def rank_lanes(store: Store, queue: Queue, *, by_running: bool) -> dict[str, int]:
    await store.transact(lambda tx: tx.policies.rank_lanes(queue.queue_id, by_running=by_running), key="rank")
    return {key: lane.rank for (_, key), lane in (await busy_lanes(store, queue.queue_id)).items()}


async def test_lanes_are_ranked_by_what_their_keys_run_until_that_no_longer_counts(store: Store):
    queue = await a_queue(store)
    await enqueue(store, *(a_task(queue, f"r-{key}", key=key) for key in "abc"))
    await enqueue(store, a_task(queue, "r-d", key="d"), weight_milli=7)
    await record(store, lambda tx: spend(tx, queue, {"a": 3, "b": 1, "d": 2}))
    await stand(store, queue.queue_id, a_lane("a", tag=1), a_lane("b", tag=2), a_lane("c", tag=3))
    expected = {"a": rank(3, 1000), "b": rank(1, 1000), "c": rank(0, 1000), "d": rank(2, 7)}
    assert await rank_lanes(store, queue, by_running=True) == expected
    least: list[Lane] = [*await look(store, lambda tx: tx.queues.lanes(queue.queue_id, ANYTHING, 9))]
    assert [lane.key for lane in least] == ["c", "b", "a"], "the rank goes before the tag"
    assert await rank_lanes(store, queue, by_running=False) == dict.fromkeys("abcd", 0)
    least = [*await look(store, lambda tx: tx.queues.lanes(queue.queue_id, ANYTHING, 9))]
    assert [lane.key for lane in least] == ["a", "b", "c"]


# ── Claims and ends that race ───────────────────────────────────────────────────────────────────────────


async def test_no_lane_stays_held_and_no_limit_is_passed_while_claims_and_ends_race(store: Store):
    queue, limit = await a_queue(store), 2
    policy = Policy(1, {LimitSetting.KEY_LEASE_CAP: SettingValue(limit, "ann", NOW_MS)})
    await record(store, lambda tx: tx.policies.save(queue.queue_id, policy))
    await enqueue(store, *(a_task(queue, f"{key}{n}-1", key=key) for key in "abc" for n in range(12)))
    done: list[str] = []
    running: Counter[str] = Counter()
    seen: set[int] = set()

    async def finish(task: Task) -> None:
        running[task.key] -= 1
        await end(store, task)
        done.append(task.task_id)

    async def work(name: str) -> None:
        while len(done) < 36:
            granted = await claim(store, queue.queue_id, 3, key=name)
            running.update(task.key for task in granted)
            seen.update(running.values())
            await asyncio.gather(*(finish(task) for task in granted))
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(work(f"w{n}") for n in range(6)))
    assert len(set(done)) == 36
    assert max(seen) <= limit
    found = await states(store, queue.queue_id, *"abc")
    assert {key: state.running for key, state in found.items()} == {"a": 0, "b": 0, "c": 0}
