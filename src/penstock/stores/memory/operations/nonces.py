"""Used nonces, until they expire."""

from __future__ import annotations

from penstock.stores.memory.tables import MemoryRepository


class MemoryNonces(MemoryRepository):
    async def register(self, key: str, nonce: str, expires_at_ms: int) -> bool:
        self._changes.allow()
        if (key, nonce) in self._tables.nonces:
            return False
        self._changes.put(self._tables.nonces, (key, nonce), expires_at_ms)
        return True

    async def any_expired(self, now_ms: int) -> bool:
        return any(at_ms < now_ms for at_ms in self._tables.nonces.values())

    def forget(self, before_ms: int) -> None:
        def write() -> None:
            for name in [name for name, at_ms in self._tables.nonces.items() if at_ms < before_ms]:
                self._changes.drop(self._tables.nonces, name)

        self._changes.record(write)
