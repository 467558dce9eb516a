"""The workers of a queue as they are when something is explained, and the ready tasks that none of them takes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.explaining.serving import UNSERVED, Crew, RouteWait, hindrance
from penstock.core.explaining.values import Constraint
from penstock.core.model import Queue, Task, TaskKind, TaskState, Worker
from penstock.engine import slots
from penstock.engine.house import House
from penstock.ports.store import Tx

ROUTES_LOOKED_AT = 200
"""Types and builds of one line whose ready tasks are compared with its workers."""
TASKS_COUNTED = 10_000


async def crew_of(
    house: House, tx: Tx, namespace: str, queue: str, kind: TaskKind, workers: Sequence[Worker] | None = None
) -> Crew:
    """The workers of a queue; `workers` are those, where they have been read already."""
    if workers is None:
        workers = await tx.workers.list(namespace, queue)
    cohorts = await tx.cohorts.list(namespace, queue)
    held = await slots.held(tx, workers, kind)
    running = {worker_id: each.running for worker_id, each in held.items()}
    return Crew(workers, cohorts, running, tx.now_ms, house.settings.polls.worker_stale_after_ms)


async def route_waits(house: House, tx: Tx, queue: Queue, workers: Sequence[Worker]) -> Sequence[RouteWait]:
    """The types and builds of a line whose ready tasks no worker can take now, by the function that `why` asks."""
    heads = await tx.queues.route_heads(queue.queue_id, ROUTES_LOOKED_AT)
    if not heads:
        return ()
    crew = await crew_of(house, tx, queue.namespace, queue.name, queue.kind, workers)
    found: list[RouteWait] = []
    for head in heads:
        constraint = hindrance(crew, head)
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


async def unserved_tasks(house: House, tx: Tx, tasks: Sequence[Task]) -> Sequence[Unserved]:
    """Of some tasks, the ready ones that no worker takes; one for each queue, type and build."""
    crews: dict[tuple[str, TaskKind], Crew] = {}
    found: dict[tuple[object, ...], Unserved] = {}
    for task in tasks:
        route = (task.task_queue, task.kind, task.type, task.compatibility)
        if task.state is not TaskState.READY or route in found:
            continue
        line = (task.task_queue, task.kind)
        if line not in crews:
            crews[line] = await crew_of(house, tx, task.namespace, task.task_queue, task.kind)
        crew = crews[line]
        constraint = hindrance(crew, task)
        if constraint is not None and constraint.kind in UNSERVED:
            active = any(not crew.is_silent(each) and not crew.is_draining(each) for each in crew.workers)
            found[route] = Unserved(task, constraint, active)
    return list(found.values())
