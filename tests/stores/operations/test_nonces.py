"""Nonces: a signed request is good for one use."""

from __future__ import annotations

import asyncio

from penstock.ports.store import Store, Tx
from tests.stores.store_operations import record
from tests.support.builders import NOW_MS


async def register(store: Store, key: str, nonce: str, expires_at_ms: int = NOW_MS) -> bool:
    async def operation(tx: Tx) -> bool:
        return await tx.nonces.register(key, nonce, expires_at_ms)

    return await store.transact(operation, key=f"nonce:{key}")


async def test_a_nonce_is_new_only_once_for_each_key(store: Store):
    assert await register(store, "key-1", "n")
    assert not await register(store, "key-1", "n")
    assert await register(store, "key-2", "n")


async def test_of_many_racing_replays_one_is_let_through(store: Store):
    answers = await asyncio.gather(*(register(store, "key-1", "n") for _ in range(20)))
    assert sum(answers) == 1


async def test_forgetting_drops_only_nonces_that_expired_before(store: Store):
    await register(store, "key-1", "old", NOW_MS - 1)
    await register(store, "key-1", "young", NOW_MS)
    await record(store, lambda tx: tx.nonces.forget(NOW_MS))
    assert await register(store, "key-1", "old")
    assert not await register(store, "key-1", "young")
