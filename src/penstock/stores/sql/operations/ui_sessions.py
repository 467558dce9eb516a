"""Sessions of the dashboard in SQL."""

from __future__ import annotations

from penstock.core.operations.ui_sessions import UiSession
from penstock.stores.sql.session import Repository


class SqlUiSessions(Repository):
    async def get(self, session_id: str) -> UiSession | None:
        rows = await self._session.fetch("get_ui_session", session_id)
        return UiSession(*rows[0][1:]) if rows else None

    def create(self, session: UiSession) -> None:
        self._session.record(
            "create_ui_session",
            session.session_id,
            session.name,
            session.role,
            session.fingerprint,
            session.created_at_ms,
        )

    def touch(self, session_id: str, seen_at_ms: int) -> None:
        self._session.record("touch_ui_session", session_id, seen_at_ms)

    def delete(self, session_id: str) -> None:
        self._session.record("delete_ui_session", session_id)

    async def any_before(self, seen_ms: int) -> bool:
        return bool(await self._session.fetch("any_old_ui_session", seen_ms))

    def forget(self, seen_ms: int) -> None:
        self._session.record("forget_ui_sessions", seen_ms)
