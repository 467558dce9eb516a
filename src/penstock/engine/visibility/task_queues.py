"""Task queues as operators see them: backlog, limits, workers and leases, from the rows that dispatch uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits.admission import LEASES_MAX
from penstock.core.limits.policies import KeyState
from penstock.core.model import Queue, QueueStats, Run, Task, TaskKind, WorkerRecord
from penstock.core.scheduling.backlog import LaneBacklog, LevelBacklog
from penstock.core.scheduling.dispatch import KeyHoldReason, key_hold
from penstock.core.scheduling.gates import Gate, gates
from penstock.core.timestamps import MINUTE_MS
from penstock.core.why.workers import RouteWait
from penstock.engine.context import EngineContext
from penstock.engine.limits import lease_holders, policies
from penstock.engine.visibility.worker_coverage import route_waits
from penstock.ports.store import Tx

LEASES_SHOWN = 100
HOLDERS_SHOWN = 20
KEYS_SHOWN = 20


class KeyStatus(StrEnum):
    """Whether a fairness key's next task may be dispatched, and if not, why."""

    READY = "ready"
    RATE_LIMITED = "rate_limited"
    AT_RUNNING_LIMIT = "at_running_limit"
    PAUSED = "paused"


_KEY_STATUS = {
    KeyHoldReason.PAUSED: KeyStatus.PAUSED,
    KeyHoldReason.RATE: KeyStatus.RATE_LIMITED,
    KeyHoldReason.RUNNING: KeyStatus.AT_RUNNING_LIMIT,
}


class KeyView(Struct, frozen=True):
    """The backlog of a lane and the state of its key."""

    part: LaneBacklog
    status: KeyStatus
    open_at_ms: int | None
    """When a rate-limited key may be served again."""
    running: int | None
    """The key's leases; None where they are not counted."""


class QueueKindView(Struct, frozen=True):
    """The backlog of one task kind: by level, and by the keys with the most tasks."""

    queue: Queue
    levels: Sequence[LevelBacklog]
    keys: Sequence[KeyView]

    def level(self, number: int) -> LevelBacklog:
        return next(each for each in self.levels if each.level == number)


class QueueView(Struct, frozen=True):
    """A named task queue: both task kinds and the registered workers."""

    name: str
    now_ms: int
    queues: Mapping[TaskKind, Queue]
    """Both kinds; a kind that was never used has the row it would get."""
    stats: Mapping[TaskKind, QueueStats]
    workers: Sequence[WorkerRecord]
    leases: Sequence[Task] = ()
    runs: Mapping[str, Run] | None = None
    pending_queries: int = 0
    lines: Mapping[TaskKind, QueueKindView] = field(default_factory=dict)
    """Filled by `describe`, not by `list_queues`."""
    gates: Mapping[TaskKind, Sequence[Gate]] = field(default_factory=dict)
    """Every limit of each kind and its current state."""
    totals: Mapping[TaskKind, tuple[int, int]] = field(default_factory=dict)
    """The namespace's active leases and dispatches of this minute, by kind."""
    holders: Mapping[str, Sequence[Task]] = field(default_factory=dict)
    """The holders of each scope's leases. Filled by `describe`, not by `list_queues`."""
    waits: Mapping[TaskKind, Sequence[RouteWait]] = field(default_factory=dict)
    """The task types and builds whose ready tasks no worker can take now."""

    @property
    def unserved(self) -> Sequence[RouteWait]:
        """The waits that end only when a worker is started or changed."""
        return [each for waits in self.waits.values() for each in waits if each.is_unserved]


async def list_queues(ctx: EngineContext, namespace: str) -> Sequence[QueueView]:
    """Every queue that has tasks or workers, by name."""

    async def operation(tx: Tx) -> Sequence[QueueView]:
        workers = await tx.workers.list(namespace, None)
        queues = await tx.queues.list(namespace)
        names = sorted({worker.task_queue for worker in workers} | {queue.name for queue in queues})
        totals = await _totals(tx, namespace)
        views = []
        for name in names:
            used = {queue.kind: queue for queue in queues if queue.name == name}
            stats = {kind: await tx.queues.stats(queue.queue_id, tx.now_ms) for kind, queue in used.items()}
            pending = await tx.queries.count_pending(namespace, name, tx.now_ms)
            mine = [worker for worker in workers if worker.task_queue == name]
            by_kind = {kind: await policies.find_queue(tx, namespace, name, kind) for kind in TaskKind}
            gates_ = {
                kind: await gates_of(tx, queue, _oldest(stats, kind)) for kind, queue in by_kind.items()
            }
            views.append(
                QueueView(
                    name,
                    tx.now_ms,
                    by_kind,
                    stats,
                    mine,
                    pending_queries=pending,
                    gates=gates_,
                    totals=totals,
                    waits=await _waits(ctx, tx, used, mine),
                )
            )
        return views

    return await ctx.store.read(operation, long=True)


async def describe(ctx: EngineContext, namespace: str, name: str) -> QueueView:
    """One queue with its leases. A name that was never used is an empty queue, not an error."""

    async def operation(tx: Tx) -> QueueView:
        queues = await tx.queues.find(namespace, name)
        stats = {queue.kind: await tx.queues.stats(queue.queue_id, tx.now_ms) for queue in queues}
        leases = [task for queue in queues for task in await tx.tasks.leases_on(queue.queue_id, LEASES_SHOWN)]
        oldest = [each.oldest for each in stats.values() if each.oldest is not None]
        ids = list(dict.fromkeys(task.run_id for task in (*leases, *oldest)))
        runs = {run.run_id: run for run in await tx.runs.get_many(ids) if run is not None}
        workers = await tx.workers.list(namespace, name)
        named = {str(key): run for key, run in runs.items()}
        pending = await tx.queries.count_pending(namespace, name, tx.now_ms)
        by_kind = {kind: await policies.find_queue(tx, namespace, name, kind) for kind in TaskKind}
        return QueueView(
            name,
            tx.now_ms,
            by_kind,
            stats,
            workers,
            leases,
            named,
            pending,
            {kind: await _kind_view(tx, queue) for kind, queue in by_kind.items()},
            {kind: await gates_of(tx, queue, _oldest(stats, kind)) for kind, queue in by_kind.items()},
            await _totals(tx, namespace),
            await _holders(tx, namespace, [*by_kind.values()]),
            await _waits(ctx, tx, {queue.kind: queue for queue in queues}, workers),
        )

    return await ctx.store.read(operation, long=True)


async def _waits(
    ctx: EngineContext, tx: Tx, queues: Mapping[TaskKind, Queue], workers: Sequence[WorkerRecord]
) -> Mapping[TaskKind, Sequence[RouteWait]]:
    return {kind: await route_waits(ctx, tx, queue, workers) for kind, queue in queues.items()}


async def gates_of(tx: Tx, queue: Queue, oldest: Task | None) -> Sequence[Gate]:
    """The state of every limit of a queue, computed by the function that dispatch uses, without locks.

    Whether a cost budget is open depends on the task's cost: here, of the one that has waited longest.
    """
    names = [each.name for each in queue.limits.scopes]
    states = {state.name: state for state in await tx.scopes.find(names)} if names else {}
    running = await tx.queues.running(queue.queue_id, LEASES_MAX) if queue.queue_id else 0
    return gates(queue, running, states, tx.now_ms, 0 if oldest is None else oldest.cost)


def _oldest(stats: Mapping[TaskKind, QueueStats], kind: TaskKind) -> Task | None:
    return stats.get(kind, QueueStats()).oldest


async def _totals(tx: Tx, namespace: str) -> Mapping[TaskKind, tuple[int, int]]:
    minute = tx.now_ms // MINUTE_MS
    return {kind: await tx.queues.totals(namespace, kind, minute) for kind in TaskKind}


async def _holders(tx: Tx, namespace: str, queues: Sequence[Queue]) -> Mapping[str, Sequence[Task]]:
    """The first leases that each scope of some queues counts, across the namespace."""
    names = list(dict.fromkeys(scope.name for queue in queues for scope in queue.limits.scopes))
    states = await tx.scopes.find(names) if names else ()
    others = await tx.queues.list(namespace) if states else ()
    return {state.name: await lease_holders.of_queues(tx, state, others, HOLDERS_SHOWN) for state in states}


async def _kind_view(tx: Tx, queue: Queue) -> QueueKindView:
    backlog = await tx.queues.backlog(queue.queue_id, tx.now_ms, KEYS_SHOWN)
    keys = list(dict.fromkeys(part.lane.key for part in backlog.lanes))
    states = await tx.policies.key_states(queue.queue_id, keys) if keys else {}
    parts = [_reweighted(part, states.get(part.lane.key)) for part in backlog.lanes]
    levels = [
        replace(each, weight_milli=each.weight_milli + _gained(each.level, backlog.lanes, parts))
        for each in backlog.levels
    ]
    return QueueKindView(queue, levels, [_key(queue, part, states, tx.now_ms) for part in parts])


def _reweighted(part: LaneBacklog, state: KeyState | None) -> LaneBacklog:
    """The lane with the operator's current weight, which its row gets at the next claim."""
    override = None if state is None else state.weight_milli
    return replace(part, lane=replace(part.lane, override_milli=override))


def _gained(level: int, before: Sequence[LaneBacklog], after: Sequence[LaneBacklog]) -> int:
    """The difference that weight overrides make to a level's total weight."""
    return sum(
        new.lane.effective_milli - old.lane.effective_milli
        for old, new in zip(before, after, strict=True)
        if old.lane.level == level
    )


def _key(queue: Queue, part: LaneBacklog, states: Mapping[str, KeyState], now_ms: int) -> KeyView:
    rules, state = queue.rules, states.get(part.lane.key) or KeyState(part.lane.key)
    running = state.running if rules.counts_leases_by_key else None
    stop = key_hold(rules, state, part.lane.effective_milli, now_ms)
    if stop is not None:
        return KeyView(part, _KEY_STATUS[stop.reason], stop.open_at_ms, running)
    return KeyView(part, KeyStatus.READY, None, running)
