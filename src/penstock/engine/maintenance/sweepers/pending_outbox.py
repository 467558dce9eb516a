"""Delivers pending outbox messages between runs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.messaging.outbox import OUTBOX_TOPIC
from penstock.engine.workflows import outbox_relay
from penstock.ports.tables.next_due import Due


def pending_outbox(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("pending_outbox", ctx, _find, outbox_relay.deliver, awaits=Due.OUTBOX, topic=OUTBOX_TOPIC)


async def _find(ctx: EngineContext, limit: int) -> Sequence[str]:
    return await ctx.store.read(lambda tx: tx.outbox.waiting(limit))
