"""Sessions of the dashboard: begin, use and end one."""

from __future__ import annotations

from penstock.core.operations.ui_sessions import UiSession
from penstock.engine.context import EngineContext
from penstock.ports.store import Tx


async def begin(ctx: EngineContext, session_id: str, name: str, role: str, fingerprint: str) -> UiSession:
    """Record a new session.

    Args:
        ctx: The server.
        session_id: The digest of the cookie.
        name: The author of the session's changes.
        role: The role of the token that was presented.
        fingerprint: Binds the session to that token.
    """

    async def operation(tx: Tx) -> UiSession:
        session = UiSession(session_id, name, role, fingerprint, tx.now_ms, tx.now_ms)
        tx.ui_sessions.create(session)
        return session

    return await ctx.store.transact(operation, key=_key(session_id))


async def find(ctx: EngineContext, session_id: str) -> tuple[UiSession | None, int]:
    """The session if it is live, and the store's time."""

    async def operation(tx: Tx) -> tuple[UiSession | None, int]:
        session = await tx.ui_sessions.get(session_id)
        live = session is not None and session.is_live(tx.now_ms)
        return session if live else None, tx.now_ms

    return await ctx.store.read(operation)


async def touch(ctx: EngineContext, session_id: str) -> None:
    """Record a use of a session, which postpones its end by idleness."""

    async def operation(tx: Tx) -> None:
        tx.ui_sessions.touch(session_id, tx.now_ms)

    await ctx.store.transact(operation, key=_key(session_id))


async def end(ctx: EngineContext, session_id: str) -> None:
    """End a session; ending one that is over changes nothing."""

    async def operation(tx: Tx) -> None:
        tx.ui_sessions.delete(session_id)

    await ctx.store.transact(operation, key=_key(session_id))


def _key(session_id: str) -> str:
    return f"ui session:{session_id}"
