"""Who changed which limit of a namespace: one log over its queues, its budget groups, itself and the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

from msgspec import Struct

from penstock.core.limits.admission import namespace_of, queue_scope
from penstock.core.limits.declarations import HISTORY
from penstock.core.limits.policies import PolicyChange
from penstock.core.model import TaskKind
from penstock.engine.context import EngineContext
from penstock.engine.limits.admission import DECLARED
from penstock.ports.gather import gather
from penstock.ports.store import Tx

SCOPES_READ_MAX = 1_000
"""Changes of scopes that are read to find those that concern one namespace."""


class ScopedChange(Struct, frozen=True):
    """A change, and what it was a change of."""

    scope: str
    change: PolicyChange


async def newest(
    ctx: EngineContext, namespace: str, before_ms: int | None, limit: int
) -> Sequence[ScopedChange]:
    """The newest changes of limits that concern a namespace.

    Args:
        ctx: The server.
        namespace: The namespace; changes of the cluster, and of what all namespaces share, concern each.
        before_ms: Only changes before this instant; None: all.
        limit: How many at most.
    """

    async def operation(tx: Tx) -> Sequence[ScopedChange]:
        until_ms = tx.now_ms + 1 if before_ms is None else before_ms
        queues, scopes = await gather(
            tx.policies.newest_changes(namespace, until_ms, limit),
            tx.scopes.newest_changes(until_ms, SCOPES_READ_MAX),
        )
        found = [
            *(
                ScopedChange(queue_scope(namespace, name, TaskKind(kind)), change)
                for name, kind, change in queues
            ),
            *(
                ScopedChange(DECLARED if name == HISTORY else name, change)
                for name, change in scopes
                if name == HISTORY or namespace_of(name) in (None, namespace)
            ),
        ]
        return nlargest(limit, found, key=lambda each: (each.change.at_ms, each.change.version))

    return await ctx.store.read(operation)
