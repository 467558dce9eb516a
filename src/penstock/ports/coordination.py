"""Coordination: advisory locks between servers that share a store.

No limit depends on it: limits are enforced by rows of the store under the store's own locks. The locks reduce
contention between servers; without them the API reports `coordination_unavailable`.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager
from typing import Protocol

LOCK_WAIT_S = 1.0
"""How long a caller waits at most for a lock that another server holds."""
LOCK_TTL_S = 2.0
"""How long a stalled server keeps a lock: no longer than the database lets it keep row locks."""


class Coordination(Protocol):
    @property
    def kind(self) -> str:
        """`memory`, `database` or `redis`."""
        ...

    @property
    def is_supported(self) -> bool:
        """Whether locks were available at the last check, moments ago; no I/O."""
        ...

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        """Hold a lock against other servers while the block runs; callers on this server share it.

        Raises `Unavailable` with `coordination_unavailable` if it is not acquired within `LOCK_WAIT_S`. It expires
        after `LOCK_TTL_S` even if the block runs longer, so correctness must not depend on it.
        """
        ...

    async def start(self) -> None: ...
    async def close(self) -> None: ...


class InProcess:
    """Coordination for a single server: there is no other server to exclude."""

    kind = "memory"
    is_supported = True

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None
