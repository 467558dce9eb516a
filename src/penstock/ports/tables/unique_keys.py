"""Unique keys of starts: which run was started with a key last."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from penstock.core.model import RunId
from penstock.core.unique_starts import UniqueUntil


class UniqueKeyName(Struct, frozen=True):
    """A unique key in its namespace and scope, which is what the run hosts and its type."""

    namespace: str
    scope: str
    unique_key: str


class UniqueKeyRow(Struct, frozen=True):
    """The run that was started with a key last. Whether it still holds the key, its own state says."""

    run_id: RunId
    until: UniqueUntil
    starts: int = 1
    """How many starts it stands for, itself included."""
    latest_at_ms: int | None = None
    """Of a debounced start: when it begins at the latest, however many starts join it."""


class UniqueKeys(Protocol):
    """Rows are changed under their lock, except that a run hands its own on to its successor."""

    async def get(self, name: UniqueKeyName) -> UniqueKeyRow | None: ...
    async def lock(self, name: UniqueKeyName) -> UniqueKeyRow | None: ...
    async def reserve(self, name: UniqueKeyName, row: UniqueKeyRow) -> bool:
        """Insert the row unless the key has one; returns whether it was inserted."""
        ...

    def save(self, name: UniqueKeyName, row: UniqueKeyRow) -> None: ...
    def hand_on(self, run_id: RunId, successor: RunId) -> None:
        """Name the successor of a run in its place."""
        ...
