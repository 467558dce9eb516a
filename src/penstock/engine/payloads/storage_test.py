"""Testing external storage: write, read, compare and delete a small and a large object."""

from __future__ import annotations

import hashlib
import secrets

from msgspec import Struct

from penstock.core.external_payloads import ExternalPayload, PayloadState, StoragePolicy
from penstock.engine.context import EngineContext
from penstock.engine.payloads.policy import storage_at
from penstock.engine.payloads.transfers import in_time, read, store
from penstock.errors import InvalidInput, PenstockError, Reason
from penstock.ports.store import Tx

SMALL_BYTES = 1_024
LARGE_BYTES = 1_048_576


class RoundTrip(Struct, frozen=True):
    """An object that was written, read back unchanged and deleted."""

    size_bytes: int
    sha256: str
    uri: str


async def check(ctx: EngineContext, namespace: str, policy: StoragePolicy, *sizes: int) -> list[RoundTrip]:
    """Make a round trip of each size; raises `InvalidInput` (`storage_driver_unavailable`) at the first that fails."""
    try:
        return [await _round_trip(ctx, namespace, policy, size) for size in sizes]
    except PenstockError as error:
        if error.reason is Reason.STORE_UNAVAILABLE:
            raise
        raise InvalidInput(
            Reason.STORAGE_DRIVER_UNAVAILABLE,
            f"The external storage does not work: {error.message}",
            namespace=namespace,
            driver=policy.driver,
            **{name: value for name, value in error.details.items() if name == "cause"},
        ) from error


async def _round_trip(ctx: EngineContext, namespace: str, policy: StoragePolicy, size: int) -> RoundTrip:
    """The object has a row as every other has, so that it is deleted even if this server dies now."""
    data = secrets.token_bytes(size)
    payload = await store(ctx, namespace, policy, data)
    assert await read(ctx, payload) == data, "the hash was compared"
    storage = storage_at(ctx, payload.place)
    await _delete(ctx, payload)
    return RoundTrip(size, hashlib.sha256(data).hexdigest(), storage.uri(payload.key))


async def _delete(ctx: EngineContext, payload: ExternalPayload) -> None:
    async def begin(tx: Tx) -> None:
        tx.external_payloads.settle(payload.reference_id, PayloadState.DELETING, tx.now_ms)

    async def finish(tx: Tx) -> None:
        tx.external_payloads.delete(payload.reference_id)

    await ctx.store.transact(begin, key=payload.reference_id)
    await in_time(storage_at(ctx, payload.place).delete(payload.key))
    await ctx.store.transact(finish, key=payload.reference_id)
