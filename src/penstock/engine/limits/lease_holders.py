"""The holders of leases of a queue, or of a scope that several queues share."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.limits.admission import namespace_of, queue_scope
from penstock.core.model import Queue, Task
from penstock.core.scheduling.gates import ScopeState
from penstock.ports.gather import gather
from penstock.ports.store import Tx

SHOWN = 20
READ = 200


def own_scope(queue: Queue) -> str:
    """The scope name of a queue's own limits."""
    return queue_scope(queue.namespace, queue.name, queue.kind)


async def of_queue(tx: Tx, queue: Queue) -> Sequence[Task]:
    """The leases of a queue that limits count, the first to expire first."""
    return [each for each in await tx.tasks.leases_on(queue.queue_id, READ) if not each.claimed]


async def of_scope(tx: Tx, state: ScopeState, most: int = SHOWN) -> Sequence[Task]:
    """The leases that a scope counts, in all its queues."""
    return await of_queues(tx, state, await queues_of(tx, state.name), most)


async def of_queues(tx: Tx, state: ScopeState, queues: Sequence[Queue], most: int) -> Sequence[Task]:
    """The leases of some queues that a scope counts, the first to expire first."""
    return await tx.scopes.holders(state.scope_id, [queue.queue_id for queue in queues], most)


async def queues_of(tx: Tx, scope: str) -> Sequence[Queue]:
    """Every queue that a scope may count."""
    namespace = namespace_of(scope)
    if namespace is not None:
        return await tx.queues.list(namespace)
    found = await gather(*(tx.queues.list(each.name) for each in await tx.namespaces.list()))
    return [queue for queues in found for queue in queues]
