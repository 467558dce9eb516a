"""Changes of a lane's row when tasks are enqueued, leave and are dispatched; the SQL statements follow these rules.

A lane becomes NEW when it becomes busy or its weight changes; the next claim computes its tag, under the queue's lock.
So enqueueing a task never needs that lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from penstock.core.model import WEIGHT_DEFAULT_MILLI, QueueId
from penstock.core.scheduling.fairness import ALL_LEVELS, Lane, LaneState, rank, refund_tag
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.tables import LaneId, LaneMeter, Tables
from penstock.stores.memory.tasks import fairness_keys


def enter(tables: Tables, changes: Changes, lane_id: LaneId, wanted_milli: int | None) -> None:
    """Add a ready task; `wanted_milli` is the weight that it asks for, None to leave the weight as it is."""
    lane = tables.lanes.get(lane_id)
    clock = tables.clocks.of(lane_id[0]).get(lane_id[1])
    base = 0 if clock is None else clock.virtual
    if lane is None:
        weight_milli = wanted_milli or WEIGHT_DEFAULT_MILLI
        lane = Lane(
            lane_id[1], lane_id[2], 0, weight_milli, weight_milli, count=1, state=LaneState.NEW, base=base
        )
    else:
        lane = lane if lane.count else replace(lane, state=LaneState.NEW, base=base)
        lane = replace(lane, count=lane.count + 1, wanted_milli=wanted_milli or lane.wanted_milli)
        reweighted = wanted_milli is not None and lane.effective_milli != lane.weight_milli
        lane = replace(lane, state=LaneState.NEW) if reweighted else lane
    put(tables, changes, lane_id, lane)


def leave(tables: Tables, changes: Changes, lane_id: LaneId) -> None:
    """Remove a ready task that was not dispatched."""
    lane = tables.lanes[lane_id]
    put(tables, changes, lane_id, replace(lane, count=lane.count - 1))


def settle(tables: Tables, changes: Changes, queue_id: QueueId, lane: Lane, taken: int, minute: int) -> None:
    """Charge the lane for dispatched tasks; it is NEW or DIRTY if its row has changed since it was read."""
    lane_id = (queue_id, lane.level, lane.key)
    row = tables.lanes[lane_id]
    after = replace(
        lane, wanted_milli=row.wanted_milli, count=row.count - taken, base=row.base, fits=1, held_at=None
    )
    if after.effective_milli != after.weight_milli:
        after = replace(after, state=LaneState.NEW)
    elif _outdated(lane, fairness_keys.row(tables, queue_id, lane.key).running):
        after = replace(after, state=LaneState.DIRTY)
    put(tables, changes, lane_id, after)
    meter = tables.lane_meters.get(lane_id, LaneMeter()).at(minute)
    changes.put(tables.lane_meters, lane_id, replace(meter, dispatched=meter.dispatched + taken))


def refund(tables: Tables, changes: Changes, lane_id: LaneId, stride: int, minute: int) -> None:
    """Give back the charge for a task that was granted in a minute and never delivered."""
    lane = tables.lanes.get(lane_id)
    if lane is None:
        return
    put(tables, changes, lane_id, refund_tag(lane, stride))
    meter = tables.lane_meters.get(lane_id, LaneMeter())
    if meter.minute == minute:
        meter = replace(meter, dispatched=max(0, meter.dispatched - 1))
    elif meter.minute == minute + 1:
        meter = replace(meter, dispatched_before=max(0, meter.dispatched_before - 1))
    changes.put(tables.lane_meters, lane_id, meter)


def _outdated(lane: Lane, running: int) -> bool:
    """Whether the lane was blocked or ranked by another number of leases than its key has now."""
    if lane.held_at is not None and running < lane.held_at:
        return True
    return lane.rank > 0 and lane.rank != rank(running, lane.weight_milli)


def release(tables: Tables, changes: Changes, queue_id: QueueId, key: str) -> None:
    """A counted lease of the key has ended: lanes that it blocked or ranked are DIRTY."""
    for lane_id, lane in _busy_of(tables, queue_id, key):
        if lane.state == LaneState.BLOCKED or (lane.state == LaneState.READY and lane.rank > 0):
            put(tables, changes, lane_id, replace(lane, state=LaneState.DIRTY))


def rerank_others(tables: Tables, changes: Changes, queue_id: QueueId, level: int, key: str) -> None:
    """The key was dispatched at one level, so its rank at the others has changed."""
    for lane_id, lane in _busy_of(tables, queue_id, key):
        if lane.level != level and lane.state == LaneState.READY:
            put(tables, changes, lane_id, replace(lane, state=LaneState.DIRTY))


def touch(tables: Tables, changes: Changes, queue_id: QueueId, key: str, lane_state: LaneState) -> None:
    """The settings of a key have changed."""
    for lane_id, lane in _busy_of(tables, queue_id, key):
        if lane.state != LaneState.NEW:
            put(tables, changes, lane_id, replace(lane, state=lane_state))


def stir(tables: Tables, changes: Changes, queue_id: QueueId, lane_state: LaneState) -> None:
    """The limits of the queue have changed: set the state of lanes that are dirty, throttled or blocked."""
    for lane_id, lane in busy(tables, queue_id):
        if lane.state in (LaneState.DIRTY, LaneState.THROTTLED, LaneState.BLOCKED):
            put(tables, changes, lane_id, replace(lane, state=lane_state))


def busy(tables: Tables, queue_id: QueueId) -> list[tuple[LaneId, Lane]]:
    """The lanes of a queue that have ready tasks, unordered."""
    return [(lane_id, tables.lanes[lane_id]) for lane_id in tables.lanes_busy.of(queue_id)]


def _busy_of(tables: Tables, queue_id: QueueId, key: str) -> Iterator[tuple[LaneId, Lane]]:
    for level in range(ALL_LEVELS[0], ALL_LEVELS[1] + 1):
        lane = tables.lanes.get((queue_id, level, key))
        if lane is not None and lane.count:
            yield (queue_id, level, key), lane


def put(tables: Tables, changes: Changes, lane_id: LaneId, lane: Lane) -> None:
    """Write the row and its index entry."""
    assert lane.count >= 0, f"lane {lane_id} gave more than it had"
    changes.put(tables.lanes, lane_id, lane)
    is_busy = lane_id in tables.lanes_busy.of(lane_id[0])
    if lane.count and not is_busy:
        changes.add(tables.lanes_busy, lane_id[0], lane_id, None)
    elif is_busy and not lane.count:
        changes.remove(tables.lanes_busy, lane_id[0], lane_id)
