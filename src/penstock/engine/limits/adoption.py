"""Adoption: a scope that starts to limit a queue counts the queue's existing leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.core.model import Queue
from penstock.ports.store import Tx


async def adopt(tx: Tx, joined: Mapping[str, Sequence[Queue]]) -> None:
    """Count the leases of locked queues in each of the named scopes, in addition to those they count already.

    Only once in a transaction: a second time would not see what the first one has counted.
    """
    names = list(joined)
    by_name = {state.name: state for state in await tx.scopes.lock(await tx.scopes.ids(names))}
    for name in names:
        state = by_name[name]
        adopted = await tx.scopes.adopt(state.scope_id, [queue.queue_id for queue in joined[name]])
        if adopted:
            tx.scopes.settle(replace(state, granted=state.granted + adopted))
