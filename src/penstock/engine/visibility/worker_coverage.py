"""The workers of a queue as they are when something is explained, and the ready tasks that none of them takes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.model import Queue, Task, TaskKind, TaskState, WorkerRecord
from penstock.core.why.values import Constraint
from penstock.core.why.workers import UNSERVED, QueueWorkers, RouteWait, worker_constraint
from penstock.engine.context import EngineContext
from penstock.engine.matching.snapshot import worker_loads
from penstock.ports.store import Tx

ROUTES_SCANNED_MAX = 200
"""Types and builds of one line whose ready tasks are compared with its workers."""
TASKS_COUNTED = 10_000


async def queue_crew(
    ctx: EngineContext,
    tx: Tx,
    namespace: str,
    queue: str,
    kind: TaskKind,
    workers: Sequence[WorkerRecord] | None = None,
) -> QueueWorkers:
    """The workers of a queue; `workers` are those, where they have been read already."""
    if workers is None:
        workers = await tx.workers.list(namespace, queue)
    cohorts = await tx.cohorts.list(namespace, queue)
    held = await worker_loads(tx, workers, kind)
    running = {worker_id: each.running for worker_id, each in held.items()}
    return QueueWorkers(workers, cohorts, running, tx.now_ms, ctx.settings.polls.worker_stale_after_ms)


async def route_waits(
    ctx: EngineContext, tx: Tx, queue: Queue, workers: Sequence[WorkerRecord]
) -> Sequence[RouteWait]:
    """The types and builds of a line whose ready tasks no worker can take now, by the function that `why` asks."""
    heads = await tx.queues.route_heads(queue.queue_id, ROUTES_SCANNED_MAX)
    if not heads:
        return ()
    queue_workers = await queue_crew(ctx, tx, queue.namespace, queue.name, queue.kind, workers)
    found: list[RouteWait] = []
    for head in heads:
        constraint = worker_constraint(queue_workers, head)
        if constraint is not None:
            ready = await tx.queues.count_route(queue.queue_id, head.type, head.compatibility, TASKS_COUNTED)
            found.append(RouteWait(head, constraint, ready))
    return found


class Unserved(Struct, frozen=True):
    """A ready task that waits until a worker is started or changed."""

    task: Task
    constraint: Constraint
    has_active_worker: bool
    """Whether some worker of its queue is active, though it does not take this task."""


async def unserved_tasks(ctx: EngineContext, tx: Tx, tasks: Sequence[Task]) -> Sequence[Unserved]:
    """Of some tasks, the ready ones that no worker takes; one for each queue, type and build."""
    crews: dict[tuple[str, TaskKind], QueueWorkers] = {}
    found: dict[tuple[object, ...], Unserved] = {}
    for task in tasks:
        route = (task.task_queue, task.kind, task.type, task.compatibility)
        if task.state is not TaskState.READY or route in found:
            continue
        line = (task.task_queue, task.kind)
        if line not in crews:
            crews[line] = await queue_crew(ctx, tx, task.namespace, task.task_queue, task.kind)
        queue_workers = crews[line]
        constraint = worker_constraint(queue_workers, task)
        if constraint is not None and constraint.kind in UNSERVED:
            active = any(
                not queue_workers.is_silent(each) and not queue_workers.is_draining(each)
                for each in queue_workers.workers
            )
            found[route] = Unserved(task, constraint, active)
    return list(found.values())
