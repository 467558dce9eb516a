"""Task queues: their lanes in fair order, their clocks and their meters."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from penstock.core.model import Queue, QueueId, QueueStats, Task, TaskKind
from penstock.core.scheduling.dispatch import Fit
from penstock.core.scheduling.fairness import Clockwork, Lane
from penstock.core.timers import MINUTE_MS
from penstock.stores.memory import lanes
from penstock.stores.memory.changes import Changes, Phase
from penstock.stores.memory.fitting import fits
from penstock.stores.memory.tables import LaneId, Meter, Tables

PLACED_AT_ONCE_MAX = 256


class MemoryQueues:
    def __init__(self, tables: Tables, changes: Changes) -> None:
        self._tables = tables
        self._changes = changes

    async def ensure(self, namespace: str, name: str, kind: TaskKind) -> Queue:
        self._changes.allow()
        known = self._tables.queue_names.get((namespace, name, kind))
        if known is not None:
            return self._tables.queues[known]
        queue = Queue(QueueId(next(self._tables.queue_numbers)), namespace, name, kind)
        self._changes.put(self._tables.queues, queue.queue_id, queue)
        self._changes.put(self._tables.queue_names, (namespace, name, kind), queue.queue_id)
        return queue

    async def find(self, namespace: str, name: str) -> Sequence[Queue]:
        return [queue for queue in await self.list(namespace) if queue.name == name]

    async def list(self, namespace: str) -> Sequence[Queue]:
        found = [queue for queue in self._tables.queues.values() if queue.namespace == namespace]
        return sorted(found, key=lambda queue: (queue.name, queue.kind))

    async def lock(self, queue_id: QueueId) -> Queue | None:
        return self._tables.queues.get(queue_id)

    async def lanes(self, queue_id: QueueId, fit: Fit, room: int) -> Sequence[Lane]:
        busy = [(lane_id, self._tables.lanes[lane_id]) for lane_id in self._tables.lanes_busy.of(queue_id)]
        fresh = heapq.nsmallest(
            PLACED_AT_ONCE_MAX,
            (lane for _, lane in busy if lane.place),
            key=lambda lane: (lane.level, lane.key),
        )
        least = heapq.nsmallest(
            room,
            (lane for lane_id, lane in busy if not lane.place and self._has_fitting(lane_id, fit)),
            key=lambda lane: (lane.level, lane.tag, lane.key),
        )
        return [self._marked(queue_id, lane, fit) for lane in fresh] + least

    async def clocks(self, queue_id: QueueId) -> Sequence[Clockwork]:
        return sorted(self._tables.clocks.of(queue_id).values(), key=lambda clock: clock.level)

    async def take(
        self, queue_id: QueueId, wanted: Sequence[tuple[int, str, int]], fit: Fit
    ) -> Sequence[Sequence[Task]]:
        return [self._first_of((queue_id, level, key), count, fit) for level, key, count in wanted]

    async def stats(self, queue_id: QueueId, now_ms: int) -> QueueStats:
        tables = self._tables
        ready = [
            tables.tasks[task_id]
            for lane_id in tables.lanes_busy.of(queue_id)
            for task_id in tables.tasks_ready.of(lane_id).values()
        ]
        ends = tables.tasks_leased.of(queue_id).values()
        live = sum(1 for at_ms in ends if at_ms > now_ms)
        meter = tables.meters.get((queue_id, now_ms // MINUTE_MS), Meter())
        return QueueStats(
            ready=len(ready),
            leased=live,
            delayed=len(tables.tasks_delayed.of(queue_id)),
            expired=len(ends) - live,
            added_last_minute=meter.added,
            dispatched_last_minute=meter.dispatched,
            oldest=min(ready, key=lambda task: (task.enqueued_at_ms, task.seq), default=None),
        )

    def settle(self, queue_id: QueueId, lane: Lane, taken: int) -> None:
        write = partial(lanes.settle, self._tables, self._changes, queue_id, lane, taken)
        self._changes.record(write, Phase.SETTLE_LANES)

    def save_clock(self, queue_id: QueueId, clock: Clockwork) -> None:
        self._changes.record(lambda: self._changes.add(self._tables.clocks, queue_id, clock.level, clock))

    def count_dispatches(self, queue_id: QueueId, minute: int, count: int) -> None:
        def write() -> None:
            meter = self._tables.meters.get((queue_id, minute), Meter())
            counted = replace(meter, dispatched=meter.dispatched + count)
            self._changes.put(self._tables.meters, (queue_id, minute), counted)

        self._changes.record(write)

    async def idle_lanes(self, limit: int) -> Sequence[tuple[QueueId, int, str]]:
        return [lane_id for lane_id in self._tables.lanes if self._tells_nothing(lane_id)][:limit]

    def drop_lane(self, queue_id: QueueId, level: int, key: str) -> None:
        def write() -> None:
            if self._tells_nothing((queue_id, level, key)):
                self._changes.drop(self._tables.lanes, (queue_id, level, key))

        self._changes.record(write)

    def _tells_nothing(self, lane_id: LaneId) -> bool:
        lane, clock = self._tables.lanes.get(lane_id), self._tables.clocks.of(lane_id[0]).get(lane_id[1])
        keyed = bool(lane_id[2])
        return (
            keyed and lane is not None and clock is not None and not lane.count and lane.tag <= clock.virtual
        )

    async def any_meter_before(self, minute: int) -> bool:
        return any(kept < minute for _, kept in self._tables.meters)

    def forget_meters(self, before_minute: int) -> None:
        def write() -> None:
            for slot in [slot for slot in self._tables.meters if slot[1] < before_minute]:
                self._changes.drop(self._tables.meters, slot)

        self._changes.record(write)

    def _first_of(self, lane_id: LaneId, count: int, fit: Fit) -> Sequence[Task]:
        waiting = self._tables.tasks_ready.of(lane_id)
        fitting = (seq for seq, task_id in waiting.items() if fits(self._tables.tasks[task_id], fit))
        return [self._tables.tasks[waiting[seq]] for seq in heapq.nsmallest(count, fitting)]

    def _marked(self, queue_id: QueueId, lane: Lane, fit: Fit) -> Lane:
        return replace(lane, fits=int(self._has_fitting((queue_id, lane.level, lane.key), fit)))

    def _has_fitting(self, lane_id: LaneId, fit: Fit) -> bool:
        waiting = self._tables.tasks_ready.of(lane_id).values()
        return any(fits(self._tables.tasks[task_id], fit) for task_id in waiting)
