"""Deregisters workers without a heartbeat for a week."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.workers import worker_registry
from penstock.errors import NotFound

KEPT_MS = 7 * 24 * 3_600_000
"""A week: SDKs do not register again when their registration is gone, so it must not be deleted early."""


def inactive_workers(ctx: EngineContext) -> Sweeper[tuple[str, str]]:
    return Sweeper("inactive_workers", ctx, _find, _deregister)


async def _find(ctx: EngineContext, limit: int) -> Sequence[tuple[str, str]]:
    return await ctx.store.read(lambda tx: tx.workers.silent(tx.now_ms - KEPT_MS, limit))


async def _deregister(ctx: EngineContext, name: tuple[str, str]) -> bool:
    try:
        await worker_registry.deregister(ctx, *name)
    except NotFound:
        return False
    return True
