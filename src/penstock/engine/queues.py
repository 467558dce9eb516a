"""Task queues as an operator sees them: counts from the rows that dispatch decides on, pollers and leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.core.model import QueueStats, Run, Task, TaskKind, Worker
from penstock.engine.house import House
from penstock.ports.store import Tx

LEASES_SHOWN = 100


@dataclass(frozen=True, slots=True)
class QueueView:
    """One named queue: both kinds of tasks, and the workers registered for it."""

    name: str
    now_ms: int
    stats: Mapping[TaskKind, QueueStats]
    workers: Sequence[Worker]
    leases: Sequence[Task] = ()
    runs: Mapping[str, Run] | None = None
    pending_queries: int = 0


async def every(house: House, namespace: str) -> Sequence[QueueView]:
    """Every queue that has tasks or workers, by name."""

    async def operation(tx: Tx) -> Sequence[QueueView]:
        workers = await tx.workers.list(namespace, None)
        lines = await tx.queues.list(namespace)
        names = sorted({worker.task_queue for worker in workers} | {line.name for line in lines})
        views = []
        for name in names:
            stats = {
                line.kind: await tx.queues.stats(line.queue_id, tx.now_ms)
                for line in lines
                if line.name == name
            }
            pending = await tx.queries.count_pending(namespace, name, tx.now_ms)
            mine = [worker for worker in workers if worker.task_queue == name]
            views.append(QueueView(name, tx.now_ms, stats, mine, pending_queries=pending))
        return views

    return await house.store.read(operation)


async def describe(house: House, namespace: str, name: str) -> QueueView:
    """One queue with its leases. A name that nobody used yet is an empty queue, not an error."""

    async def operation(tx: Tx) -> QueueView:
        lines = await tx.queues.find(namespace, name)
        stats = {line.kind: await tx.queues.stats(line.queue_id, tx.now_ms) for line in lines}
        leases = [task for line in lines for task in await tx.tasks.leases_on(line.queue_id, LEASES_SHOWN)]
        oldest = [each.oldest for each in stats.values() if each.oldest is not None]
        ids = list(dict.fromkeys(task.run_id for task in (*leases, *oldest)))
        runs = {run.run_id: run for run in await tx.runs.get_many(ids) if run is not None}
        workers = await tx.workers.list(namespace, name)
        named = {str(key): run for key, run in runs.items()}
        pending = await tx.queries.count_pending(namespace, name, tx.now_ms)
        return QueueView(name, tx.now_ms, stats, workers, leases, named, pending)

    return await house.store.read(operation)
