"""Tasks, the queues and lanes in which they wait, and query tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.core.model import (
    QueryKind,
    QueryTask,
    Queue,
    QueueId,
    QueueStats,
    RunId,
    Task,
    TaskId,
    TaskKind,
    TaskPriority,
    TaskState,
)
from penstock.core.scheduling.backlog import (
    ALL_KEYS,
    BEFORE_ALL_KEYS,
    Backlog,
    KeyFilter,
    KeyPlace,
    LaneBacklog,
)
from penstock.core.scheduling.dispatch import BlockedLanes, WorkerFilter
from penstock.core.scheduling.fairness import ALL_LEVELS, Arrival, Lane, LaneState, Starving, VirtualClock
from penstock.core.scheduling.slots import SlotUsage
from penstock.core.timeline.values import TaskTimes
from penstock.core.visibility.live_tasks import LiveTasks
from penstock.core.why.position import LevelCounts
from penstock.ports.tables.visibility import PageStart as PageStart


class Tasks(Protocol):
    async def get(self, task_id: TaskId) -> Task | None: ...
    async def lock(self, task_id: TaskId) -> Task | None: ...
    async def times_of(self, run_id: RunId, limit: int) -> Sequence[TaskTimes]:
        """The instants of the run's tasks, live or not, for its timeline."""
        ...

    async def live_by_state(self, run_ids: Sequence[RunId]) -> Sequence[Sequence[LiveTasks]]:
        """For each run its live tasks, counted by kind and state."""
        ...

    async def lock_live_of(self, run_id: RunId) -> Sequence[Task]:
        """Every live task of the run (ready, delayed or leased), locked."""
        ...

    async def lock_workflow_task(self, run_id: RunId) -> Task | None:
        """The run's live workflow task, locked; there is at most one."""
        ...

    async def redelivered(self, namespace: str, polls: Sequence[tuple[str, str]]) -> Sequence[Sequence[Task]]:
        """For each (worker id, poll request id): the live leases that the same poll request already got."""
        ...

    async def leased_by(self, namespace: str, worker_id: str) -> Sequence[TaskId]: ...
    async def held(
        self, namespace: str, kind: TaskKind, sessions: Sequence[tuple[str, int]]
    ) -> Sequence[SlotUsage]:
        """The slots each worker uses, by leases granted since its session began: (worker id, session start)."""
        ...

    async def notify_at_ends(self, namespace: str, kind: TaskKind, worker_ids: Sequence[str]) -> None:
        """Notify the queue's topic when a lease of these workers ends, from now on.

        Does not cover leases whose end is being committed concurrently; `held` counts those.
        """
        ...

    async def leases_on(self, queue_id: QueueId, limit: int) -> Sequence[Task]: ...
    async def expired(self, now_ms: int, limit: int) -> Sequence[TaskId]: ...
    async def due(self, now_ms: int, limit: int) -> Sequence[TaskId]: ...
    async def next_due_at_ms(self) -> int | None:
        """When the next delayed task becomes ready."""
        ...

    async def any_ready(self, queue_id: QueueId, worker_filter: WorkerFilter) -> bool: ...
    async def ready_on(self, queue_ids: Sequence[QueueId]) -> Sequence[QueueId]:
        """Those of the queues that have a ready task, for any worker."""
        ...

    async def matchable(self, queue_id: QueueId, worker_filter: WorkerFilter) -> WorkerFilter | None:
        """The filter, narrowed to types that have ready tasks; None if there are none."""
        ...

    async def sticky(self, queue_id: QueueId) -> Mapping[str, int]:
        """The workers that have sticky ready tasks in the queue, with the time at which the first of each expires."""
        ...

    def insert(self, task: Task, priority: TaskPriority) -> None:
        """Enqueue a new task: its row and, if it is ready, its lane's count."""
        ...

    def save(self, task: Task, was: TaskState) -> None:
        """Update the state; the lane's count follows when the task enters or leaves `ready`.

        When a counted lease ends, the counts of its key and scopes go down, the key's blocked lanes become dirty, and
        the topics of the queue and the scopes are notified.
        """
        ...

    def lease(self, task: Task) -> None:
        """Record a grant. `Queues.settle` has billed the lane and lowered its count."""
        ...


class Queues(Protocol):
    async def ensure(self, namespace: str, name: str, kind: TaskKind) -> Queue:
        """The queue, created if it is new. It may come from a cache: only its identity is reliable."""
        ...

    async def find(self, namespace: str, name: str) -> Sequence[Queue]: ...
    async def list(self, namespace: str) -> Sequence[Queue]: ...
    async def lock(self, queue_id: QueueId) -> Queue | None: ...
    async def lanes(
        self, queue_id: QueueId, worker_filter: WorkerFilter, room: int, levels: tuple[int, int] = ALL_LEVELS
    ) -> Sequence[Lane]:
        """The first `room` ready lanes with matching tasks, of a range of levels."""
        ...

    async def lanes_to_tag(
        self, queue_id: QueueId, worker_filter: WorkerFilter, lane_state: LaneState
    ) -> Sequence[Lane]:
        """A bounded number of new or dirty lanes, marked with whether they have matching tasks."""
        ...

    async def lanes_due(self, queue_id: QueueId, worker_filter: WorkerFilter, now_ms: int) -> Sequence[Lane]:
        """A bounded number of throttled lanes that may go again, marked with whether they have matching tasks."""
        ...

    async def wake_due_lanes(self, queue_id: QueueId, now_ms: int) -> None:
        """Mark every throttled lane that may go again as dirty."""
        ...

    async def arrivals(
        self,
        queue_id: QueueId,
        worker_filter: WorkerFilter,
        room: int,
        now_ms: int,
        levels: tuple[int, int] = ALL_LEVELS,
    ) -> Sequence[tuple[Arrival, Lane]]:
        """The first matching ready tasks in order of level and arrival, each with its lane.

        Tasks in blocked and throttled lanes are skipped.
        """
        ...

    async def blocked(self, queue_id: QueueId) -> BlockedLanes: ...
    async def starving(self, queue_id: QueueId, since_ms: int, most: int) -> Sequence[Starving]:
        """For each level that has any: how many of its `most` oldest ready tasks were enqueued before a time."""
        ...

    async def running(self, queue_id: QueueId, most: int) -> int:
        """The number of leased tasks, counted up to `most`."""
        ...

    async def clocks(self, queue_id: QueueId) -> Sequence[VirtualClock]: ...
    async def rebase(self, queue_id: QueueId, clock: VirtualClock) -> None:
        """Subtract a level's virtual time from the clock and all tags of the level."""
        ...

    async def take(
        self, queue_id: QueueId, wanted: Sequence[tuple[int, str, int]], worker_filter: WorkerFilter
    ) -> Sequence[Sequence[Task]]:
        """For each (level, key, count): the first matching ready tasks of that lane, locked, oldest first."""
        ...

    async def stats(self, queue_id: QueueId, now_ms: int) -> QueueStats: ...
    async def totals(self, namespace: str, kind: TaskKind, minute: int) -> tuple[int, int]:
        """The leased tasks of a kind in a namespace, and its dispatches in a minute, over all queues."""
        ...

    async def backlog(
        self,
        queue_id: QueueId,
        now_ms: int,
        top: int,
        wanted: KeyFilter = ALL_KEYS,
        after: KeyPlace = BEFORE_ALL_KEYS,
    ) -> Backlog:
        """Waiting tasks by level, and the `top` lanes with the most tasks.

        Args:
            queue_id: the queue.
            now_ms: the time, for what was dispatched lately.
            top: how many lanes.
            wanted: only lanes of these keys.
            after: only lanes behind this place.
        """
        ...

    async def lane(self, queue_id: QueueId, level: int, key: str, now_ms: int) -> LaneBacklog | None:
        """One busy lane, in any state."""
        ...

    async def lanes_before(
        self, queue_id: QueueId, level: int, rank: int, tag: int, most: int
    ) -> Sequence[Lane]:
        """The first ready lanes of a level up to a rank and tag."""
        ...

    async def count_lanes_before(self, queue_id: QueueId, level: int, rank: int, tag: int, most: int) -> int:
        """The number of `lanes_before`, counted up to `most`."""
        ...

    async def new_lanes(self, queue_id: QueueId, level: int, most: int) -> Sequence[Lane]:
        """The first new lanes of a level, by key."""
        ...

    async def count_before(self, queue_id: QueueId, level: int, key: str | None, seq: int, most: int) -> int:
        """The number of ready tasks of a lane, or of a level (`key` None), ahead of one, counted up to `most`."""
        ...

    async def head(self, queue_id: QueueId, level: int, key: str | None) -> Task | None:
        """The oldest ready task of a lane, or of a level (`key` None)."""
        ...

    async def heads(
        self, queue_id: QueueId, level: int, wanted: Mapping[str, int]
    ) -> Mapping[str, Sequence[Task]]:
        """The first ready tasks of some lanes, by key: as many of each as `wanted` says."""
        ...

    async def route_heads(self, queue_id: QueueId, most: int) -> Sequence[Task]:
        """One ready task of each route (type and build), for up to `most` routes in order of type and build.

        The cost depends on the number of routes, not of tasks.
        """
        ...

    async def count_route(self, queue_id: QueueId, type_: str, build_id: str | None, most: int) -> int:
        """The number of ready tasks of this type and build, counted up to `most`."""
        ...

    async def level_counts(
        self, queue_id: QueueId, to_level: int, now_ms: int, most: int
    ) -> Sequence[LevelCounts]:
        """Waiting and recently dispatched tasks of each level up to one, over up to `most` lanes a level."""
        ...

    async def dispatched(self, queue_id: QueueId, minute: int) -> int:
        """The dispatches of a calendar minute."""
        ...

    def settle(
        self,
        queue_id: QueueId,
        lanes: Sequence[tuple[Lane, int]],
        clocks: Sequence[VirtualClock] = (),
        dispatched: int = 0,
    ) -> None:
        """Update the lanes of a claim, each with how many tasks it gave, the clocks, and the meter of this minute.

        The count of a lane is lowered, not set, because enqueues do not lock the lane's queue. The lane becomes new if
        its weight changed meanwhile. A lane blocked at a lease cap (`held_at`) becomes dirty instead if its key, as it
        will be committed, is below the cap.
        """
        ...

    def refund(self, queue_id: QueueId, level: int, key: str, stride: int, minute: int) -> None:
        """Refund a task that was granted in this calendar minute and never delivered.

        The lane's tag goes back by `stride`, or the stride of its present weight if that is less, and the lane's meter
        of that minute goes down by one. Call it under the queue's lock; `Tasks.save` puts the task back into the lane.
        """
        ...

    def count_dispatches(self, queue_id: QueueId, minute: int, count: int) -> None: ...
    async def idle_lanes(self, limit: int) -> Sequence[tuple[QueueId, int, str]]:
        """Keyed lanes without tasks whose tag is behind the clock: their rows have no information left."""
        ...

    def drop_lane(self, queue_id: QueueId, level: int, key: str) -> None:
        """Delete a lane if it is still idle."""
        ...

    async def any_meter_before(self, minute: int) -> bool: ...
    def forget_meters(self, before_minute: int) -> None: ...


QueryQueue = tuple[QueryKind, str, str]
"""A queue of query tasks: kind, namespace and task queue."""


class Queries(Protocol):
    async def get(self, query_id: str) -> QueryTask | None: ...
    async def lock(self, query_id: str) -> QueryTask | None: ...
    async def count_pending(
        self, namespace: str, task_queue: str, now_ms: int, kind: QueryKind = QueryKind.QUERY
    ) -> int: ...
    async def lock_next(
        self,
        namespace: str,
        task_queue: str,
        worker_filter: WorkerFilter,
        now_ms: int,
        kind: QueryKind = QueryKind.QUERY,
    ) -> QueryTask | None:
        """The oldest matching pending query whose caller still waits, locked."""
        ...

    async def pending_on(self, queues: Sequence[QueryQueue], now_ms: int) -> Sequence[QueryQueue]:
        """Those of the queues that have a pending query."""
        ...

    async def lapsed(self, now_ms: int, limit: int) -> Sequence[str]:
        """Queries whose caller is gone or whose lease has expired."""
        ...

    def insert(self, query: QueryTask) -> None: ...
    def save(self, query: QueryTask) -> None: ...
    def delete(self, query_id: str) -> None: ...
