"""Workers that are known to be dead before they count as stale.

A worker that was not heard for `DW_WORKER_STALE_AFTER_SECONDS` is stale. Two things tell earlier that it is gone: the
connection of its open poll was closed and it did not poll again, or a lease of it ran out and it was not heard since.
Both are recorded in its row (`is_known_dead`), for all servers: tasks that are sticky to it are for anybody at once,
and its id may come back with other code.

The evidence may be wrong: a proxy closed the connection, or code hung while its worker lives. Nothing is lost then but
a cached run. Whatever is heard of the worker afterwards takes the mark back; open polls are woken with it, so a worker
that polls at another server is heard at once.
"""

from __future__ import annotations

from penstock.core.model import TaskKind, WorkerRecord, WorkerStatus
from penstock.core.scheduling.cohorts import is_known_dead
from penstock.engine.context import EngineContext
from penstock.ports.store import Tx
from penstock.ports.wakeups import queue_topic


async def record_disconnect(ctx: EngineContext, namespace: str, worker_id: str, ago_ms: int) -> bool:
    """A worker closed the connection of its poll some time ago and does not poll here; whether it is taken for dead."""

    async def operation(tx: Tx) -> bool:
        return await record_death(tx, namespace, worker_id, tx.now_ms - ago_ms)

    return await ctx.store.transact(operation, key=f"worker:{namespace}:{worker_id}")


async def record_death(tx: Tx, namespace: str, worker_id: str | None, since_ms: int) -> bool:
    """Mark a worker as dead unless it was heard after a moment, and have its sticky tasks looked at."""
    worker = None if worker_id is None else await tx.workers.get(namespace, worker_id)
    if worker is None or not _seems_dead(worker, since_ms):
        return False
    tx.workers.mark(namespace, worker.worker_id, WorkerStatus.STALE)
    for queue in await tx.queues.find(namespace, worker.task_queue):
        if queue.kind is TaskKind.WORKFLOW:
            tx.wake(queue_topic(queue.queue_id))
    return True


def _seems_dead(worker: WorkerRecord, since_ms: int) -> bool:
    """A worker that drains is waited for by nobody: its intent is kept."""
    unheard = worker.heartbeat_at_ms <= since_ms
    return unheard and worker.status is not WorkerStatus.DRAINING and not is_known_dead(worker)
