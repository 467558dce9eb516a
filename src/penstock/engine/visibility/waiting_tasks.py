"""The tasks of a queue that wait, in the order in which they would be dispatched, with when each may start.

What is read is bounded by how many are asked for: the lanes that are served next, by tag, and the first tasks of each.
Lanes that a limit of their key holds back are not in the order; the queue's description lists them with their reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core.limits.admission import LEASES_MAX
from penstock.core.limits.policies import DispatchOrder
from penstock.core.model import Queue, Run, RunId, Task, TaskKind
from penstock.core.scheduling.fairness import ALL_LEVELS, Lane, VirtualClock
from penstock.core.scheduling.gates import Gate, ScopeState, gates
from penstock.core.timestamps import MINUTE_MS
from penstock.core.why.estimate import DispatchCounts, DispatchPace, estimate_start
from penstock.core.why.limits import of_gate
from penstock.core.why.order import dispatch_order
from penstock.core.why.position import with_tags
from penstock.core.why.values import Position, StartEstimate
from penstock.core.why.workers import QueueWorkers
from penstock.engine.context import EngineContext
from penstock.engine.limits import policies
from penstock.engine.visibility import start_reports
from penstock.engine.visibility.worker_coverage import load_workers
from penstock.ports.gather import gather
from penstock.ports.store import Tx

FIRST = 2**62
"""A tag and a rank above all."""
_UNSERVED = StartEstimate(unknown_because="No active worker with slots takes it.")


class WaitingTask(Struct, frozen=True):
    """A task, the number of tasks that go before it, and when it may start."""

    task: Task
    run: Run | None
    ahead: int
    expected: StartEstimate


class WaitingView(Struct, frozen=True):
    """The first waiting tasks of a queue."""

    queue: Queue
    now_ms: int
    tasks: Sequence[WaitingTask]
    gates: Sequence[Gate]


async def waiting(ctx: EngineContext, namespace: str, name: str, kind: TaskKind, most: int) -> WaitingView:
    """The first `most` tasks that would be dispatched if every gate were open for as long as it takes."""

    async def operation(tx: Tx) -> WaitingView:
        queue = await policies.find_queue(tx, namespace, name, kind)
        if not queue.queue_id:
            return WaitingView(queue, tx.now_ms, (), ())
        (tasks, names), (states, running), (pace, queue_workers) = await gather(
            _in_order(tx, queue, most),
            gather(_states(tx, queue), tx.queues.running(queue.queue_id, LEASES_MAX)),
            gather(_pace(tx, queue), load_workers(ctx, tx, namespace, name, kind)),
        )
        limits = gates(queue, running, states, tx.now_ms, tasks[0].cost if tasks else 0)
        closed = [of_gate(gate, {}, tx.now_ms) for gate in limits if gate.is_closed]

        def entry(ahead: int, task: Task) -> WaitingTask:
            run = names.get(task.run_id)
            if not _is_served(queue_workers, task):
                return WaitingTask(task, run, ahead, _UNSERVED)
            place = Position(task.level, task.key, ahead_of_others=ahead)
            starts = estimate_start(queue, closed, limits, states, place, pace, tx.now_ms)
            return WaitingTask(task, run, ahead, starts)

        entries = [entry(ahead, task) for ahead, task in enumerate(tasks)]
        return WaitingView(queue, tx.now_ms, entries, limits)

    found = await ctx.store.read(operation, long=True)
    for each in found.tasks:
        start_reports.expect(ctx, each.task, each.expected, found.now_ms)
    return found


def _is_served(workers: QueueWorkers, task: Task) -> bool:
    """Whether an active worker with slots takes such tasks."""
    return any(
        each.activity_slots if task.kind is TaskKind.ACTIVITY else each.workflow_slots
        for each in workers.serving(task)
    )


async def _pace(tx: Tx, queue: Queue) -> DispatchPace:
    minute = tx.now_ms // MINUTE_MS
    counts = await gather(*(tx.queues.dispatched(queue.queue_id, each) for each in (minute, minute - 1)))
    return DispatchPace(DispatchCounts(*counts))


async def _states(tx: Tx, queue: Queue) -> dict[str, ScopeState]:
    names = [each.name for each in queue.limits.scopes]
    return {state.name: state for state in await tx.scopes.find(names)} if names else {}


async def _in_order(tx: Tx, queue: Queue, most: int) -> tuple[Sequence[Task], Mapping[RunId, Run]]:
    """Tasks level by level, and by turn inside a level; and their runs."""
    known, counts = await gather(
        tx.queues.clocks(queue.queue_id),
        tx.queues.level_counts(queue.queue_id, ALL_LEVELS[-1], tx.now_ms, most),
    )
    clocks = {clock.level: clock for clock in known}
    found: list[Task] = []
    for level in [each.level for each in counts if each.tasks]:
        if len(found) >= most:
            break
        clock = clocks.get(level, VirtualClock(level))
        found += await _of_level(tx, queue, clock, most - len(found))
    runs = await tx.runs.get_many(list(dict.fromkeys(task.run_id for task in found)))
    return found, {run.run_id: run for run in runs if run is not None}


async def _of_level(tx: Tx, queue: Queue, clock: VirtualClock, most: int) -> list[Task]:
    ready, new_lanes = await gather(
        tx.queues.lanes_before(queue.queue_id, clock.level, FIRST, FIRST, most),
        tx.queues.new_lanes(queue.queue_id, clock.level, most),
    )
    lanes = [*ready, *with_tags(new_lanes, {}, clock)]
    if queue.rules.order is DispatchOrder.ARRIVAL:
        return await _by_arrival(tx, queue, lanes, most)
    order = dispatch_order(lanes, clock.virtual, most)
    wanted: dict[str, int] = {}
    for key, place in order:
        wanted[key] = max(wanted.get(key, 0), place + 1)
    read = await tx.queues.heads(queue.queue_id, clock.level, wanted)
    return [read[key][place] for key, place in order if place < len(read[key])]


async def _by_arrival(tx: Tx, queue: Queue, lanes: Sequence[Lane], most: int) -> list[Task]:
    if not lanes:
        return []
    read = await tx.queues.heads(queue.queue_id, lanes[0].level, {lane.key: most for lane in lanes})
    return sorted((task for tasks in read.values() for task in tasks), key=lambda task: task.seq)[:most]
