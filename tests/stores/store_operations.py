"""Operations that many contract tests use."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from penstock.core.limits.admission import Admission, ScopeRow
from penstock.core.limits.policies import DispatchOrder, LimitSetting, Policy, SettingValue
from penstock.core.model import Queue, QueueId, Task, TaskKind
from penstock.core.scheduling.dispatch import Hold, QueueSnapshot, Settled, WorkerFilter, decide, settle
from penstock.core.scheduling.fairness import ALL_LEVELS, Arrival, Lane, LaneKey, LaneState
from penstock.core.scheduling.gates import ScopeState, counted_by
from penstock.engine.limits.adoption import adopt
from penstock.engine.matching.snapshot import lock_scopes
from penstock.ports.store import Store, TransactionClass, Tx
from tests.support.builders import NOW_MS, leased, standing_of

T = TypeVar("T")
ANYTHING = WorkerFilter(types=(), build_id=None)
SPARE = 64
"""Where keys can be blocked, this many more lanes are read than there are slots."""
_tokens = itertools.count(1)
_stamps = itertools.count(1)


async def record(store: Store, write: Callable[[Tx], object], key: str = "test") -> None:
    """Run an operation that records the writes of `write`."""

    async def operation(tx: Tx) -> None:
        write(tx)

    await store.transact(operation, key=key)


async def look(store: Store, question: Callable[[Tx], Awaitable[T]]) -> T:
    """Read one value in a snapshot."""

    async def operation(tx: Tx) -> T:
        return await question(tx)

    return await store.read(operation)


async def a_queue(
    store: Store, kind: TaskKind = TaskKind.ACTIVITY, name: str = "orders", namespace: str = "default"
) -> Queue:
    async def operation(tx: Tx) -> Queue:
        return await tx.queues.ensure(namespace, name, kind)

    return await store.transact(operation, key=f"queue:{name}")


async def queue_now(store: Store, queue_id: QueueId) -> Queue:
    """The queue as a claim reads it."""

    async def operation(tx: Tx) -> Queue | None:
        return await tx.queues.lock(queue_id)

    queue = await store.transact(operation, key="look", tx_class=TransactionClass.CLAIM)
    assert queue is not None
    return queue


def untimed(queue: Queue) -> Queue:
    """A queue without the time at which it was read."""
    return replace(queue, at_ms=0)


async def enqueue(store: Store, *tasks: Task, weight_milli: int = 1000) -> None:
    """Enqueue tasks in one operation."""

    def write(tx: Tx) -> None:
        for task in tasks:
            tx.tasks.insert(task, standing_of(task, weight_milli))

    await record(store, write, key=str(tasks[0].run_id))


async def claim(
    store: Store,
    queue_id: QueueId,
    room: int,
    worker_filter: WorkerFilter = ANYTHING,
    key: str = "claim",
    now_ms: int = NOW_MS,
) -> list[Task]:
    """Lease the tasks that the core grants, in its order."""

    async def operation(tx: Tx) -> list[Task]:
        return await _claim(tx, queue_id, room, worker_filter, now_ms)

    return await store.transact(operation, key=key, tx_class=TransactionClass.CLAIM)


async def _claim(
    tx: Tx, queue_id: QueueId, room: int, worker_filter: WorkerFilter, now_ms: int
) -> list[Task]:
    snapshot = await _snapshot(tx, queue_id, room, worker_filter, now_ms)
    decision = decide(snapshot, room)
    planned = {} if isinstance(decision, Hold) else decision.counts()
    wanted = [(level, key, count) for (level, key), count in planned.items()]
    taking = await tx.queues.take(queue_id, wanted, worker_filter)
    waiting = {(level, key): [*tasks] for (level, key, _), tasks in zip(wanted, taking, strict=True)}
    taken = {lane_key: len(tasks) for lane_key, tasks in waiting.items()}
    settled = settle(snapshot, taken)
    _bill(tx, snapshot.queue, settled, taken)
    counts, scopes = snapshot.queue.rules.announced, counted_by(settled.scopes)
    granted = [
        leased(waiting[lane_key].pop(0), token=f"token-{next(_tokens)}", counted=counts, scopes=scopes)
        for lane_key in settled.order
    ]
    for task in granted:
        tx.tasks.lease(task)
    return granted


async def _snapshot(
    tx: Tx, queue_id: QueueId, room: int, worker_filter: WorkerFilter, now_ms: int
) -> QueueSnapshot:
    """A complete snapshot of the queue."""
    queue = await tx.queues.lock(queue_id)
    assert queue is not None
    aging, in_order = queue.rules.aging, queue.rules.order is DispatchOrder.ARRIVAL
    most = room + SPARE if queue.rules.limits_keys else room
    starving = await tx.queues.starving(queue_id, now_ms - aging.wait_ms, room) if aging else ()
    ranges = [ALL_LEVELS, *((each.level, each.level) for each in starving)]
    arrivals: dict[int, Arrival] = {}
    lanes: list[Lane] = []
    if in_order:
        for levels in ranges:
            for arrival, lane in await tx.queues.arrivals(queue_id, worker_filter, most, now_ms, levels):
                arrivals[arrival.seq] = arrival
                lanes.append(lane)
    else:
        for lane_state in (LaneState.NEW, LaneState.DIRTY):
            lanes += await tx.queues.lanes_to_tag(queue_id, worker_filter, lane_state)
        lanes += await tx.queues.lanes_due(queue_id, worker_filter, now_ms)
        for levels in ranges:
            lanes += await tx.queues.lanes(queue_id, worker_filter, most, levels)
    return QueueSnapshot(
        queue,
        list({lane.lane_key: lane for lane in lanes}.values()),
        await tx.queues.clocks(queue_id),
        now_ms,
        await tx.policies.key_states(queue_id, list(dict.fromkeys(lane.key for lane in lanes))),
        await tx.queues.running(queue_id, queue.rules.lease_cap or 0),
        starving,
        list(arrivals.values()),
        await tx.queues.blocked(queue_id),
        (await lock_scopes(tx, queue)).states,
    )


def _bill(tx: Tx, queue: Queue, settled: Settled, taken: Mapping[LaneKey, int]) -> None:
    """Record the charges, tags and lane states of a claim."""
    queue_id, rules = queue.queue_id, queue.rules
    tx.policies.settle(queue_id, settled.paid_until_ns, settled.aging_turn, settled.window)
    for state in settled.scopes if settled.order else ():
        tx.scopes.settle(state)
    counted = settled.spent if rules.counts_leases_by_key else {}
    held = [lane.key for lane in settled.lanes if lane.held_at is not None]
    for key in dict.fromkeys((*settled.paid, *counted, *held)):
        tx.policies.spend(queue_id, key, settled.paid.get(key), counted.get(key, 0))
    for lane in settled.lanes:
        given = taken.get(lane.lane_key, 0)
        tx.queues.settle(queue_id, [(lane, given)])
        if given and rules.shares_by_running:
            tx.policies.rerank_others(queue_id, lane.level, lane.key)
    for clock in settled.clocks:
        tx.queues.settle(queue_id, (), [clock])
    tx.queues.count_dispatches(queue_id, tx.now_ms // 60_000, len(settled.order))


async def limit(store: Store, name: str, namespace: str | None = "default", **limits: int | str) -> int:
    """Set the policy of a scope as the engine does: leases of its queues are counted, and the queues are stamped."""

    async def operation(tx: Tx) -> int:
        before = await tx.scopes.lock_admission()
        known = before.row(name)
        policy = _policy(1 if known is None else known.policy.version + 1, limits)
        lines = await tx.scopes.lock_queues(namespace)
        (scope_id,) = await tx.scopes.ids([name])
        tx.scopes.save_policy(scope_id, policy)
        others = [row for row in before.rows if row.name != name]
        after = replace(before, rows=(*others, ScopeRow(scope_id, name, policy)))
        await take_effect(tx, lines, after)
        return scope_id

    return await store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)


def _policy(version: int, limits: Mapping[str, int | str]) -> Policy:
    return Policy(
        version,
        {
            LimitSetting(setting_name): SettingValue(value, "ann", NOW_MS)
            for setting_name, value in limits.items()
        },
    )


async def take_effect(tx: Tx, lines: Sequence[Queue], after: Admission) -> None:
    """Have the scopes count the leases of locked queues, and stamp the queues."""
    joined: dict[str, list[Queue]] = {}
    for line in lines:
        for rules in after.of(line.namespace, line.name, line.kind, line.policy, tx.now_ms).scopes:
            joined.setdefault(rules.name, []).append(line)
    await adopt(tx, joined)
    tx.scopes.stamp(f"stamp-{next(_stamps)}", [line.queue_id for line in lines])


async def scope_now(store: Store, name: str) -> ScopeState:
    """The state of a scope."""
    found = await look(store, lambda tx: tx.scopes.find([name]))
    return found[0] if found else ScopeState(0, name)


async def busy_lanes(store: Store, queue_id: QueueId) -> dict[LaneKey, Lane]:
    """All lanes with ready tasks, in any state."""
    backlog = await look(store, lambda tx: tx.queues.backlog(queue_id, NOW_MS, 1_000))
    return {each.lane.lane_key: each.lane for each in backlog.lanes}


async def places(store: Store, queue_id: QueueId) -> dict[LaneKey, LaneState]:
    return {lane_key: LaneState(lane.state) for lane_key, lane in (await busy_lanes(store, queue_id)).items()}


async def stand(store: Store, queue_id: QueueId, *lanes: Lane, taken: int = 0) -> None:
    """Settle lanes in a given state, as a claim that took `taken` tasks from each."""

    def write(tx: Tx) -> None:
        for lane in lanes:
            tx.queues.settle(queue_id, [(lane, taken)])

    await record(store, write)


def a_lane(
    key: str = "", lane_state: LaneState = LaneState.READY, level: int = 3, tag: int = 0, **standing: Any
) -> Lane:
    """A lane with default weight."""
    return replace(Lane(level, key, tag, 1000, 1000, count=0, state=lane_state, base=0), **standing)


def ids(tasks: Sequence[Task]) -> list[str]:
    return [task.task_id for task in tasks]
