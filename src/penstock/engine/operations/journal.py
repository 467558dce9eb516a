"""Reading the lease journal page by page, for external verification."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.errors import Conflict, Reason


async def page(ctx: EngineContext, after: int, limit: int) -> Sequence[tuple[int, str]]:
    """Journal entries after a sequence number, with their numbers.

    An entry that commits after a later one was read is missed: read the journal when the system is idle.
    """
    if not ctx.store.journals:
        raise Conflict(
            Reason.JOURNAL_OFF,
            "This server keeps no lease journal. Start it with DW_JOURNAL=true to record leases from then on.",
        )

    return await ctx.store.read(lambda tx: tx.journal.page(after, limit), long=True)
