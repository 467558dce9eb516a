"""The journal of leases, handed out page by page to those who check us."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx


async def page(ctx: EngineContext, after: int, limit: int) -> Sequence[tuple[int, str]]:
    """Lines with their numbers, from the first after a number on.

    A line that is being written when a later one is read may be missed: read it when the work has come to rest.
    """
    if not ctx.journals:
        raise Conflict(
            Reason.JOURNAL_OFF,
            "This server keeps no journal of its leases. Start it with DW_JOURNAL=true, and they are told from "
            "then on.",
        )

    async def operation(tx: Tx) -> Sequence[tuple[int, str]]:
        return await tx.journal.page(after, limit)

    return await ctx.store.read(operation, long=True)
