"""The archive that receives histories before they are deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from penstock.core.audit.bundle import Bundle
from penstock.core.model import RecordedEvent, Run


class Archive(Protocol):
    """Stores exports durably: a call returns only after the export is safe."""

    async def holds(self, run: Run) -> bool:
        """Whether the complete run is archived already."""
        ...

    async def put(self, bundle: Bundle, pages: AsyncIterator[Sequence[RecordedEvent]]) -> str:
        """Store an export and return its name. Raises `Unavailable` on failure, and then stores nothing."""
        ...
