"""Delivers pending outbox messages to runs and schedules."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.schedules import fires
from penstock.engine.workflows import outbox_relay
from penstock.ports.tables.next_due import Due
from penstock.ports.wakeups import OUTBOX_TOPIC


def pending_outbox(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("pending_outbox", ctx, _find, _deliver, awaits=Due.OUTBOX, topic=OUTBOX_TOPIC)


async def _deliver(ctx: EngineContext, message_id: str) -> bool:
    return await outbox_relay.deliver(ctx, message_id, fires.run_closed)


async def _find(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.outbox.waiting(limit))
