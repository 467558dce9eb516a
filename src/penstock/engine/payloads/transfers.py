"""Uploading and fetching the bytes of external payloads, and accepting references to them.

The row of an object is committed before its first byte is written, and says when the object is deleted unless it
became available; so neither a server that dies in the middle nor a storage that fails leaves an object that nothing
knows of. See `core.external_payloads` for the life of an object.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from penstock.core.external_payloads import (
    FAILED_WRITE_MARGIN_MS,
    LAST_USE_MARGIN_MS,
    ExternalPayload,
    ExternalReference,
    PayloadState,
    StoragePolicy,
    reference_id,
)
from penstock.engine.context import EngineContext
from penstock.engine.payloads.policy import active_policy, place_of, storage_at
from penstock.errors import Conflict, InvalidInput, NotFound, PenstockError, Reason, Unavailable
from penstock.ports.objects import ObjectMissing
from penstock.ports.store import Tx

T = TypeVar("T")
STORAGE_TIMEOUT_S: Final = 30
"""How long one request to the storage may take."""


async def upload(ctx: EngineContext, namespace: str, data: bytes) -> ExternalReference:
    """Store a payload's bytes under the policy of a namespace, and return the reference to them.

    Raises `InvalidInput` if there is no policy, and `Unavailable` if the storage fails. Nothing is kept then.
    """
    payload = await store(ctx, namespace, await active_policy(ctx, namespace), data)
    return payload.reference


async def store(ctx: EngineContext, namespace: str, policy: StoragePolicy, data: bytes) -> ExternalPayload:
    """Store bytes under a policy, which need not be that of the namespace yet."""
    place = place_of(policy)
    storage = storage_at(ctx, place)
    digest = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
    unique = hashlib.sha256(f"{ctx.entropy.new_id()}{ctx.entropy.token()}".encode()).digest()
    name = reference_id(int.from_bytes(unique[:16], "big"))
    grace_ms = ctx.settings.external_storage.grace_ms

    async def begin(tx: Tx) -> ExternalPayload:
        now_ms = tx.now_ms
        started = ExternalPayload(
            name, namespace, place, digest, len(data), PayloadState.UPLOADING, now_ms, now_ms + grace_ms
        )
        tx.external_payloads.insert(started)
        return started

    payload = await ctx.store.transact(begin, key=name)
    try:
        await in_time(storage.put(payload.key, data))
    except BaseException:
        await _abandon(ctx, payload)
        raise

    async def finish(tx: Tx) -> None:
        found = await tx.external_payloads.lock(name)
        if found is None or found.state is not PayloadState.UPLOADING:
            raise Unavailable(
                Reason.EXTERNAL_PAYLOAD_UNAVAILABLE,
                "The upload took longer than the grace of unused objects; send it again.",
                namespace=namespace,
            )
        tx.external_payloads.settle(name, PayloadState.AVAILABLE, tx.now_ms + grace_ms)

    await ctx.store.transact(finish, key=name)
    return payload


async def _abandon(ctx: EngineContext, payload: ExternalPayload) -> None:
    """Have the remains of a failed upload deleted soon; if this fails too, they are deleted after the grace."""

    async def operation(tx: Tx) -> None:
        tx.external_payloads.settle(
            payload.reference_id, PayloadState.DELETING, tx.now_ms + FAILED_WRITE_MARGIN_MS
        )

    try:
        await ctx.store.transact(operation, key=payload.reference_id)
    except PenstockError:
        return


async def fetch(ctx: EngineContext, namespace: str, reference: ExternalReference) -> bytes:
    """The bytes that a reference stands for, checked against its size and hash.

    Raises `NotFound`, `Conflict` (expired, or another object than the reference says) or `Unavailable`; each error
    has the reference id.
    """
    payload = await find(ctx, namespace, reference.reference_id)
    _check_same(payload, reference)
    return await read(ctx, payload)


async def find(ctx: EngineContext, namespace: str, name: str) -> ExternalPayload:
    """The row of an object that can be fetched."""
    found = await ctx.store.read(lambda tx: tx.external_payloads.get(name))
    if found is None or found.namespace != namespace or found.state is PayloadState.UPLOADING:
        raise not_found(namespace, name)
    if found.state is PayloadState.DELETING:
        raise _expired(namespace, name)
    return found


async def read(ctx: EngineContext, payload: ExternalPayload) -> bytes:
    """The bytes of an object, checked against its row."""
    name = payload.reference_id
    try:
        storage = storage_at(ctx, payload.place)
        data = await in_time(storage.get(payload.key, payload.size_bytes))
    except ObjectMissing:
        raise NotFound(
            Reason.EXTERNAL_PAYLOAD_NOT_FOUND,
            f"The storage has lost the object of {name}: its row is there, its bytes are not.",
            reference_id=name,
            namespace=payload.namespace,
            retryable=False,
        ) from None
    except PenstockError as error:
        raise Unavailable(
            Reason.EXTERNAL_PAYLOAD_UNAVAILABLE,
            f"The object of {name} cannot be read now: {error.message}",
            reference_id=name,
            namespace=payload.namespace,
            retryable=True,
        ) from error
    digest = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
    if len(data) != payload.size_bytes or digest != payload.sha256:
        raise _mismatch(payload.reference, f"the storage holds other bytes ({len(data)} of them)")
    return data


async def admit(ctx: EngineContext, namespace: str, references: Sequence[ExternalReference]) -> None:
    """Check that references may be recorded: known in this namespace, unchanged, and not about to be deleted.

    Raises `NotFound` or `Conflict`. An object whose grace is about to end gets a new one, so that it cannot be deleted
    between this check and the transaction that records its use.
    """
    for reference in references:
        payload = await find(ctx, namespace, reference.reference_id)
        _check_same(payload, reference)
        await _hold(ctx, payload)


async def _hold(ctx: EngineContext, payload: ExternalPayload) -> None:
    async def ends_soon(tx: Tx) -> bool:
        return payload.check_at_ms is not None and payload.check_at_ms < tx.now_ms + LAST_USE_MARGIN_MS

    async def operation(tx: Tx) -> None:
        found = await tx.external_payloads.lock(payload.reference_id)
        if found is None or found.state is not PayloadState.AVAILABLE:
            raise _expired(payload.namespace, payload.reference_id)
        if found.check_at_ms is not None:
            until_ms = tx.now_ms + ctx.settings.external_storage.grace_ms
            tx.external_payloads.settle(found.reference_id, found.state, max(until_ms, found.check_at_ms))

    if await ctx.store.read(ends_soon):
        await ctx.store.transact(operation, key=payload.reference_id)


async def in_time(request: Awaitable[T]) -> T:
    """Await a request to the storage; raises `Unavailable` if it takes too long."""
    try:
        async with asyncio.timeout(STORAGE_TIMEOUT_S):
            return await request
    except TimeoutError:
        raise Unavailable(
            Reason.EXTERNAL_PAYLOAD_UNAVAILABLE,
            f"The storage did not answer within {STORAGE_TIMEOUT_S} seconds.",
            retryable=True,
        ) from None


def check_bytes(data: bytes, reference: ExternalReference) -> None:
    """Raise `InvalidInput` unless bytes have the size and hash that their sender says."""
    if len(data) != reference.size_bytes or hashlib.sha256(data).hexdigest() != reference.sha256:
        raise InvalidInput(
            Reason.EXTERNAL_PAYLOAD_INTEGRITY_MISMATCH,
            "The bytes do not have the size or the SHA-256 that the headers say. Nothing was stored; send them again.",
            size_bytes=len(data),
        )


def not_found(namespace: str, name: str) -> NotFound:
    return NotFound(
        Reason.EXTERNAL_PAYLOAD_NOT_FOUND,
        f"There is no external payload {name} in the namespace {namespace!r}.",
        reference_id=name,
        namespace=namespace,
        retryable=False,
    )


def _expired(namespace: str, name: str) -> Conflict:
    return Conflict(
        Reason.EXTERNAL_PAYLOAD_EXPIRED,
        f"The external payload {name} was not used within its grace and is deleted. Upload it again.",
        reference_id=name,
        namespace=namespace,
        retryable=False,
    )


def _mismatch(reference: ExternalReference, what: str) -> Conflict:
    return Conflict(
        Reason.EXTERNAL_PAYLOAD_INTEGRITY_MISMATCH,
        f"The external payload {reference.reference_id} is damaged: {what}.",
        reference_id=reference.reference_id,
        retryable=False,
    )


def _check_same(payload: ExternalPayload, reference: ExternalReference) -> None:
    if payload.reference != reference:
        raise _mismatch(reference, "its size or hash is not that of the object that was uploaded")
