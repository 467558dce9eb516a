"""The objects in external storage, and which owners still need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from penstock.core.external_payloads import ExternalPayload, PayloadState


class StoredTotals(Struct, frozen=True):
    """How much a namespace keeps in external storage."""

    objects: int
    size_bytes: int


class ExternalPayloads(Protocol):
    async def get(self, reference_id: str) -> ExternalPayload | None: ...
    async def lock(self, reference_id: str) -> ExternalPayload | None: ...
    async def is_used(self, reference_id: str) -> bool:
        """Whether any owner has it."""
        ...

    async def due(self, now_ms: int, limit: int) -> Sequence[str]:
        """Ids of objects whose time to be looked at has come, oldest first."""
        ...

    async def totals(self, namespace: str) -> StoredTotals: ...
    def insert(self, payload: ExternalPayload) -> None: ...
    def settle(self, reference_id: str, state: PayloadState, check_at_ms: int | None) -> None:
        """Set the state of an object, and when it is looked at next."""
        ...

    def delete(self, reference_id: str) -> None: ...
    async def release(self, owner: str, most: int, check_at_ms: int) -> int:
        """Delete up to `most` uses of an owner, and have their objects looked at; returns how many there were."""
        ...
