"""Task queues: lanes in fair order and in order of arrival, virtual clocks and meters."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from penstock.core.model import Queue, QueueId, QueueStats, Task, TaskKind
from penstock.core.scheduling.backlog import Backlog, LaneBacklog
from penstock.core.scheduling.dispatch import BlockedLanes, WorkerFilter
from penstock.core.scheduling.fairness import (
    ALL_LEVELS,
    TAGGED_AT_ONCE_MAX,
    Arrival,
    Lane,
    LaneState,
    Starving,
    VirtualClock,
)
from penstock.core.timestamps import MINUTE_MS
from penstock.core.why.position import LevelCounts
from penstock.stores.memory.changes import Phase
from penstock.stores.memory.limits.queue_view import seen
from penstock.stores.memory.matching import backlog, task_position
from penstock.stores.memory.tables import LaneId, MemoryRepository, Meter
from penstock.stores.memory.tasks import lanes, lease_counts
from penstock.stores.memory.tasks.worker_filters import fits


class MemoryQueues(MemoryRepository):
    async def ensure(self, namespace: str, name: str, kind: TaskKind) -> Queue:
        self._changes.allow()
        known = self._tables.queue_names.get((namespace, name, kind))
        if known is not None:
            return self._seen(self._tables.queues[known])
        queue = Queue(QueueId(next(self._tables.queue_numbers)), namespace, name, kind)
        self._changes.put(self._tables.queues, queue.queue_id, queue)
        self._changes.put(self._tables.queue_names, (namespace, name, kind), queue.queue_id)
        return self._seen(queue)

    async def find(self, namespace: str, name: str) -> Sequence[Queue]:
        return [queue for queue in await self.list(namespace) if queue.name == name]

    async def list(self, namespace: str) -> Sequence[Queue]:
        found = [queue for queue in self._tables.queues.values() if queue.namespace == namespace]
        return [self._seen(queue) for queue in sorted(found, key=lambda queue: (queue.name, queue.kind))]

    async def lock(self, queue_id: QueueId) -> Queue | None:
        queue = self._tables.queues.get(queue_id)
        return None if queue is None else self._seen(queue)

    async def lanes(
        self, queue_id: QueueId, worker_filter: WorkerFilter, room: int, levels: tuple[int, int] = ALL_LEVELS
    ) -> Sequence[Lane]:
        ready = (
            lane
            for lane_id, lane in lanes.busy(self._tables, queue_id)
            if lane.state == LaneState.READY
            and _within(lane.level, levels)
            and self._has_fitting(lane_id, worker_filter)
        )
        return heapq.nsmallest(room, ready, key=lambda lane: (lane.level, lane.rank, lane.tag, lane.key))

    async def lanes_to_tag(
        self, queue_id: QueueId, worker_filter: WorkerFilter, lane_state: LaneState
    ) -> Sequence[Lane]:
        to_place = [lane for _, lane in lanes.busy(self._tables, queue_id) if lane.state == lane_state]
        to_place.sort(key=lambda lane: (lane.level, lane.key))
        return self._marked(queue_id, to_place[:TAGGED_AT_ONCE_MAX], worker_filter)

    async def lanes_due(self, queue_id: QueueId, worker_filter: WorkerFilter, now_ms: int) -> Sequence[Lane]:
        due = [
            (lane.open_at_ms, lane.level, lane.key, lane)
            for _, lane in lanes.busy(self._tables, queue_id)
            if lane.state == LaneState.THROTTLED and _is_open(lane, now_ms)
        ]
        due.sort(key=lambda each: each[:3])
        return self._marked(queue_id, [lane for *_, lane in due[:TAGGED_AT_ONCE_MAX]], worker_filter)

    async def wake_due_lanes(self, queue_id: QueueId, now_ms: int) -> None:
        self._changes.allow()
        for lane_id, lane in lanes.busy(self._tables, queue_id):
            if lane.state == LaneState.THROTTLED and _is_open(lane, now_ms):
                lanes.put(self._tables, self._changes, lane_id, replace(lane, state=LaneState.DIRTY))

    async def arrivals(
        self,
        queue_id: QueueId,
        worker_filter: WorkerFilter,
        room: int,
        now_ms: int,
        levels: tuple[int, int] = ALL_LEVELS,
    ) -> Sequence[tuple[Arrival, Lane]]:
        waiting = (
            (Arrival(lane.level, task.seq, lane.key), lane)
            for lane_id, lane in lanes.busy(self._tables, queue_id)
            if _within(lane.level, levels) and _may_go(lane, now_ms)
            for task in backlog.waiting(self._tables, lane_id)
            if fits(task, worker_filter, now_ms)
        )
        return heapq.nsmallest(room, waiting, key=lambda each: (each[0].level, each[0].seq))

    async def blocked(self, queue_id: QueueId) -> BlockedLanes:
        busy = [lane for _, lane in lanes.busy(self._tables, queue_id)]
        opens = [
            lane.open_at_ms
            for lane in busy
            if lane.state == LaneState.THROTTLED and lane.open_at_ms is not None
        ]
        return BlockedLanes(min(opens, default=None), any(lane.state == LaneState.BLOCKED for lane in busy))

    async def starving(self, queue_id: QueueId, since_ms: int, most: int) -> Sequence[Starving]:
        return backlog.starving(self._tables, queue_id, since_ms, most)

    async def running(self, queue_id: QueueId, most: int) -> int:
        started = (task for task in lease_counts.leases(self._tables, queue_id) if not task.claimed)
        return sum(1 for _ in itertools.islice(started, most))

    async def clocks(self, queue_id: QueueId) -> Sequence[VirtualClock]:
        return sorted(self._tables.clocks.of(queue_id).values(), key=lambda clock: clock.level)

    async def rebase(self, queue_id: QueueId, clock: VirtualClock) -> None:
        self._changes.allow()
        tables = self._tables
        for lane_id in [lane_id for lane_id in tables.lanes if lane_id[:2] == (queue_id, clock.level)]:
            lane = tables.lanes[lane_id]
            base = None if lane.base is None else lane.base - clock.virtual
            self._changes.put(tables.lanes, lane_id, replace(lane, tag=lane.tag - clock.virtual, base=base))
        rebased = replace(tables.clocks.of(queue_id)[clock.level], virtual=0)
        self._changes.add(tables.clocks, queue_id, clock.level, rebased)

    async def take(
        self, queue_id: QueueId, wanted: Sequence[tuple[int, str, int]], worker_filter: WorkerFilter
    ) -> Sequence[Sequence[Task]]:
        return [self._first_of((queue_id, level, key), count, worker_filter) for level, key, count in wanted]

    async def stats(self, queue_id: QueueId, now_ms: int) -> QueueStats:
        tables = self._tables
        heads = backlog.heads(tables, queue_id).values()
        ends = tables.tasks_leased.of(queue_id)
        live = [tables.tasks[task_id] for task_id, at_ms in ends.items() if at_ms > now_ms]
        meter = tables.meters.get((queue_id, now_ms // MINUTE_MS), Meter())
        return QueueStats(
            ready=sum(lane.count for _, lane in lanes.busy(tables, queue_id)),
            leased=len(live),
            delayed=len(tables.tasks_delayed.of(queue_id)),
            expired=len(ends) - len(live),
            added_last_minute=meter.added,
            dispatched_last_minute=meter.dispatched,
            oldest=min(heads, key=lambda task: (task.enqueued_at_ms, task.seq), default=None),
            claimed=sum(task.claimed > 0 for task in live),
        )

    async def totals(self, namespace: str, kind: TaskKind, minute: int) -> tuple[int, int]:
        tables = self._tables
        mine = [
            row.queue_id for row in tables.queues.values() if (row.namespace, row.kind) == (namespace, kind)
        ]
        leased = [tables.tasks[task_id] for queue_id in mine for task_id in tables.tasks_leased.of(queue_id)]
        given = sum(tables.meters.get((queue_id, minute), Meter()).dispatched for queue_id in mine)
        return sum(not task.claimed for task in leased), given

    async def backlog(self, queue_id: QueueId, now_ms: int, top: int) -> Backlog:
        return backlog.backlog(self._tables, queue_id, now_ms, top)

    async def lane(self, queue_id: QueueId, level: int, key: str, now_ms: int) -> LaneBacklog | None:
        return task_position.lane(self._tables, (queue_id, level, key), now_ms // MINUTE_MS)

    async def lanes_before(
        self, queue_id: QueueId, level: int, rank: int, tag: int, most: int
    ) -> Sequence[Lane]:
        return task_position.lanes_before(self._tables, queue_id, level, (rank, tag))[:most]

    async def count_lanes_before(self, queue_id: QueueId, level: int, rank: int, tag: int, most: int) -> int:
        return len(await self.lanes_before(queue_id, level, rank, tag, most))

    async def new_lanes(self, queue_id: QueueId, level: int, most: int) -> Sequence[Lane]:
        return task_position.new_lanes(self._tables, queue_id, level)[:most]

    async def count_before(self, queue_id: QueueId, level: int, key: str | None, seq: int, most: int) -> int:
        return min(most, task_position.count_before(self._tables, queue_id, level, key, seq))

    async def head(self, queue_id: QueueId, level: int, key: str | None) -> Task | None:
        return task_position.head(self._tables, queue_id, level, key)

    async def route_heads(self, queue_id: QueueId, most: int) -> Sequence[Task]:
        return backlog.route_heads(self._tables, queue_id)[:most]

    async def count_route(self, queue_id: QueueId, type_: str, build_id: str | None, most: int) -> int:
        return min(most, backlog.count_route(self._tables, queue_id, type_, build_id))

    async def level_counts(
        self, queue_id: QueueId, to_level: int, now_ms: int, most: int
    ) -> Sequence[LevelCounts]:
        levels = range(ALL_LEVELS[0], to_level + 1)
        return [task_position.sight(self._tables, queue_id, level, now_ms) for level in levels]

    async def dispatched(self, queue_id: QueueId, minute: int) -> int:
        return self._tables.meters.get((queue_id, minute), Meter()).dispatched

    def settle(
        self,
        queue_id: QueueId,
        settled: Sequence[tuple[Lane, int]],
        clocks: Sequence[VirtualClock] = (),
        dispatched: int = 0,
    ) -> None:
        minute, changes = self._now_ms // MINUTE_MS, self._changes
        for lane, taken in settled:
            write = partial(lanes.settle, self._tables, changes, queue_id, lane, taken, minute)
            changes.record(write, Phase.SETTLE_LANES)
        for clock in clocks:
            changes.record(partial(changes.add, self._tables.clocks, queue_id, clock.level, clock))
        if dispatched:
            self.count_dispatches(queue_id, minute, dispatched)

    def refund(self, queue_id: QueueId, level: int, key: str, stride: int, minute: int) -> None:
        lane_id = (queue_id, level, key)
        self._changes.record(partial(lanes.refund, self._tables, self._changes, lane_id, stride, minute))

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
                if (queue_id, level, key) in self._tables.lane_meters:
                    self._changes.drop(self._tables.lane_meters, (queue_id, level, key))

        self._changes.record(write, Phase.FORGET)

    def _tells_nothing(self, lane_id: LaneId) -> bool:
        lane, clock = self._tables.lanes.get(lane_id), self._tables.clocks.of(lane_id[0]).get(lane_id[1])
        keyed, virtual = bool(lane_id[2]), 0 if clock is None else clock.virtual
        return keyed and lane is not None and not lane.count and lane.tag <= virtual

    async def any_meter_before(self, minute: int) -> bool:
        return any(counted < minute for _, counted in self._tables.meters)

    def forget_meters(self, before_minute: int) -> None:
        def write() -> None:
            for slot in [slot for slot in self._tables.meters if slot[1] < before_minute]:
                self._changes.drop(self._tables.meters, slot)

        self._changes.record(write, Phase.FORGET)

    def _first_of(self, lane_id: LaneId, count: int, worker_filter: WorkerFilter) -> Sequence[Task]:
        waiting = self._tables.tasks_ready.of(lane_id)
        tasks, now_ms = self._tables.tasks, self._now_ms
        fitting = (seq for seq, task_id in waiting.items() if fits(tasks[task_id], worker_filter, now_ms))
        return [self._tables.tasks[waiting[seq]] for seq in heapq.nsmallest(count, fitting)]

    def _marked(
        self, queue_id: QueueId, found: Iterable[Lane], worker_filter: WorkerFilter
    ) -> Sequence[Lane]:
        return [
            replace(lane, fits=int(self._has_fitting((queue_id, lane.level, lane.key), worker_filter)))
            for lane in found
        ]

    def _has_fitting(self, lane_id: LaneId, worker_filter: WorkerFilter) -> bool:
        return any(fits(task, worker_filter, self._now_ms) for task in backlog.waiting(self._tables, lane_id))

    def _seen(self, queue: Queue) -> Queue:
        return seen(self._tables, queue, self._now_ms)


def _within(level: int, levels: tuple[int, int]) -> bool:
    return levels[0] <= level <= levels[1]


def _is_open(lane: Lane, now_ms: int) -> bool:
    return lane.open_at_ms is not None and lane.open_at_ms <= now_ms


def _may_go(lane: Lane, now_ms: int) -> bool:
    """Whether the lane is neither blocked nor throttled at this time."""
    return lane.state < LaneState.THROTTLED or (lane.state == LaneState.THROTTLED and _is_open(lane, now_ms))
