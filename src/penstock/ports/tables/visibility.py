"""Searching runs: pages and counts under a filter, and the search attributes of namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.core.model import Run, RunId
from penstock.core.visibility.filters import Filter


class PageStart(Struct, frozen=True):
    """The last run of a page, newest first; the next page continues below it."""

    started_at_ms: int
    run_id: str


class RunSearch(Struct, frozen=True):
    """A search for workflow runs of a namespace."""

    namespace: str
    wanted: Filter


class RunPage(Struct, frozen=True):
    """The runs of a page, and where the next page begins; None at the end.

    A page may be short or empty before the end, because the number of runs examined is bounded.
    """

    runs: Sequence[Run]
    after: PageStart | None


class RunTally(Struct, frozen=True):
    """Runs of a portion by status, and where the next portion begins."""

    by_status: Mapping[str, int]
    after: PageStart | None


class Visibility(Protocol):
    async def page(self, search: RunSearch, after: PageStart | None, limit: int, most: int) -> RunPage:
        """The newest matching runs below a point; examines at most about `most` runs."""
        ...

    async def tally(self, search: RunSearch, after: PageStart | None, most: int) -> RunTally:
        """Count the matches among the next `most` runs, by close reason or else by status."""
        ...

    async def types(self, namespace: str) -> Mapping[str, str]:
        """The registered search attributes of a namespace, by name."""
        ...

    async def register(self, namespace: str, name: str, type_: str) -> bool:
        """Register a search attribute unless the name is taken; returns False then. Do not raise after it."""
        ...

    def unregister(self, namespace: str, name: str) -> None: ...
    def unregister_all(self, namespace: str) -> None: ...
    async def unindexed(self, limit: int) -> Sequence[RunId]:
        """Runs that predate the search index."""
        ...

    def index(self, run_id: RunId, run: Run | None) -> None:
        """Write the index entries of a run that has none, if it still exists."""
        ...
