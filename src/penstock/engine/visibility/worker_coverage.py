"""Which ready tasks no worker of their queue can take, and why."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.model import Queue, Task, TaskKind, TaskState, WorkerRecord
from penstock.core.why.values import Constraint
from penstock.core.why.workers import UNSERVED, QueueWorkers, RouteWait, worker_constraint
from penstock.engine.context import EngineContext
from penstock.engine.matching.snapshot import worker_loads
from penstock.ports.gather import gather
from penstock.ports.store import Tx

ROUTES_SCANNED_MAX = 200
"""How many types and builds of one queue are compared with its workers."""
TASKS_COUNTED = 10_000


async def load_workers(
    ctx: EngineContext,
    tx: Tx,
    namespace: str,
    queue: str,
    kind: TaskKind,
    workers: Sequence[WorkerRecord] | None = None,
) -> QueueWorkers:
    """The workers of a queue with their cohorts and running tasks; `workers` if they were read already."""
    if workers is None:
        workers = await tx.workers.list(namespace, queue)
    cohorts, held = await gather(tx.cohorts.list(namespace, queue), worker_loads(tx, workers, kind))
    running = {worker_id: each.running for worker_id, each in held.items()}
    return QueueWorkers(workers, cohorts, running, tx.now_ms, ctx.settings.polls.worker_stale_after_ms)


async def route_waits(
    ctx: EngineContext, tx: Tx, queue: Queue, workers: Sequence[WorkerRecord]
) -> Sequence[RouteWait]:
    """The types and builds of a queue whose ready tasks no worker can take now, by the rules that `why` uses."""
    heads = await tx.queues.route_heads(queue.queue_id, ROUTES_SCANNED_MAX)
    if not heads:
        return ()
    queue_workers = await load_workers(ctx, tx, queue.namespace, queue.name, queue.kind, workers)
    found: list[RouteWait] = []
    for head in heads:
        constraint = worker_constraint(queue_workers, head)
        if constraint is not None:
            ready = await tx.queues.count_route(queue.queue_id, head.type, head.compatibility, TASKS_COUNTED)
            found.append(RouteWait(head, constraint, ready))
    return found


class Unserved(Struct, frozen=True):
    """A ready task that waits for a worker to be started or changed."""

    task: Task
    constraint: Constraint
    has_active_worker: bool
    """Whether its queue has an active worker, which does not take this task."""


async def unserved_tasks(ctx: EngineContext, tx: Tx, tasks: Sequence[Task]) -> Sequence[Unserved]:
    """The ready tasks among `tasks` that no worker takes, one per queue, type and build."""
    loaded: dict[tuple[str, TaskKind], QueueWorkers] = {}
    found: dict[tuple[object, ...], Unserved] = {}
    for task in tasks:
        route = (task.task_queue, task.kind, task.type, task.compatibility)
        if task.state is not TaskState.READY or route in found:
            continue
        route_queue = (task.task_queue, task.kind)
        if route_queue not in loaded:
            loaded[route_queue] = await load_workers(ctx, tx, task.namespace, task.task_queue, task.kind)
        queue_workers = loaded[route_queue]
        constraint = worker_constraint(queue_workers, task)
        if constraint is not None and constraint.kind in UNSERVED:
            active = any(
                not queue_workers.is_silent(each) and not queue_workers.is_draining(each)
                for each in queue_workers.workers
            )
            found[route] = Unserved(task, constraint, active)
    return list(found.values())
