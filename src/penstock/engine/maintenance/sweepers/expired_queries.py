"""Deletes query tasks whose caller's wait has ended, and requeues those whose lease has expired."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.matching import query_tasks
from penstock.ports.tables.next_due import Due


def expired_queries(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("expired_queries", ctx, _find, query_tasks.expire, awaits=Due.QUERY)


async def _find(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.queries.lapsed(tx.now_ms, limit))
