"""Coordination by the database itself."""

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager


class DatabaseCoordination:
    """Takes no locks of its own: row locks of the database already serialize servers.

    It is supported as long as the store is; an outage is reported by the store itself.
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
