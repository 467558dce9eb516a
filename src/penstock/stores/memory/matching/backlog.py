"""The backlog of a queue by level, lane and age."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from penstock.core.model import QueueId, Task
from penstock.core.scheduling.backlog import Backlog, LaneBacklog, LevelBacklog
from penstock.core.scheduling.fairness import Lane, Starving
from penstock.core.timestamps import MINUTE_MS
from penstock.stores.memory.tables import LaneId, LaneMeter, Tables
from penstock.stores.memory.tasks import lanes


def backlog(tables: Tables, queue_id: QueueId, now_ms: int, top: int) -> Backlog:
    """All busy levels, and the `top` lanes with the most tasks."""
    minute = now_ms // MINUTE_MS
    parts = [_lane(tables, lane_id, lane, minute) for lane_id, lane in lanes.busy(tables, queue_id)]
    levels = _by_level(parts)
    oldest = heads(tables, queue_id)
    largest = sorted(parts, key=lambda part: (-part.lane.count, part.lane.level, part.lane.key))
    return Backlog(
        levels=tuple(_level(level, levels[level], oldest[level]) for level in sorted(levels)),
        lanes=tuple(largest[:top]),
    )


def starving(tables: Tables, queue_id: QueueId, since_ms: int, most: int) -> Sequence[Starving]:
    """The levels where some of the first `most` tasks have waited since before `since_ms`."""
    found = []
    for level, tasks in sorted(_ready(tables, queue_id).items()):
        first = heapq.nsmallest(most, tasks, key=lambda task: task.seq)
        waits = [task.enqueued_at_ms for task in first if task.enqueued_at_ms <= since_ms]
        if waits:
            found.append(Starving(level, min(waits), len(waits)))
    return found


def heads(tables: Tables, queue_id: QueueId) -> dict[int, Task]:
    """The oldest ready task of each busy level."""
    ready = _ready(tables, queue_id)
    return {level: min(tasks, key=lambda task: task.seq) for level, tasks in ready.items()}


def route_heads(tables: Tables, queue_id: QueueId) -> list[Task]:
    """One ready task per type and build, ordered by both."""
    found: dict[tuple[str, str], Task] = {}
    for task in sorted(_all_ready(tables, queue_id), key=lambda task: (task.level, task.key, task.seq)):
        found.setdefault((task.type, task.compatibility or ""), task)
    return [task for _, task in sorted(found.items())]


def count_route(tables: Tables, queue_id: QueueId, type_: str, build_id: str | None) -> int:
    """The number of ready tasks of a type that need a build."""
    route = (type_, build_id)
    return sum((task.type, task.compatibility) == route for task in _all_ready(tables, queue_id))


def _all_ready(tables: Tables, queue_id: QueueId) -> list[Task]:
    return [task for tasks in _ready(tables, queue_id).values() for task in tasks]


def waiting(tables: Tables, lane_id: LaneId) -> Iterator[Task]:
    """The ready tasks of a lane, unordered."""
    return (tables.tasks[task_id] for task_id in tables.tasks_ready.of(lane_id).values())


def _ready(tables: Tables, queue_id: QueueId) -> dict[int, list[Task]]:
    tasks: dict[int, list[Task]] = {}
    for lane_id, lane in lanes.busy(tables, queue_id):
        tasks.setdefault(lane.level, []).extend(waiting(tables, lane_id))
    return tasks


def _lane(tables: Tables, lane_id: LaneId, lane: Lane, minute: int) -> LaneBacklog:
    meter = tables.lane_meters.get(lane_id, LaneMeter()).at(minute)
    oldest = min(waiting(tables, lane_id), key=lambda task: task.seq)
    return LaneBacklog(lane, meter.dispatched, meter.dispatched_before, oldest.enqueued_at_ms)


def _by_level(parts: Sequence[LaneBacklog]) -> dict[int, list[LaneBacklog]]:
    levels: dict[int, list[LaneBacklog]] = {}
    for part in parts:
        levels.setdefault(part.lane.level, []).append(part)
    return levels


def _level(level: int, parts: Sequence[LaneBacklog], oldest: Task) -> LevelBacklog:
    return LevelBacklog(
        level=level,
        count=sum(part.lane.count for part in parts),
        keys=len(parts),
        weight_milli=sum(part.lane.effective_milli for part in parts),
        dispatched=sum(part.dispatched for part in parts),
        dispatched_before=sum(part.dispatched_before for part in parts),
        oldest_ms=oldest.enqueued_at_ms,
    )
