"""Delivers pending outbox messages between runs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.messaging.outbox import OUTBOX_TOPIC
from penstock.engine.workflows import outbox_relay
from penstock.ports.next_due import Due
from penstock.ports.store import Tx


def pending_outbox(ctx: EngineContext) -> Sweeper[str]:
    return Sweeper("pending_outbox", ctx, _find, outbox_relay.deliver, awaits=Due.OUTBOX, topic=OUTBOX_TOPIC)


async def _find(ctx: EngineContext, limit: int) -> Sequence[str]:
    async def operation(tx: Tx) -> Sequence[str]:
        return await tx.outbox.waiting(limit)

    return await ctx.store.read(operation)
