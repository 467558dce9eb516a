"""Deletes objects in external storage that no row refers to any more, or that no row ever referred to."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.external_payloads import (
    FAILED_WRITE_MARGIN_MS,
    Collection,
    ExternalPayload,
    PayloadState,
    collection,
)
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import SLOW_TICK_S, Sweeper
from penstock.engine.payloads.policy import storage_at
from penstock.engine.payloads.transfers import in_time
from penstock.ports.store import Tx


def unused_payloads(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("unused_payloads", ctx, _find, collect, pause_s=SLOW_TICK_S)


async def _find(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.external_payloads.due(tx.now_ms, limit))


async def collect(ctx: EngineContext, reference_id: str) -> bool:
    """Delete an object if nothing uses it: first the row says so, then the object goes, then the row."""

    async def decide(tx: Tx) -> ExternalPayload | None:
        found = await tx.external_payloads.lock(reference_id)
        if found is None:
            return None
        match collection(found, tx.now_ms, used=await tx.external_payloads.is_used(reference_id)):
            case Collection.WAIT:
                return None
            case Collection.KEEP:
                tx.external_payloads.settle(reference_id, found.state, None)
                return None
            case Collection.DELETE:
                again_ms = tx.now_ms + FAILED_WRITE_MARGIN_MS
                tx.external_payloads.settle(reference_id, PayloadState.DELETING, again_ms)
                return found

    async def finish(tx: Tx) -> None:
        tx.external_payloads.delete(reference_id)

    doomed = await ctx.store.transact(decide, key=reference_id)
    if doomed is None:
        return False
    await in_time(storage_at(ctx, doomed.place).delete(doomed.key))
    await ctx.store.transact(finish, key=reference_id)
    ctx.upkeep.payloads_deleted += 1
    return True
