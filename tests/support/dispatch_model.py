"""A model of dispatch: what the SQL statements about lanes, keys, leases and scopes do, in dictionaries.

It shares no code with the stores, so that an error in a statement, which both databases would share, is a difference.
It implements the part of `Tx` that the equivalence tests of dispatch use, and no more: no rollback, no concurrency, no
clock but that of its caller. Writes are applied after the operation has returned, in the order of `Phase`, which is
the order that every store keeps.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits.admission import Admission, Declaration, ScopeRow
from penstock.core.limits.policies import KeySettings, KeyState, Policy
from penstock.core.limits.windows import Counts
from penstock.core.model import (
    WEIGHT_DEFAULT_MILLI,
    Queue,
    QueueId,
    QueueStats,
    Task,
    TaskId,
    TaskKind,
    TaskPriority,
    TaskState,
)
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
    rank,
)
from penstock.core.scheduling.gates import ScopeState
from penstock.ports.clock import Clock
from penstock.ports.store import Operation, Store, TransactionClass, Tx

T = TypeVar("T")
LaneId = tuple[QueueId, int, str]


class Phase(IntEnum):
    """The order in which recorded writes are applied."""

    ROWS = 0
    UNCOUNT_KEYS = 1
    KEYS = 2
    JOIN_LANES = 3
    REJOIN_LANES = 4
    LEAVE_LANES = 5
    SETTLE_LANES = 6
    TOUCH_LANES = 7
    SETTLE_SCOPES = 8


class KeyRow(Struct, frozen=True):
    settings: KeySettings
    paid_until_ns: int = 0
    running: int = 0


class DispatchModel:
    """All rows, and the operations on them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._writes: list[tuple[Phase, Callable[[], None]]] = []
        self.now_ms = 0
        self.queues: dict[QueueId, Queue] = {}
        self.tasks: dict[TaskId, Task] = {}
        self.lanes: dict[LaneId, Lane] = {}
        self.clocks: dict[tuple[QueueId, int], VirtualClock] = {}
        self.keys: dict[tuple[QueueId, str], KeyRow] = {}
        self.scopes: dict[int, ScopeState] = {}
        self.admission = Admission()
        self.numbers = itertools.count(1)

    @classmethod
    def store(cls, clock: Clock) -> Store:
        """The model, as far as it goes, as a store."""
        return cast("Store", cls(clock))

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        answer = await self.read(operation)
        writes, self._writes = self._writes, []
        for _, write in sorted(writes, key=lambda each: each[0]):
            write()
        return answer

    async def read(self, operation: Operation[T]) -> T:
        self.now_ms = self._clock.now_ms()
        tx = SimpleNamespace(
            now_ms=self.now_ms,
            queues=ModelQueues(self),
            tasks=ModelTasks(self),
            policies=ModelPolicies(self),
            scopes=ModelScopes(self),
        )
        return await operation(cast("Tx", tx))

    def record(self, write: Callable[[], None], phase: Phase = Phase.ROWS) -> None:
        self._writes.append((phase, write))

    # views

    def seen(self, queue: Queue) -> Queue:
        limits = self.admission.of(queue.namespace, queue.name, queue.kind, queue.policy, self.now_ms)
        return replace(queue, limits=limits, at_ms=self.now_ms)

    def ready(self, lane_id: LaneId) -> list[Task]:
        """The ready tasks of a lane, the first first."""
        found = [
            task
            for task in self.tasks.values()
            if task.state is TaskState.READY and _lane_id(task) == lane_id
        ]
        return sorted(found, key=lambda task: task.seq)

    def leases(self, queue_id: QueueId) -> list[Task]:
        return [
            task
            for task in self.tasks.values()
            if task.queue_id == queue_id and task.state is TaskState.LEASED
        ]

    def busy(self, queue_id: QueueId, key: str | None = None) -> list[tuple[LaneId, Lane]]:
        """The lanes with ready tasks, of all keys or one."""
        return [
            (lane_id, lane)
            for lane_id, lane in self.lanes.items()
            if lane_id[0] == queue_id and lane.count and key in (None, lane.key)
        ]

    def key(self, queue_id: QueueId, key: str) -> KeyRow:
        return self.keys.get((queue_id, key)) or KeyRow(KeySettings(key))

    # changes

    def mark(
        self, queue_id: QueueId, state: LaneState, which: Callable[[Lane], bool], key: str | None = None
    ) -> None:
        """Set the state of some busy lanes."""
        for lane_id, lane in self.busy(queue_id, key):
            if which(lane):
                self.lanes[lane_id] = replace(lane, state=state)

    def enter(self, lane_id: LaneId, wanted_milli: int | None) -> None:
        """Count a ready task; `wanted_milli` is the weight that it asks for, None to leave the weight as it is."""
        clock = self.clocks.get(lane_id[:2])
        base = 0 if clock is None else clock.virtual
        lane = self.lanes.get(lane_id)
        if lane is None:
            weight = wanted_milli or WEIGHT_DEFAULT_MILLI
            lane = Lane(lane_id[1], lane_id[2], 0, weight, weight, count=0, state=LaneState.NEW, base=base)
        if not lane.count:
            lane = replace(lane, state=LaneState.NEW, base=base)
        lane = replace(lane, count=lane.count + 1, wanted_milli=wanted_milli or lane.wanted_milli)
        if wanted_milli is not None and lane.effective_milli != lane.weight_milli:
            lane = replace(lane, state=LaneState.NEW)
        self.lanes[lane_id] = lane

    def leave(self, lane_id: LaneId) -> None:
        lane = self.lanes[lane_id]
        self.lanes[lane_id] = replace(lane, count=lane.count - 1)

    def settle_lane(self, queue_id: QueueId, lane: Lane, taken: int) -> None:
        """Charge a lane for dispatched tasks; it is NEW or DIRTY if its row has changed since it was read."""
        row = self.lanes[queue_id, lane.level, lane.key]
        after = replace(
            lane, wanted_milli=row.wanted_milli, count=row.count - taken, base=row.base, fits=1, held_at=None
        )
        running = self.key(queue_id, lane.key).running
        unblocked = lane.held_at is not None and running < lane.held_at
        reranked = lane.rank > 0 and lane.rank != rank(running, lane.weight_milli)
        if after.effective_milli != after.weight_milli:
            after = replace(after, state=LaneState.NEW)
        elif unblocked or reranked:
            after = replace(after, state=LaneState.DIRTY)
        assert after.count >= 0
        self.lanes[queue_id, lane.level, lane.key] = after


class _Part:
    """One table of the transaction."""

    def __init__(self, model: DispatchModel) -> None:
        self._model = model


class ModelQueues(_Part):
    async def ensure(self, namespace: str, name: str, kind: TaskKind) -> Queue:
        for queue in self._model.queues.values():
            if (queue.namespace, queue.name, queue.kind) == (namespace, name, kind):
                return self._model.seen(queue)
        queue = Queue(QueueId(len(self._model.queues) + 1), namespace, name, kind)
        self._model.queues[queue.queue_id] = queue
        return self._model.seen(queue)

    async def lock(self, queue_id: QueueId) -> Queue:
        return self._model.seen(self._model.queues[queue_id])

    async def lanes(
        self, queue_id: QueueId, worker_filter: WorkerFilter, room: int, levels: tuple[int, int] = ALL_LEVELS
    ) -> Sequence[Lane]:
        found = [
            lane
            for lane_id, lane in self._model.busy(queue_id)
            if lane.state == LaneState.READY
            and levels[0] <= lane.level <= levels[1]
            and self._fits(lane_id, worker_filter)
        ]
        return heapq.nsmallest(room, found, key=lambda lane: (lane.level, lane.rank, lane.tag, lane.key))

    async def lanes_to_tag(
        self, queue_id: QueueId, worker_filter: WorkerFilter, lane_state: LaneState
    ) -> Sequence[Lane]:
        found = [lane for _, lane in self._model.busy(queue_id) if lane.state == lane_state]
        found.sort(key=lambda lane: (lane.level, lane.key))
        return self._marked(queue_id, found, worker_filter)

    async def lanes_due(self, queue_id: QueueId, worker_filter: WorkerFilter, now_ms: int) -> Sequence[Lane]:
        found = [lane for _, lane in self._model.busy(queue_id) if _is_due(lane, now_ms)]
        found.sort(key=lambda lane: (lane.open_at_ms or 0, lane.level, lane.key))
        return self._marked(queue_id, found, worker_filter)

    async def arrivals(
        self,
        queue_id: QueueId,
        worker_filter: WorkerFilter,
        room: int,
        now_ms: int,
        levels: tuple[int, int] = ALL_LEVELS,
    ) -> Sequence[tuple[Arrival, Lane]]:
        found = [
            (Arrival(lane.level, task.seq, lane.key), lane)
            for lane_id, lane in self._model.busy(queue_id)
            if levels[0] <= lane.level <= levels[1]
            and (lane.state < LaneState.THROTTLED or _is_due(lane, now_ms))
            for task in self._model.ready(lane_id)
            if _can_take(task, worker_filter, now_ms)
        ]
        return heapq.nsmallest(room, found, key=lambda each: (each[0].level, each[0].seq))

    async def blocked(self, queue_id: QueueId) -> BlockedLanes:
        busy = [lane for _, lane in self._model.busy(queue_id)]
        opens = [lane.open_at_ms for lane in busy if lane.state == LaneState.THROTTLED]
        at_ms = min((each for each in opens if each is not None), default=None)
        return BlockedLanes(at_ms, any(lane.state == LaneState.BLOCKED for lane in busy))

    async def starving(self, queue_id: QueueId, since_ms: int, most: int) -> Sequence[Starving]:
        found = []
        for level, tasks in sorted(self._by_level(queue_id).items()):
            waits = [task.enqueued_at_ms for task in tasks[:most] if task.enqueued_at_ms <= since_ms]
            if waits:
                found.append(Starving(level, min(waits), len(waits)))
        return found

    async def running(self, queue_id: QueueId, most: int) -> int:
        return min(most, sum(not task.claimed for task in self._model.leases(queue_id)))

    async def clocks(self, queue_id: QueueId) -> Sequence[VirtualClock]:
        mine = [clock for (of, _), clock in self._model.clocks.items() if of == queue_id]
        return sorted(mine, key=lambda clock: clock.level)

    async def take(
        self, queue_id: QueueId, wanted: Sequence[tuple[int, str, int]], worker_filter: WorkerFilter
    ) -> Sequence[Sequence[Task]]:
        return [
            [
                task
                for task in self._model.ready((queue_id, level, key))
                if _can_take(task, worker_filter, self._model.now_ms)
            ][:count]
            for level, key, count in wanted
        ]

    async def stats(self, queue_id: QueueId, now_ms: int) -> QueueStats:
        """Only the oldest task."""
        heads = [tasks[0] for tasks in self._by_level(queue_id).values()]
        return QueueStats(oldest=min(heads, key=lambda task: (task.enqueued_at_ms, task.seq), default=None))

    async def backlog(self, queue_id: QueueId, now_ms: int, top: int) -> Backlog:
        """Only the lanes."""
        found = [lane for _, lane in self._model.busy(queue_id)]
        found.sort(key=lambda lane: (-lane.count, lane.level, lane.key))
        return Backlog(lanes=tuple(LaneBacklog(lane, 0, 0) for lane in found[:top]))

    def settle(
        self,
        queue_id: QueueId,
        lanes: Sequence[tuple[Lane, int]],
        clocks: Sequence[VirtualClock] = (),
        dispatched: int = 0,
    ) -> None:
        for lane, taken in lanes:
            self._model.record(partial(self._model.settle_lane, queue_id, lane, taken), Phase.SETTLE_LANES)
        self._model.record(
            lambda: self._model.clocks.update({(queue_id, clock.level): clock for clock in clocks})
        )

    def count_dispatches(self, queue_id: QueueId, minute: int, count: int) -> None:
        """Not modelled."""

    def _by_level(self, queue_id: QueueId) -> dict[int, list[Task]]:
        levels: dict[int, list[Task]] = {}
        for lane_id, lane in self._model.busy(queue_id):
            levels.setdefault(lane.level, []).extend(self._model.ready(lane_id))
        return {level: sorted(tasks, key=lambda task: task.seq) for level, tasks in levels.items()}

    def _marked(self, queue_id: QueueId, found: list[Lane], worker_filter: WorkerFilter) -> Sequence[Lane]:
        return [
            replace(lane, fits=int(self._fits((queue_id, lane.level, lane.key), worker_filter)))
            for lane in found[:TAGGED_AT_ONCE_MAX]
        ]

    def _fits(self, lane_id: LaneId, worker_filter: WorkerFilter) -> bool:
        now_ms = self._model.now_ms
        return any(_can_take(task, worker_filter, now_ms) for task in self._model.ready(lane_id))


class ModelTasks(_Part):
    async def lock(self, task_id: TaskId) -> Task | None:
        return self._model.tasks.get(task_id)

    async def leases_on(self, queue_id: QueueId, limit: int) -> Sequence[Task]:
        found = self._model.leases(queue_id)
        return heapq.nsmallest(limit, found, key=lambda task: (task.lease_expires_at_ms or 0, task.task_id))

    def insert(self, task: Task, priority: TaskPriority) -> None:
        model = self._model
        model.record(lambda: model.tasks.update({task.task_id: replace(task, seq=next(model.numbers))}))
        if task.state is TaskState.READY:
            model.record(lambda: model.enter(_lane_id(task), priority.weight_milli), Phase.JOIN_LANES)

    def lease(self, task: Task) -> None:
        self._put(task)

    def save(self, task: Task, was: TaskState) -> None:
        model, ended = self._model, was is TaskState.LEASED and task.state is not TaskState.LEASED
        self._put(replace(task, counted=0, scopes="", claimed=0) if ended else task)
        if ended:
            self._uncount(task)
        if was is not TaskState.READY and task.state is TaskState.READY:
            model.record(lambda: model.enter(_lane_id(task), None), Phase.REJOIN_LANES)
        if was is TaskState.READY and task.state is not TaskState.READY:
            model.record(lambda: model.leave(_lane_id(task)), Phase.LEAVE_LANES)

    def _put(self, task: Task) -> None:
        tasks = self._model.tasks
        self._model.record(lambda: tasks.update({task.task_id: replace(task, seq=tasks[task.task_id].seq)}))

    def _uncount(self, task: Task) -> None:
        model, queue_id, key = self._model, task.queue_id, task.key

        def uncount() -> None:
            if (row := model.keys.get((queue_id, key))) is not None:
                model.keys[queue_id, key] = replace(row, running=row.running - 1)

        def is_held(lane: Lane) -> bool:
            return lane.state == LaneState.BLOCKED or (lane.state == LaneState.READY and lane.rank > 0)

        if task.counted == 1:
            model.record(uncount, Phase.UNCOUNT_KEYS)
            model.record(lambda: model.mark(queue_id, LaneState.DIRTY, is_held, key), Phase.TOUCH_LANES)
        for scope_id in map(int, task.scopes.split()):
            model.record(lambda scope_id=scope_id: self._end(scope_id))  # type: ignore[misc]

    def _end(self, scope_id: int) -> None:
        state = self._model.scopes[scope_id]
        self._model.scopes[scope_id] = replace(state, ended=state.ended + 1)


class ModelPolicies(_Part):
    async def key_states(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeyState]:
        rows = {key: self._model.keys[queue_id, key] for key in keys if (queue_id, key) in self._model.keys}
        return {key: _state(row) for key, row in rows.items()}

    async def key_settings(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeySettings]:
        found = {key: self._model.key(queue_id, key).settings for key in keys}
        return {key: settings for key, settings in found.items() if settings.at_ms is not None}

    async def count_leases(self, queue_id: QueueId) -> None:
        leases = self._model.leases(queue_id)
        for task in leases:
            self._model.tasks[task.task_id] = replace(task, counted=1)
        running = Counter(task.key for task in leases)
        for key in {*running, *(key for of, key in self._model.keys if of == queue_id)}:
            row = self._model.key(queue_id, key)
            if row.running != running[key]:
                self._model.keys[queue_id, key] = replace(row, running=running[key])

    async def rank_lanes(self, queue_id: QueueId, *, by_running: bool) -> None:
        for lane_id, lane in [each for each in self._model.lanes.items() if each[0][0] == queue_id]:
            running = self._model.key(queue_id, lane.key).running
            if not by_running:
                self._model.lanes[lane_id] = replace(lane, rank=0)
            elif lane.count:
                self._model.lanes[lane_id] = replace(lane, rank=rank(running, lane.weight_milli))

    def save(self, queue_id: QueueId, policy: Policy) -> None:
        self._change(queue_id, policy=policy)

    def settle(self, queue_id: QueueId, paid_until_ns: int, aging_turn: int, window: Counts) -> None:
        self._change(queue_id, paid_until_ns=paid_until_ns, aging_turn=aging_turn, window=window)

    def save_key(self, queue_id: QueueId, settings: KeySettings) -> None:
        saved = replace(settings, at_ms=None) if settings.is_empty else settings
        self._change_key(queue_id, settings.key, lambda row: replace(row, settings=saved))

    def spend(self, queue_id: QueueId, key: str, paid_until_ns: int | None, leased: int) -> None:
        def spent(row: KeyRow) -> KeyRow:
            paid = paid_until_ns or row.paid_until_ns
            return replace(row, paid_until_ns=paid, running=row.running + leased)

        self._change_key(queue_id, key, spent)

    def touch_key(self, queue_id: QueueId, key: str, lane_state: LaneState) -> None:
        self._touch(queue_id, lane_state, lambda lane: lane.state != LaneState.NEW, key)

    def rerank_others(self, queue_id: QueueId, level: int, key: str) -> None:
        def is_other(lane: Lane) -> bool:
            return lane.level != level and lane.state == LaneState.READY

        self._touch(queue_id, LaneState.DIRTY, is_other, key)

    def reset_lanes(self, queue_id: QueueId, lane_state: LaneState) -> None:
        looked_at = (LaneState.DIRTY, LaneState.THROTTLED, LaneState.BLOCKED)
        self._touch(queue_id, lane_state, lambda lane: lane.state in looked_at)

    def _touch(
        self, queue_id: QueueId, state: LaneState, which: Callable[[Lane], bool], key: str | None = None
    ) -> None:
        self._model.record(lambda: self._model.mark(queue_id, state, which, key), Phase.TOUCH_LANES)

    def _change(self, queue_id: QueueId, **values: Any) -> None:
        queues = self._model.queues
        self._model.record(lambda: queues.update({queue_id: replace(queues[queue_id], **values)}))

    def _change_key(self, queue_id: QueueId, key: str, change: Callable[[KeyRow], KeyRow]) -> None:
        model = self._model
        model.record(
            lambda: model.keys.update({(queue_id, key): change(model.key(queue_id, key))}), Phase.KEYS
        )


class ModelScopes(_Part):
    async def admission(self) -> Admission:
        return self._model.admission

    async def lock_admission(self) -> Admission:
        return self._model.admission

    async def lock_queues(self, namespace: str | None) -> Sequence[Queue]:
        rows = self._model.queues.values()
        return [self._model.seen(row) for row in rows if namespace in (None, row.namespace)]

    async def ids(self, names: Sequence[str]) -> Sequence[int]:
        known = {state.name: scope_id for scope_id, state in self._model.scopes.items()}
        for name in sorted(set(names) - known.keys()):
            known[name] = len(self._model.scopes) + 1
            self._model.scopes[known[name]] = ScopeState(known[name], name)
        return [known[name] for name in names]

    async def lock(self, scope_ids: Sequence[int]) -> Sequence[ScopeState]:
        return [self._model.scopes[scope_id] for scope_id in sorted(scope_ids)]

    async def find(self, names: Sequence[str]) -> Sequence[ScopeState]:
        return [state for state in self._model.scopes.values() if state.name in names]

    async def settlements(self, scope_id: int) -> Sequence[tuple[int, int]]:
        return ()

    async def counted(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        return sum(f" {scope_id} " in task.scopes for task in self._leases(queue_ids))

    async def adopt(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        joining = [
            task
            for task in self._leases(queue_ids)
            if not task.claimed and f" {scope_id} " not in task.scopes
        ]
        for task in joining:
            self._model.tasks[task.task_id] = replace(task, scopes=f"{task.scopes or ' '}{scope_id} ")
        return len(joining)

    def settle(self, state: ScopeState) -> None:
        scopes = self._model.scopes

        def write() -> None:
            scopes[state.scope_id] = replace(state, ended=scopes[state.scope_id].ended)

        self._model.record(write, Phase.SETTLE_SCOPES)

    def save_policy(self, scope_id: int, policy: Policy) -> None:
        def write() -> None:
            row = ScopeRow(scope_id, self._model.scopes[scope_id].name, policy)
            others = [each for each in self._model.admission.rows if each.scope_id != scope_id]
            self._change(rows=tuple(sorted((*others, row), key=lambda each: each.name)))

        self._model.record(write)

    def declare(self, declaration: Declaration, by: str) -> None:
        self._model.record(
            lambda: self._change(declaration=declaration, declared_by=by, declared_at_ms=self._model.now_ms)
        )

    def stamp(self, stamp: str, queue_ids: Sequence[QueueId]) -> None:
        self._model.record(lambda: self._change(version=self._model.admission.version + 1))

    def _leases(self, queue_ids: Sequence[QueueId]) -> Iterator[Task]:
        return (task for queue_id in queue_ids for task in self._model.leases(queue_id))

    def _change(self, **values: Any) -> None:
        """A new object, because an admission caches what it has computed."""
        self._model.admission = replace(self._model.admission, **values)


def _lane_id(task: Task) -> LaneId:
    return task.queue_id, task.level, task.key


def _is_due(lane: Lane, now_ms: int) -> bool:
    """Whether a throttled lane is open again."""
    is_open = lane.open_at_ms is not None and lane.open_at_ms <= now_ms
    return lane.state == LaneState.THROTTLED and is_open


def _can_take(task: Task, worker_filter: WorkerFilter, now_ms: int) -> bool:
    """Whether type and build match, and the task is not sticky to another worker."""
    if task.is_sticky(now_ms) and task.sticky_worker_id not in worker_filter.sticky_workers:
        return False
    knows_type = not worker_filter.types or task.type in worker_filter.types
    return knows_type and task.compatibility in (None, worker_filter.build_id)


def _state(row: KeyRow) -> KeyState:
    settings = row.settings
    return KeyState(
        settings.key,
        settings.weight_milli,
        settings.rate_micro,
        settings.lease_cap,
        settings.paused,
        row.paid_until_ns,
        row.running,
    )
