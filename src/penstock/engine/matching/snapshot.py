"""What a claim reads, no more than its rules ask for; all but the first look is under the queue's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.core.limits.policies import DispatchOrder, KeyState
from penstock.core.model import Queue, QueueId, TaskKind, WorkerRecord
from penstock.core.scheduling.charges import NO_SCOPES, LockedScopes
from penstock.core.scheduling.claim import (
    ClaimSnapshot,
    LaneView,
    LockedQueue,
    Need,
    NeedLanes,
    NeedLeaseCount,
    NeedLeaseEnds,
    NeedQueue,
    NeedScopes,
    NeedTasks,
    QueueState,
)
from penstock.core.scheduling.dispatch import BlockedLanes, QueueSnapshot, WorkerFilter
from penstock.core.scheduling.fairness import (
    ALL_LEVELS,
    REBASED_ABOVE,
    TAGGED_AT_ONCE_MAX,
    Arrival,
    Lane,
    LaneState,
    Starving,
    VirtualClock,
)
from penstock.core.scheduling.gates import ScopeState, corrected
from penstock.core.scheduling.polls import Poll
from penstock.core.scheduling.slots import SlotUsage
from penstock.engine.context import EngineContext
from penstock.ports.gather import gather
from penstock.ports.store import Tx

LANES_BEYOND_ROOM = 64
"""Where keys can be blocked, so many more lanes are read: some of them may turn out to be."""
NOTHING_READY = QueueState()


async def load_snapshot(
    ctx: EngineContext, tx: Tx, queue_id: QueueId, polls: Sequence[Poll], worker_filter: WorkerFilter | None
) -> ClaimSnapshot:
    """The workers of some polls, the cohorts of their queue, and the workers that its tasks are sticky to."""
    namespace, task_queue = polls[0].namespace, polls[0].task_queue
    names = list({poll.worker_id: None for poll in polls})
    rows = (tx.workers.get_many(namespace, names), tx.cohorts.list(namespace, task_queue))
    sticky_until: Mapping[str, int] = {}
    if polls[0].kind is TaskKind.WORKFLOW:
        workers, cohorts, sticky_until = await gather(*rows, tx.tasks.sticky(queue_id))
    else:
        workers, cohorts = await gather(*rows)
    known = dict(zip(names, workers, strict=True))
    absent = [name for name in sticky_until if name not in known]
    if absent:
        known |= dict(zip(absent, await tx.workers.get_many(namespace, absent), strict=True))
    return ClaimSnapshot(
        polls=polls,
        workers=known,
        cohorts={cohort.build_id: cohort for cohort in cohorts},
        now_ms=tx.now_ms,
        stale_after_ms=ctx.settings.polls.worker_stale_after_ms,
        worker_filter=worker_filter,
        sticky_until=sticky_until,
        coordinated=ctx.coordination.is_supported,
    )


async def load(tx: Tx, queue_id: QueueId, need: Need) -> Any:
    """The rows that a plan asks for."""
    match need:
        case NeedQueue():
            return await _queue(tx, queue_id, need)
        case NeedLanes():
            return await _lanes(tx, need)
        case NeedTasks():
            wanted = [(level, key, count) for (level, key), count in need.counts.items()]
            return await tx.queues.take(queue_id, wanted, need.worker_filter)
        case NeedLeaseCount():
            return await lease_count(tx, need.queue)
        case NeedScopes():
            return await lock_scopes(tx, need.queue)
        case NeedLeaseEnds():
            names = [worker.worker_id for worker in need.workers]
            await tx.tasks.notify_at_ends(need.workers[0].namespace, need.kind, names)
            return await worker_loads(tx, need.workers, need.kind)
    raise AssertionError(need)


async def _queue(tx: Tx, queue_id: QueueId, need: NeedQueue) -> QueueState:
    """The queue under its lock if something is ready: nothing is locked for nothing.

    The lock shows what other servers leased before, also to the same poll sent to them.
    """
    ready = await tx.tasks.matchable(queue_id, need.worker_filter)
    namespace, kind = need.polls[0].namespace, need.polls[0].kind
    requests = [
        (poll.worker_id, poll.poll_request_id) for poll in need.polls if poll.poll_request_id is not None
    ]
    if ready is None:
        if not requests:
            return NOTHING_READY
        return QueueState(redelivered=await tx.tasks.redelivered(namespace, requests))
    queue = await tx.queues.lock(queue_id)
    assert queue is not None, "a queue that is polled exists"
    workers = list({worker.worker_id: worker for worker in need.workers}.values())
    if not requests:
        return QueueState(LockedQueue(queue, ready, await worker_loads(tx, workers, kind)))
    redelivered, loads = await gather(
        tx.tasks.redelivered(namespace, requests), worker_loads(tx, workers, kind)
    )
    return QueueState(LockedQueue(queue, ready, loads), redelivered)


async def worker_loads(tx: Tx, workers: Sequence[WorkerRecord], kind: TaskKind) -> Mapping[str, SlotUsage]:
    """How many leases each worker holds, of those granted since its process registered."""
    if not workers:
        return {}
    sessions = [(worker.worker_id, worker.session_at_ms) for worker in workers]
    found = await tx.tasks.held(workers[0].namespace, kind, sessions)
    return {worker.worker_id: each for worker, each in zip(workers, found, strict=True)}


async def lease_count(tx: Tx, queue: Queue) -> int:
    """How many leases of the queue count against its cap; asked only where there is one."""
    limit = queue.rules.lease_cap
    return 0 if limit is None else await tx.queues.running(queue.queue_id, limit)


async def lock_scopes(tx: Tx, queue: Queue) -> LockedScopes:
    """What the scopes of a queue count, under their locks, with what tasks turned out to cost since."""
    scopes = {each.name: each for each in queue.limits.scopes}
    if not scopes:
        return NO_SCOPES
    states = {state.name: state for state in await tx.scopes.lock(await tx.scopes.ids(list(scopes)))}
    changed: list[ScopeState] = []
    for name, rules in scopes.items():
        if rules.cost is not None:
            settlements = await tx.scopes.settlements(states[name].scope_id)
            states[name] = corrected(rules, states[name], settlements, tx.now_ms)
            changed += [states[name]] if settlements else []
    return LockedScopes(states, changed)


# ── Lanes ───────────────────────────────────────────────────────────────────────────────────────────────


async def _lanes(tx: Tx, need: NeedLanes) -> LaneView:
    """A view with at least the `room` lanes of each level that could go next, and the scopes under their locks."""
    queue, rules = need.queue, need.queue.rules
    most = need.room + LANES_BEYOND_ROOM if rules.limits_keys else need.room
    starving: Sequence[Starving] = ()
    if rules.aging is not None:
        turns = need.room // rules.aging.every + 1
        starving = await tx.queues.starving(queue.queue_id, tx.now_ms - rules.aging.wait_ms, turns)
    arrivals: Sequence[Arrival] = ()
    clocks: Sequence[VirtualClock] = ()
    partial = False
    if rules.order is DispatchOrder.ARRIVAL:
        arrivals, lanes = await _by_arrival(tx, need, starving, most)
    else:
        clocks = await _clocks(tx, queue.queue_id)
        lanes, partial = await _by_fairness(tx, need, starving, most)
    keys: Mapping[str, KeyState] = {}
    if rules.needs_keys or queue.policy.overridden_keys:
        keys = await _keys(tx, queue, lanes)
    blocked = await tx.queues.blocked(queue.queue_id) if rules.limits_keys else BlockedLanes()
    scopes = await lock_scopes(tx, queue) if queue.limits.scopes else NO_SCOPES
    snapshot = QueueSnapshot(
        queue, lanes, clocks, tx.now_ms, keys, need.leases, starving, arrivals, blocked, scopes.states
    )
    return LaneView(snapshot, scopes, partial)


async def _clocks(tx: Tx, queue_id: QueueId) -> Sequence[VirtualClock]:
    clocks = []
    for clock in await tx.queues.clocks(queue_id):
        if clock.virtual > REBASED_ABOVE:
            await tx.queues.rebase(queue_id, clock)
            clock = replace(clock, virtual=0)
        clocks.append(clock)
    return clocks


async def _by_fairness(
    tx: Tx, need: NeedLanes, starving: Sequence[Starving], most: int
) -> tuple[Sequence[Lane], bool]:
    """The lanes that need a tag, and those with the least tags.

    When there are more to be tagged than one claim tags, levels below them wait: a lane that was not read may go before
    those. Then no more is granted than was tagged, and another claim follows.
    """
    queue_id, rules, worker_filter = need.queue.queue_id, need.queue.rules, need.worker_filter
    new, least = await gather(
        tx.queues.lanes_to_tag(queue_id, worker_filter, LaneState.NEW),
        tx.queues.lanes(queue_id, worker_filter, most),
    )
    due = await _due(tx, queue_id, worker_filter) if rules.limits_keys else ()
    dirty = await tx.queues.lanes_to_tag(queue_id, worker_filter, LaneState.DIRTY) if rules.needs_keys else ()
    full = [lanes[-1].level for lanes in (new, dirty) if len(lanes) >= TAGGED_AT_ONCE_MAX]
    deepest = min(full, default=ALL_LEVELS[1])
    ready = [*least]
    for each in starving:
        ready += await tx.queues.lanes(queue_id, worker_filter, most, (each.level, each.level))
    seen = {(lane.level, lane.key): lane for lane in (*new, *dirty, *due, *ready)}
    return [lane for lane in seen.values() if lane.level <= deepest], bool(full)


async def _due(tx: Tx, queue_id: QueueId, worker_filter: WorkerFilter) -> Sequence[Lane]:
    """The lanes whose rate allows a dispatch again; if there are more than one claim tags, all become dirty instead.

    Dirty lanes are read by level, so that no level goes before one that was not read.
    """
    due = await tx.queues.lanes_due(queue_id, worker_filter, tx.now_ms)
    if len(due) < TAGGED_AT_ONCE_MAX:
        return due
    await tx.queues.wake_due_lanes(queue_id, tx.now_ms)
    return ()


async def _by_arrival(
    tx: Tx, need: NeedLanes, starving: Sequence[Starving], most: int
) -> tuple[Sequence[Arrival], Sequence[Lane]]:
    queue_id, worker_filter = need.queue.queue_id, need.worker_filter
    found = [*await tx.queues.arrivals(queue_id, worker_filter, most, tx.now_ms)]
    for each in starving:
        found += await tx.queues.arrivals(queue_id, worker_filter, most, tx.now_ms, (each.level, each.level))
    arrivals = {arrival.seq: arrival for arrival, _ in found}
    return list(arrivals.values()), list({(lane.level, lane.key): lane for _, lane in found}.values())


async def _keys(tx: Tx, queue: Queue, lanes: Sequence[Lane]) -> Mapping[str, KeyState]:
    """The keys whose own rows matter: of all lanes where limits or ranks look at them, else of new lanes."""
    looked_at = queue.rules.needs_keys
    keys = {lane.key: None for lane in lanes if looked_at or lane.state == LaneState.NEW}
    return await tx.policies.key_states(queue.queue_id, list(keys)) if keys else {}
