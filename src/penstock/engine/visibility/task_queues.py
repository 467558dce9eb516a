"""Task queues as operators see them: backlog, limits, workers and leases, from the rows that dispatch uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits.policies import KeyState
from penstock.core.model import Queue, QueueStats, Run, Task, TaskKind, WorkerRecord
from penstock.core.scheduling.backlog import (
    ALL_KEYS,
    BEFORE_ALL_KEYS,
    KeyFilter,
    KeyPlace,
    LaneBacklog,
    LevelBacklog,
)
from penstock.core.scheduling.dispatch import KeyHoldReason, key_hold
from penstock.core.scheduling.gates import Gate, gates
from penstock.core.timestamps import MINUTE_MS
from penstock.core.why.workers import RouteWait
from penstock.engine.context import EngineContext
from penstock.engine.limits import lease_holders, policies
from penstock.engine.visibility.worker_coverage import route_waits
from penstock.ports.gather import gather
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
    own: KeyState
    """Its settings, if it has any."""


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
        workers, queues, totals = await gather(
            tx.workers.list(namespace, None), tx.queues.list(namespace), _totals(tx, namespace)
        )
        names = sorted({worker.task_queue for worker in workers} | {queue.name for queue in queues})
        by_name = {name: {queue.kind: queue for queue in queues if queue.name == name} for name in names}
        served = {name: [worker for worker in workers if worker.task_queue == name] for name in names}
        return await gather(
            *(_listed(ctx, tx, namespace, name, by_name[name], served[name], totals) for name in names)
        )

    return await ctx.store.read(operation, long=True)


async def _listed(
    ctx: EngineContext,
    tx: Tx,
    namespace: str,
    name: str,
    used: Mapping[TaskKind, Queue],
    workers: Sequence[WorkerRecord],
    totals: Mapping[TaskKind, tuple[int, int]],
) -> QueueView:
    """One queue of a list. The reads of all queues are sent together, step by step."""
    (by_kind, stats, gates), pending, waits = await gather(
        _kinds(tx, namespace, name, used),
        tx.queries.count_pending(namespace, name, tx.now_ms),
        _waits(ctx, tx, used, workers),
    )
    return QueueView(
        name,
        tx.now_ms,
        by_kind,
        stats,
        workers,
        pending_queries=pending,
        gates=gates,
        totals=totals,
        waits=waits,
    )


async def _kinds(
    tx: Tx, namespace: str, name: str, used: Mapping[TaskKind, Queue]
) -> tuple[Mapping[TaskKind, Queue], Mapping[TaskKind, QueueStats], Mapping[TaskKind, Sequence[Gate]]]:
    """Both kinds of a queue, with the counts of those that were used, and every limit."""
    found = {
        kind: used.get(kind) or await policies.find_queue(tx, namespace, name, kind) for kind in TaskKind
    }
    counts = await gather(*(tx.queues.stats(queue.queue_id, tx.now_ms) for queue in used.values()))
    stats = dict(zip(used, counts, strict=True))
    limits = await gather(
        *(gates_of(tx, queue, stats.get(kind, QueueStats())) for kind, queue in found.items())
    )
    return found, stats, dict(zip(found, limits, strict=True))


async def describe(ctx: EngineContext, namespace: str, name: str) -> QueueView:
    """One queue with its leases. A name that was never used is an empty queue, not an error."""

    async def operation(tx: Tx) -> QueueView:
        (queues, workers), totals, pending = await gather(
            gather(tx.queues.find(namespace, name), tx.workers.list(namespace, name)),
            _totals(tx, namespace),
            tx.queries.count_pending(namespace, name, tx.now_ms),
        )
        used = {queue.kind: queue for queue in queues}
        (by_kind, stats, gates), (leases, lines), (holders, waits) = await gather(
            _kinds(tx, namespace, name, used),
            gather(_leases(tx, queues), _lines(tx, queues)),
            gather(_holders(tx, namespace, queues), _waits(ctx, tx, used, workers)),
        )
        oldest = [each.oldest for each in stats.values() if each.oldest is not None]
        ids = list(dict.fromkeys(task.run_id for task in (*leases, *oldest)))
        runs = {str(run.run_id): run for run in await tx.runs.get_many(ids) if run is not None}
        lines |= {kind: await kind_view(tx, queue) for kind, queue in by_kind.items() if kind not in lines}
        return QueueView(
            name,
            tx.now_ms,
            by_kind,
            stats,
            workers,
            leases,
            runs,
            pending,
            lines,
            gates,
            totals,
            holders,
            waits,
        )

    return await ctx.store.read(operation, long=True)


async def _leases(tx: Tx, queues: Sequence[Queue]) -> Sequence[Task]:
    found = await gather(*(tx.tasks.leases_on(queue.queue_id, LEASES_SHOWN) for queue in queues))
    return [task for tasks in found for task in tasks]


async def _lines(tx: Tx, queues: Sequence[Queue]) -> dict[TaskKind, QueueKindView]:
    found = await gather(*(kind_view(tx, queue) for queue in queues))
    return {view.queue.kind: view for view in found}


async def _waits(
    ctx: EngineContext, tx: Tx, queues: Mapping[TaskKind, Queue], workers: Sequence[WorkerRecord]
) -> Mapping[TaskKind, Sequence[RouteWait]]:
    found = await gather(*(route_waits(ctx, tx, queue, workers) for queue in queues.values()))
    return dict(zip(queues, found, strict=True))


async def gates_of(tx: Tx, queue: Queue, stats: QueueStats) -> Sequence[Gate]:
    """The state of every limit of a queue, computed by the function that dispatch uses, without locks.

    Whether a cost budget is open depends on the task's cost: here, of the one that has waited longest.
    """
    names = [each.name for each in queue.limits.scopes]
    states = {state.name: state for state in await tx.scopes.find(names)} if names else {}
    return gates(queue, stats.counted, states, tx.now_ms, 0 if stats.oldest is None else stats.oldest.cost)


async def _totals(tx: Tx, namespace: str) -> Mapping[TaskKind, tuple[int, int]]:
    minute = tx.now_ms // MINUTE_MS
    found = await gather(*(tx.queues.totals(namespace, kind, minute) for kind in TaskKind))
    return dict(zip(TaskKind, found, strict=True))


async def _holders(tx: Tx, namespace: str, queues: Sequence[Queue]) -> Mapping[str, Sequence[Task]]:
    """The first leases that each scope of some queues counts, across the namespace."""
    names = list(dict.fromkeys(scope.name for queue in queues for scope in queue.limits.scopes))
    if not names:
        return {}
    states, others = await gather(tx.scopes.find(names), tx.queues.list(namespace))
    found = await gather(*(lease_holders.of_queues(tx, state, others, HOLDERS_SHOWN) for state in states))
    return {state.name: tasks for state, tasks in zip(states, found, strict=True)}


async def kind_view(
    tx: Tx,
    queue: Queue,
    top: int = KEYS_SHOWN,
    wanted: KeyFilter = ALL_KEYS,
    after: KeyPlace = BEFORE_ALL_KEYS,
) -> QueueKindView:
    """The backlog of one task kind.

    Args:
        tx: the transaction.
        queue: the queue's row of that kind.
        top: how many lanes.
        wanted: only lanes of these keys.
        after: only lanes behind this place.
    """
    backlog = await tx.queues.backlog(queue.queue_id, tx.now_ms, top, wanted, after)
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
    state = states.get(part.lane.key) or KeyState(part.lane.key)
    status, open_at_ms = key_status(queue, state, part.lane.effective_milli, now_ms)
    return KeyView(part, status, open_at_ms, running_of(queue, state), state)


def key_status(queue: Queue, state: KeyState, weight_milli: int, now_ms: int) -> tuple[KeyStatus, int | None]:
    """Whether a key's next task may be dispatched, and when if not at once."""
    stop = key_hold(queue.rules, state, weight_milli, now_ms)
    return (KeyStatus.READY, None) if stop is None else (_KEY_STATUS[stop.reason], stop.open_at_ms)


def running_of(queue: Queue, state: KeyState) -> int | None:
    """A key's leases; None where the queue does not count them."""
    return state.running if queue.rules.counts_leases_by_key else None
