"""How a lane's row changes when tasks come, go and are dispatched; every store follows these rules.

A lane is marked for placing when it becomes busy or its weight changes; its tag is computed by the next
claim, under the queue's lock. So putting a task in line never needs that lock.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.core.model import WEIGHT_DEFAULT_MILLI, QueueId
from penstock.core.scheduling.fairness import Lane
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.tables import LaneId, Tables


def enter(tables: Tables, changes: Changes, lane_id: LaneId, wanted_milli: int | None) -> None:
    """One more task is ready; `wanted_milli` is the weight it carries, None to keep the lane's."""
    lane = tables.lanes.get(lane_id)
    if lane is None:
        weight_milli = wanted_milli or WEIGHT_DEFAULT_MILLI
        lane = Lane(lane_id[1], lane_id[2], 0, weight_milli, weight_milli, count=1, place=1)
    else:
        wanted_milli = wanted_milli or lane.wanted_milli
        place = 1 if lane.count == 0 or wanted_milli != lane.weight_milli else lane.place
        lane = replace(lane, count=lane.count + 1, wanted_milli=wanted_milli, place=place)
    _put(tables, changes, lane_id, lane)


def leave(tables: Tables, changes: Changes, lane_id: LaneId) -> None:
    """A ready task left without being dispatched."""
    lane = tables.lanes[lane_id]
    _put(tables, changes, lane_id, replace(lane, count=lane.count - 1))


def settle(tables: Tables, changes: Changes, queue_id: QueueId, lane: Lane, taken: int) -> None:
    """Bill the lane for the tasks taken; a weight that came since it was read calls for another placing."""
    lane_id = (queue_id, lane.level, lane.key)
    row = tables.lanes[lane_id]
    row = replace(
        row,
        tag=lane.tag,
        weight_milli=lane.weight_milli,
        count=row.count - taken,
        place=0 if row.wanted_milli == lane.weight_milli else 1,
    )
    _put(tables, changes, lane_id, row)


def _put(tables: Tables, changes: Changes, lane_id: LaneId, lane: Lane) -> None:
    assert lane.count >= 0, f"lane {lane_id} gave more than it had"
    changes.put(tables.lanes, lane_id, lane)
    busy = lane_id in tables.lanes_busy.of(lane_id[0])
    if lane.count and not busy:
        changes.add(tables.lanes_busy, lane_id[0], lane_id, None)
    elif busy and not lane.count:
        changes.remove(tables.lanes_busy, lane_id[0], lane_id)
