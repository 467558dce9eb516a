"""Coordination: locks between servers that share a store, and whether such locks can be had now.

No limit depends on it: rows in the store decide, under the store's own locks. It keeps servers from crowding at
one door, and it is what the contract names when it says that a lock is missing.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager
from typing import Protocol

LOCK_WAIT_S = 1.0
"""Longest time that a caller waits for a lock which another server holds."""
LOCK_TTL_S = 2.0
"""How long a lock outlives a server that holds it and stands still: no longer than the database lets it hold rows."""


class Coordination(Protocol):
    @property
    def kind(self) -> str:
        """Who does it: `memory`, `database` or `redis`."""
        ...

    def is_supported(self) -> bool:
        """Whether locks could be taken when somebody last looked, which was a moment ago. Asks nobody."""
        ...

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        """Keep all other servers out while the block lasts; the callers of this server share the lock.

        Raises `Unavailable` with `coordination_unavailable` when it cannot be had within `LOCK_WAIT_S`. It ends
        after `LOCK_TTL_S` even if the block lasts longer, so nothing that must hold may hang on it.
        """
        ...

    async def start(self) -> None: ...
    async def close(self) -> None: ...


class InProcess:
    """The coordination of a server that is alone with its store: there is nobody to keep out."""

    kind = "memory"

    def is_supported(self) -> bool:
        return True

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None
