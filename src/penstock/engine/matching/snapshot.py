"""What a claim looks at: no more than its rules ask for, read under the queue's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits.policies import DispatchOrder, KeyState, Rules
from penstock.core.model import Queue, QueueId
from penstock.core.scheduling.dispatch import BlockedLanes, QueueSnapshot, WorkerFilter
from penstock.core.scheduling.fairness import (
    ALL_LEVELS,
    REBASED_ABOVE,
    TAGGED_AT_ONCE_MAX,
    Arrival,
    Lane,
    LaneState,
    Starving,
    VirtualClock,
)
from penstock.ports.gather import gather
from penstock.ports.store import Tx

LANES_BEYOND_ROOM = 64
"""Where keys can be blocked, so many more lanes are read: some of them may turn out to be."""


class LoadedSnapshot(Struct, frozen=True):
    """A snapshot, and whether it is partial: more lanes are to be placed than one claim places.

    Then no more is granted than was placed, so that those who are placed next still have their first turn in
    time, and the claim is followed by another.
    """

    snapshot: QueueSnapshot
    is_partial: bool


async def load_snapshot(
    tx: Tx, queue: Queue, worker_filter: WorkerFilter, room: int, running: int
) -> LoadedSnapshot:
    """A snapshot that holds at least the `room` lanes of each level that could go next."""
    rules = queue.rules
    starving = await _starving(tx, queue, room)
    arrivals: Sequence[Arrival] = ()
    clocks: Sequence[VirtualClock] = ()
    partial = False
    if rules.order is DispatchOrder.ARRIVAL:
        arrivals, lanes = await _in_order(tx, queue, worker_filter, room, starving)
    else:
        clocks = await _clocks(tx, queue)
        lanes, partial = await _in_fairness(tx, queue, worker_filter, room, starving)
    snapshot = QueueSnapshot(
        queue=queue,
        lanes=lanes,
        clocks=clocks,
        now_ms=tx.now_ms,
        keys=await _keys(tx, queue, lanes),
        running=running,
        starving=starving,
        arrivals=arrivals,
        blocked=await tx.queues.blocked(queue.queue_id) if rules.limits_keys else BlockedLanes(),
    )
    return LoadedSnapshot(snapshot, partial)


async def _clocks(tx: Tx, queue: Queue) -> Sequence[VirtualClock]:
    clocks = []
    for clock in await tx.queues.clocks(queue.queue_id):
        if clock.virtual > REBASED_ABOVE:
            await tx.queues.rebase(queue.queue_id, clock)
            clock = replace(clock, virtual=0)
        clocks.append(clock)
    return clocks


async def _starving(tx: Tx, queue: Queue, room: int) -> Sequence[Starving]:
    aging = queue.rules.aging
    if aging is None:
        return ()
    turns = room // aging.every + 1
    return await tx.queues.starving(queue.queue_id, tx.now_ms - aging.wait_ms, turns)


async def _in_fairness(
    tx: Tx, queue: Queue, worker_filter: WorkerFilter, room: int, starving: Sequence[Starving]
) -> tuple[Sequence[Lane], bool]:
    """The lanes to be placed, and the least of those that have their place.

    When there are more to be placed than one claim places, levels below them wait: some that were not seen
    may go before those.
    """
    queue_id, rules = queue.queue_id, queue.rules
    most = _sighted(rules, room)
    fresh, least = await gather(
        tx.queues.lanes_to_tag(queue_id, worker_filter, LaneState.NEW),
        tx.queues.lanes(queue_id, worker_filter, most),
    )
    stale: Sequence[Lane] = ()
    due: Sequence[Lane] = ()
    if rules.limits_keys:
        due = await _due(tx, queue_id, worker_filter)
    if rules.needs_keys:
        stale = await tx.queues.lanes_to_tag(queue_id, worker_filter, LaneState.DIRTY)
    full = [lanes[-1].level for lanes in (fresh, stale) if len(lanes) >= TAGGED_AT_ONCE_MAX]
    deepest = min(full, default=ALL_LEVELS[1])
    ready = [*least]
    for each in starving:
        ready += await tx.queues.lanes(queue_id, worker_filter, most, (each.level, each.level))
    seen = {lane.lane_key: lane for lane in (*fresh, *stale, *due, *ready)}
    return [lane for lane in seen.values() if lane.level <= deepest], bool(full)


async def _due(tx: Tx, queue_id: QueueId, worker_filter: WorkerFilter) -> Sequence[Lane]:
    """The lanes whose tokens have come; where there are more than one claim places, all are made stale instead.

    Stale lanes come by level, so that no level goes before one that was not seen.
    """
    due = await tx.queues.lanes_due(queue_id, worker_filter, tx.now_ms)
    if len(due) < TAGGED_AT_ONCE_MAX:
        return due
    await tx.queues.wake_due_lanes(queue_id, tx.now_ms)
    return ()


async def _in_order(
    tx: Tx, queue: Queue, worker_filter: WorkerFilter, room: int, starving: Sequence[Starving]
) -> tuple[Sequence[Arrival], Sequence[Lane]]:
    most = _sighted(queue.rules, room)
    found = [*await tx.queues.arrivals(queue.queue_id, worker_filter, most, tx.now_ms)]
    for each in starving:
        levels = (each.level, each.level)
        found += await tx.queues.arrivals(queue.queue_id, worker_filter, most, tx.now_ms, levels)
    arrivals = {arrival.seq: arrival for arrival, _ in found}
    return list(arrivals.values()), list({lane.lane_key: lane for _, lane in found}.values())


def _sighted(rules: Rules, room: int) -> int:
    return room + LANES_BEYOND_ROOM if rules.limits_keys else room


async def _keys(tx: Tx, queue: Queue, lanes: Sequence[Lane]) -> Mapping[str, KeyState]:
    """The keys whose own rows matter: of all lanes where limits or ranks look at them, else of new lanes."""
    rules = queue.rules
    if rules.needs_keys:
        keys = dict.fromkeys(lane.key for lane in lanes)
    elif queue.policy.overridden_keys:
        keys = dict.fromkeys(lane.key for lane in lanes if lane.state == LaneState.NEW)
    else:
        return {}
    return await tx.policies.key_states(queue.queue_id, list(keys)) if keys else {}
