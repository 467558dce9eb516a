"""Finding runs in a store: pages and counts under a filter, and the search attributes of namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.core.model import Run, RunId
from penstock.core.visibility.filters import Filter


class PageStart(Struct, frozen=True):
    """The last row seen: newest first, so the page goes on below it."""

    started_at_ms: int
    run_id: str


class RunSearch(Struct, frozen=True):
    """Which workflow runs of a namespace are looked for."""

    namespace: str
    wanted: Filter


class RunPage(Struct, frozen=True):
    """The runs of a page, and where the next one begins; None when there are no more.

    A page may be short, even empty, before the end: so much was looked at and no more.
    """

    runs: Sequence[Run]
    after: PageStart | None


class RunTally(Struct, frozen=True):
    """How many runs of each status a portion held, and where the next portion begins."""

    by_status: Mapping[str, int]
    after: PageStart | None


class Visibility(Protocol):
    async def page(self, search: RunSearch, after: PageStart | None, limit: int, most: int) -> RunPage:
        """The newest runs below a point that are looked for; about `most` runs are looked at, and no more."""
        ...

    async def tally(self, search: RunSearch, after: PageStart | None, most: int) -> RunTally:
        """Count what the next `most` runs hold; each is counted under why it closed, or under its status."""
        ...

    async def types(self, namespace: str) -> Mapping[str, str]:
        """The registered search attributes of a namespace, by name."""
        ...

    async def register(self, namespace: str, name: str, type_: str) -> bool:
        """Register a search attribute unless the name is taken; False then. Nothing may be refused after it."""
        ...

    def unregister(self, namespace: str, name: str) -> None: ...
    def unregister_all(self, namespace: str) -> None: ...
    async def unindexed(self, limit: int) -> Sequence[RunId]:
        """Runs from before there were entries."""
        ...

    def index(self, run_id: RunId, run: Run | None) -> None:
        """Write the entries of a run from before, if it is still there."""
        ...
