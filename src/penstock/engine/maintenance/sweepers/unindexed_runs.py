"""Runs from before there were entries: what they carry is written down, so that queries find them, too."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import RunId
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.ports.store import Tx


class _Backlog:
    """What is still to be written down. It only shrinks, so whoever has seen its end need not look again."""

    def __init__(self) -> None:
        self._ended = False

    async def find(self, ctx: EngineContext, limit: int) -> Sequence[RunId]:
        async def operation(tx: Tx) -> Sequence[RunId]:
            return await tx.visibility.unindexed(limit)

        found = () if self._ended else await ctx.store.read(operation)
        self._ended = not found
        return found


def unindexed_runs(ctx: EngineContext) -> Sweeper[RunId]:
    return Sweeper("unindexed_runs", ctx, _Backlog().find, _mend)


async def _mend(ctx: EngineContext, run_id: RunId) -> bool:
    async def operation(tx: Tx) -> bool:
        tx.visibility.index(run_id, await tx.runs.lock(run_id))
        return True

    return await ctx.store.transact(operation, key=run_id)
