"""Whether a request's namespace exists, remembered for a moment."""

from __future__ import annotations

from penstock.engine import namespaces
from penstock.engine.house import House
from penstock.ports.clock import Clock

REMEMBER_MS = 1_000
"""How long a namespace that was there is believed to be; one that was not is asked for every time."""
_NAME_MAX = 128


def could_be_name(text: str) -> bool:
    """Whether it may be looked up at all: no database has to hear of what cannot be a name."""
    return len(text) <= _NAME_MAX and text.isprintable()


class NamespaceCheck:
    def __init__(self, house: House, clock: Clock) -> None:
        self._house = house
        self._clock = clock
        self._seen: dict[str, int] = {}

    async def require(self, name: str) -> None:
        now_ms = self._clock.now_ms()
        if self._seen.get(name, 0) > now_ms:
            return
        if not could_be_name(name) or await namespaces.find(self._house, name) is None:
            raise namespaces.not_found(name[:_NAME_MAX])
        if len(self._seen) > 10_000:
            self._seen.clear()
        self._seen[name] = now_ms + REMEMBER_MS

    def forget(self, name: str) -> None:
        self._seen.pop(name, None)
