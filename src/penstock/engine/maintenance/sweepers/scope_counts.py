"""Compares the counters of scopes with their leases, and corrects and logs differences.

The counters are transactional: a difference means a manual change to the database or a bug, and operators must know.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from penstock.core.limits.run_caps import PREFIX
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission, run_caps
from penstock.engine.maintenance.sweeper import LAZY_TICK_S, TICK_S, Sweeper
from penstock.ports.store import Tx

EVERY_MS = 60_000
log = structlog.get_logger("penstock.sweeper")


def scope_counts(ctx: EngineContext) -> Sweeper[str]:
    round_ = _Round()
    return Sweeper("scope_counts", ctx, round_.find, correct, pause_s=round_.pause_s)


class _Round:
    """Iterates over all scopes once a minute, in batches."""

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


async def correct(ctx: EngineContext, name: str) -> bool:
    counted = run_caps if name.startswith(PREFIX) else admission
    wrong_by = await counted.check(ctx, name)
    if wrong_by:
        log.error(
            "a scope's counter was wrong and has been corrected; was the database changed manually?",
            scope=name,
            counted_too_many=wrong_by,
        )
    return bool(wrong_by)
