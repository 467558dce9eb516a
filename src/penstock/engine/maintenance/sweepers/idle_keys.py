"""Deletes rows of fairness keys without leases, debt or settings; a missing row means the same."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import QueueId
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import SLOW_TICK_S, Sweeper
from penstock.ports.store import Tx

KEYS_AT_ONCE = 16
"""Batch size factor: the keys of a queue are deleted in one transaction, so more are taken per sweep."""

_KeysOfQueue = tuple[QueueId, tuple[str, ...]]


def idle_keys(ctx: EngineContext) -> Sweeper[_KeysOfQueue]:
    return Sweeper("idle_keys", ctx, _find, _drop, pause_s=SLOW_TICK_S)


async def _find(ctx: EngineContext, limit: int) -> Sequence[_KeysOfQueue]:
    found: dict[QueueId, list[str]] = {}
    for queue_id, key in await ctx.store.read(
        lambda tx: tx.policies.idle_keys(tx.now_ms, limit * KEYS_AT_ONCE)
    ):
        found.setdefault(queue_id, []).append(key)
    return [(queue_id, tuple(keys)) for queue_id, keys in found.items()]


async def _drop(ctx: EngineContext, idle: _KeysOfQueue) -> bool:
    queue_id, keys = idle

    async def operation(tx: Tx) -> bool:
        if await tx.queues.lock(queue_id) is not None:
            for key in keys:
                tx.policies.drop_key(queue_id, key)
        return True

    return await ctx.store.transact(operation, key=f"keys:{queue_id}")
