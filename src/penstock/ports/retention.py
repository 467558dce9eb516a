"""What is deleted of runs that are closed for long: the run at once, its many rows after it in portions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.core.model import Run, RunId
from penstock.core.operations.run_counts import PurgedRows


class Retention(Protocol):
    async def expired(self, namespace: str, before_ms: int, limit: int) -> Sequence[RunId]:
        """Runs that were closed before a moment, the longest closed first."""
        ...

    async def has_others(self, run: Run) -> bool:
        """Whether its workflow id has any other run."""
        ...

    async def unlink(self, run_id: RunId, most: int) -> bool:
        """Delete what is known by the workflow id and not by the run: requests and messages, up to so many.

        Returns whether there may be more. It goes first: once the run is gone, its workflow id may be taken again.
        """
        ...

    def forget(self, run: Run) -> None:
        """Delete a run, and its workflow id if that names it; its rows remain until they are cleared."""
        ...

    async def remains(self, limit: int) -> Sequence[RunId]:
        """Runs that are gone and have rows left."""
        ...

    async def clear(self, run_id: RunId, most: int) -> PurgedRows:
        """Delete up to so many rows, of each kind, of a run that is gone."""
        ...

    def bury(self, run_id: RunId) -> None:
        """Nothing remains of it."""
        ...
