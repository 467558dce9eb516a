"""Indexes the search attributes of runs from versions without an index."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import RunId
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.ports.store import Tx


class _Backlog:
    """The unindexed runs. The set only shrinks, so it is not read again once it was empty."""

    def __init__(self) -> None:
        self._ended = False

    async def find(self, ctx: EngineContext, limit: int) -> Sequence[RunId]:
        found = () if self._ended else await ctx.store.read(lambda tx: tx.visibility.unindexed(limit))
        self._ended = not found
        return found


def unindexed_runs(ctx: EngineContext) -> Sweeper[RunId]:
    return Sweeper("unindexed_runs", ctx, _Backlog().find, _index)


async def _index(ctx: EngineContext, run_id: RunId) -> bool:
    async def operation(tx: Tx) -> bool:
        tx.visibility.index(run_id, await tx.runs.lock(run_id))
        return True

    return await ctx.store.transact(operation, key=run_id)
