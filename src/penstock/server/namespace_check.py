"""Caches which namespaces exist."""

from __future__ import annotations

from penstock.engine.context import EngineContext
from penstock.engine.operations import namespaces
from penstock.errors import Unavailable
from penstock.ports.clock import Clock

REMEMBER_MS = 1_000
"""How long a positive result is cached; negative ones are not."""
BELIEVE_MS = 600_000
"""How long a positive result is used while the store is unavailable, so that the operation itself fails: its error has
details that this check does not know, such as the task of a report or the status of a poll."""
_NAME_MAX = 128


def is_namespace_name(text: str) -> bool:
    """Whether the text can be a name at all; others are not looked up in the database."""
    return len(text) <= _NAME_MAX and text.isprintable()


class NamespaceCheck:
    def __init__(self, ctx: EngineContext, clock: Clock) -> None:
        self._ctx = ctx
        self._clock = clock
        self._seen: dict[str, int] = {}

    async def require(self, name: str) -> None:
        now_ms = self._clock.now_ms()
        if self._seen.get(name, 0) > now_ms:
            return
        try:
            exists = is_namespace_name(name) and await namespaces.find(self._ctx, name) is not None
        except Unavailable:
            if name in self._seen and self._seen[name] + BELIEVE_MS > now_ms:
                return
            raise
        if not exists:
            self.forget(name)
            raise namespaces.not_found(name[:_NAME_MAX])
        if len(self._seen) > 10_000:
            self._seen.clear()
        self._seen[name] = now_ms + REMEMBER_MS

    def forget(self, name: str) -> None:
        self._seen.pop(name, None)
