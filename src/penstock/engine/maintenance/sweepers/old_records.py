"""Deletes expired nonces, meters, settlements, journal entries, records of schedules, sessions and simulations."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.operations import simulations, ui_sessions
from penstock.core.timestamps import MINUTE_MS
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import SLOW_TICK_S, Sweeper
from penstock.ports.store import Tx

METERS_KEPT_MINUTES = 60
HOUR_MS = 60 * MINUTE_MS
SETTLEMENTS_KEPT_MS = 10 * MINUTE_MS
"""Longer than any budget window."""


def old_records(ctx: EngineContext) -> Sweeper[int]:
    return Sweeper("old_records", ctx, _find, _delete, pause_s=SLOW_TICK_S)


async def _find(ctx: EngineContext, limit: int) -> Sequence[int]:
    async def operation(tx: Tx) -> Sequence[int]:
        old = (
            await tx.nonces.any_expired(tx.now_ms)
            or await tx.queues.any_meter_before(_oldest_kept(tx.now_ms))
            or await tx.scopes.any_settlement_before(_settlements_from(tx.now_ms))
            or await tx.journal.any_before(_journal_from(ctx, tx.now_ms))
            or await tx.schedules.any_before(_fires_from(ctx, tx.now_ms))
            or await tx.ui_sessions.any_before(ui_sessions.unused_since(tx.now_ms))
            or await tx.simulations.any_before(tx.now_ms - simulations.KEPT_MS)
        )
        return [tx.now_ms] if old else []

    return await ctx.store.read(operation)


async def _delete(ctx: EngineContext, now_ms: int) -> bool:
    async def operation(tx: Tx) -> bool:
        tx.nonces.forget(now_ms)
        tx.queues.forget_meters(_oldest_kept(now_ms))
        tx.scopes.forget_settlements(_settlements_from(now_ms))
        tx.journal.forget(_journal_from(ctx, now_ms))
        tx.schedules.forget(_fires_from(ctx, now_ms))
        tx.ui_sessions.forget(ui_sessions.unused_since(now_ms))
        tx.simulations.forget(now_ms - simulations.KEPT_MS)
        return True

    return await ctx.store.transact(operation, key="old records")


def _oldest_kept(now_ms: int) -> int:
    return now_ms // MINUTE_MS - METERS_KEPT_MINUTES


def _settlements_from(now_ms: int) -> int:
    return now_ms - SETTLEMENTS_KEPT_MS


def _fires_from(ctx: EngineContext, now_ms: int) -> int:
    """Fires that are over and events of schedules are kept as long as closed runs are by default."""
    return now_ms - ctx.settings.retention_days_default * 24 * HOUR_MS


def _journal_from(ctx: EngineContext, now_ms: int) -> int:
    return now_ms - ctx.settings.journal_hours * HOUR_MS
