"""Coordination by the database itself."""

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager


class DatabaseCoordination:
    """Lends no locks of its own, because none are missing.

    Whoever changes a queue locks its row in the same transaction, and that parts servers already. So this is
    supported as long as the store is; and when the store is gone, the store says so itself.
    """

    kind = "database"

    def is_supported(self) -> bool:
        return True

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None
