"""Sessions of the dashboard."""

from __future__ import annotations

from typing import Protocol

from penstock.core.operations.ui_sessions import UiSession


class UiSessions(Protocol):
    async def get(self, session_id: str) -> UiSession | None: ...
    def create(self, session: UiSession) -> None: ...
    def touch(self, session_id: str, seen_at_ms: int) -> None:
        """Record a use, unless a later one is recorded."""
        ...

    def delete(self, session_id: str) -> None: ...
    async def any_before(self, seen_ms: int) -> bool:
        """Whether any session was last used before this instant."""
        ...

    def forget(self, seen_ms: int) -> None:
        """Delete the sessions that were last used before this instant."""
        ...
