"""Where histories go before they are deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from penstock.core.history.bundle import Bundle
from penstock.core.model import RecordedEvent, Run


class Archive(Protocol):
    """Keeps exports for good. What it took is safe: it answers only once nothing can be lost any more."""

    async def holds(self, run: Run) -> bool:
        """Whether it keeps the whole of this run already."""
        ...

    async def put(self, bundle: Bundle, pages: AsyncIterator[Sequence[RecordedEvent]]) -> str:
        """Keep an export; returns its name. Raises `Unavailable` when it cannot, and then keeps nothing."""
        ...
