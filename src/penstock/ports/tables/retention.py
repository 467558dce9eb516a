"""Deleting closed runs after their retention: first the run, then its rows in portions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.core.model import Instance, Run, RunId
from penstock.core.operations.run_counts import PurgedRows


class Retention(Protocol):
    async def expired(self, namespace: str, before_ms: int, limit: int) -> Sequence[RunId]:
        """Runs closed before a time, oldest first."""
        ...

    async def newest_other(self, run: Run) -> RunId | None:
        """The newest other run of its workflow id."""
        ...

    async def unlink(self, run_id: RunId, most: int) -> bool:
        """Delete up to `most` requests and messages, which are keyed by the workflow id.

        Returns whether there may be more. Must precede `forget`: afterwards the workflow id may be reused.
        """
        ...

    def forget(self, run: Run, instance: Instance | None = None) -> None:
        """Delete a run, and its workflow id if this is its latest run; `clear` deletes the other rows.

        With `instance` the workflow id stays and names that run.
        """
        ...

    async def remains(self, limit: int) -> Sequence[RunId]:
        """Deleted runs that have rows left."""
        ...

    async def clear(self, run_id: RunId, most: int) -> PurgedRows:
        """Delete up to `most` rows of each kind of a deleted run."""
        ...

    def bury(self, run_id: RunId) -> None:
        """Record that all rows of a deleted run are gone."""
        ...
