"""The position of a task: what is ahead of it, and what was dispatched recently."""

from __future__ import annotations

from penstock.core.model import QueueId, Task
from penstock.core.scheduling.backlog import LaneBacklog
from penstock.core.scheduling.fairness import Lane, LaneState
from penstock.core.timestamps import MINUTE_MS
from penstock.core.why.position import LevelCounts
from penstock.stores.memory.tables import LaneId, LaneMeter, Tables
from penstock.stores.memory.tasks import lanes


def lane(tables: Tables, lane_id: LaneId, minute: int) -> LaneBacklog | None:
    """A busy lane with its dispatches in this minute and in the one before."""
    found = tables.lanes.get(lane_id)
    if found is None or not found.count:
        return None
    meter = tables.lane_meters.get(lane_id, LaneMeter()).at(minute)
    return LaneBacklog(found, meter.dispatched, meter.dispatched_before)


def lanes_before(tables: Tables, queue_id: QueueId, level: int, point: tuple[int, int]) -> list[Lane]:
    """The ready lanes of a level up to a rank and tag, in fair order."""
    found = [
        each
        for _, each in lanes.busy(tables, queue_id)
        if each.level == level and each.state == LaneState.READY and (each.rank, each.tag) <= point
    ]
    return sorted(found, key=lambda each: (each.rank, each.tag, each.key))


def new_lanes(tables: Tables, queue_id: QueueId, level: int) -> list[Lane]:
    """The new lanes of a level, which have no tag yet, by key."""
    busy = [each for _, each in lanes.busy(tables, queue_id) if each.level == level]
    return sorted((each for each in busy if each.state == LaneState.NEW), key=lambda each: each.key)


def count_before(tables: Tables, queue_id: QueueId, level: int, key: str | None, seq: int) -> int:
    """The number of ready tasks of a lane, or of a level, that were enqueued before a task."""
    slots = [lane_id for lane_id, each in lanes.busy(tables, queue_id) if each.level == level]
    mine = [lane_id for lane_id in slots if key is None or lane_id[2] == key]
    return sum(waiting < seq for lane_id in mine for waiting in tables.tasks_ready.of(lane_id))


def head(tables: Tables, queue_id: QueueId, level: int, key: str | None) -> Task | None:
    """The oldest ready task of a lane or a level."""
    mine = [
        slot for slot, each in lanes.busy(tables, queue_id) if each.level == level and key in (None, slot[2])
    ]
    waiting = {seq: task_id for slot in mine for seq, task_id in tables.tasks_ready.of(slot).items()}
    return tables.tasks[waiting[min(waiting)]] if waiting else None


def sight(tables: Tables, queue_id: QueueId, level: int, now_ms: int) -> LevelCounts:
    """What may be dispatched at a level, and what was dispatched recently, idle lanes included."""
    rows = {slot: each for slot, each in tables.lanes.items() if slot[:2] == (queue_id, level)}
    may_go = [each for each in rows.values() if each.count and _may_go(each, now_ms)]
    meters = [tables.lane_meters.get(slot, LaneMeter()).at(now_ms // MINUTE_MS) for slot in rows]
    return LevelCounts(
        level,
        len(may_go),
        sum(each.count for each in may_go),
        sum(meter.dispatched for meter in meters),
        sum(meter.dispatched_before for meter in meters),
    )


def _may_go(lane: Lane, now_ms: int) -> bool:
    """Whether the lane is neither blocked nor throttled at this time."""
    due = lane.open_at_ms is not None and lane.open_at_ms <= now_ms
    return lane.state < LaneState.THROTTLED or (lane.state == LaneState.THROTTLED and due)
