"""What scopes count is compared with the leases that say so, now and then; a difference is mended and told.

Nothing in here makes them differ: it is a hand in the database, or a fault of ours, and an operator must know.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from penstock.engine.context import EngineContext
from penstock.engine.limits import admission
from penstock.engine.maintenance.sweeper import LAZY_TICK_S, TICK_S, Sweeper
from penstock.ports.store import Tx

EVERY_MS = 60_000
log = structlog.get_logger("penstock.sweeper")


def scope_counts(ctx: EngineContext) -> Sweeper[str]:
    round_ = _Round()
    return Sweeper("scope_counts", ctx, round_.find, mend, pause_s=round_.pause_s)


class _Round:
    """Goes through all scopes once a minute, some at a time."""

    def __init__(self) -> None:
        self._after: str | None = ""
        self._began_at_ms = 0

    async def find(self, ctx: EngineContext, limit: int) -> Sequence[str]:
        async def operation(tx: Tx) -> Sequence[str]:
            if self._after is None and tx.now_ms - self._began_at_ms < EVERY_MS:
                return ()
            if not self._after:
                self._began_at_ms = tx.now_ms
            return await tx.scopes.names(self._after or "", limit)

        found = await ctx.store.read(operation, long=True)
        self._after = found[-1] if len(found) == limit else None
        return found

    def pause_s(self) -> float:
        return LAZY_TICK_S if self._after is None else TICK_S


async def mend(ctx: EngineContext, name: str) -> bool:
    wrong_by = await admission.check(ctx, name)
    if wrong_by:
        log.error(
            "a scope counted wrong and was put right; was the database changed by hand?",
            scope=name,
            counted_too_many=wrong_by,
        )
    return bool(wrong_by)
