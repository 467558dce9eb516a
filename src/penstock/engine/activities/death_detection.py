"""Early detection of dead workers of any kind: they are marked stale before their heartbeat is overdue.

A worker without a heartbeat for `DW_WORKER_STALE_AFTER_SECONDS` is stale. Two events indicate its death earlier: the
connection of its open poll closed and it did not poll again, or one of its leases expired without a later heartbeat.
Both are recorded in its row (`is_known_dead`), visible to all servers: tasks sticky to it become available to every
worker at once, and its id may register again with other code.

The evidence may be wrong: a proxy closed the connection, or the code hung while its worker lives. Then nothing is lost
but a cached run. The next heartbeat or poll of the worker clears the mark; recording a death also wakes open polls, so
a worker that polls another server clears it at once.
"""

from __future__ import annotations

from penstock.core.model import TaskKind, WorkerRecord, WorkerStatus
from penstock.core.scheduling.cohorts import is_known_dead
from penstock.engine.context import EngineContext
from penstock.ports.store import Tx
from penstock.ports.wakeups import queue_topic


async def record_disconnect(ctx: EngineContext, namespace: str, worker_id: str, ago_ms: int) -> bool:
    """Record that a worker's poll connection closed `ago_ms` ago; returns whether the worker was marked dead."""

    return await ctx.store.transact(
        lambda tx: record_death(tx, namespace, worker_id, tx.now_ms - ago_ms),
        key=f"worker:{namespace}:{worker_id}",
    )


async def record_death(tx: Tx, namespace: str, worker_id: str | None, since_ms: int) -> bool:
    """Mark a worker dead unless it has a heartbeat after `since_ms`, and wake the pollers of its sticky tasks."""
    worker = None if worker_id is None else await tx.workers.get(namespace, worker_id)
    if worker is None or not _seems_dead(worker, since_ms):
        return False
    tx.workers.mark(worker, WorkerStatus.STALE)
    for queue in await tx.queues.find(namespace, worker.task_queue):
        if queue.kind is TaskKind.WORKFLOW:
            tx.wake(queue_topic(queue.queue_id))
    return True


def _seems_dead(worker: WorkerRecord, since_ms: int) -> bool:
    """A draining worker holds no sticky tasks, and keeps its status."""
    is_silent = worker.heartbeat_at_ms <= since_ms
    return is_silent and worker.status is not WorkerStatus.DRAINING and not is_known_dead(worker)
