"""Nonces of signed requests in SQL, so that a replay is detected on every server."""

from __future__ import annotations

from penstock.stores.sql.session import Repository


class SqlNonces(Repository):
    async def register(self, key: str, nonce: str, expires_at_ms: int) -> bool:
        return bool(await self._session.fetch("register_nonce", key, nonce, expires_at_ms))

    async def any_expired(self, now_ms: int) -> bool:
        return bool(await self._session.fetch("any_expired_nonce", now_ms))

    def forget(self, before_ms: int) -> None:
        self._session.record("forget_nonces", before_ms)
