"""External storage: where the bytes of external payloads are kept."""

from __future__ import annotations

from typing import Protocol

from penstock.errors import InvalidInput, Reason


class ObjectMissing(Exception):
    """The storage has no object of that name."""


class ObjectStorage(Protocol):
    """Keeps objects by key. Every method raises `Unavailable` if the storage does not do it, saying why."""

    async def put(self, key: str, data: bytes) -> None:
        """Store an object; returns when it is durable. A failed call leaves nothing under the key."""
        ...

    async def get(self, key: str, bytes_max: int) -> bytes:
        """An object's bytes, at most one more than `bytes_max`. Raises `ObjectMissing`."""
        ...

    async def delete(self, key: str) -> None:
        """Delete an object. One that does not exist is no error."""
        ...

    def uri(self, key: str) -> str:
        """Where the object is, for people; nothing reads it."""
        ...


class StorageDrivers(Protocol):
    """Opens storage by driver and configuration."""

    def open(self, place: str) -> ObjectStorage:
        """The storage at a place: its driver and configuration, as JSON.

        Raises `InvalidInput` (`storage_driver_unavailable`) if this server cannot or may not use it. No I/O.
        """
        ...


class NoStorage:
    """The drivers of a server that has none."""

    def open(self, place: str) -> ObjectStorage:
        raise InvalidInput(
            Reason.STORAGE_DRIVER_UNAVAILABLE, "This server has no external storage.", status="failed"
        )
