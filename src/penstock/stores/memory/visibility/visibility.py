"""Search for runs: a scan with a filter."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from penstock.core.model import Run, RunHost, RunId
from penstock.core.visibility.filters import RunView, matches
from penstock.ports.tables.visibility import PageStart, RunPage, RunSearch, RunTally
from penstock.stores.memory.tables import MemoryRepository


class MemoryVisibility(MemoryRepository):
    async def page(self, search: RunSearch, after: PageStart | None, limit: int, most: int) -> RunPage:
        runs = heapq.nlargest(limit + 1, self._matching(search, after), key=_age)
        last = PageStart(*_age(runs[limit - 1])) if len(runs) > limit else None
        return RunPage(runs[:limit], last)

    async def tally(self, search: RunSearch, after: PageStart | None, most: int) -> RunTally:
        counted = Counter(run.closed_reason or run.status.value for run in self._matching(search, after))
        return RunTally(counted, None)

    def _matching(self, search: RunSearch, after: PageStart | None) -> Iterator[Run]:
        for run in self._tables.runs.values():
            if (
                run.namespace == search.namespace
                and run.host is RunHost.WORKFLOW
                and (after is None or _age(run) < (after.started_at_ms, after.run_id))
                and matches(search.wanted, RunView(run))
            ):
                yield run

    async def types(self, namespace: str) -> Mapping[str, str]:
        return dict(sorted(self._tables.search_attributes.of(namespace).items()))

    async def register(self, namespace: str, name: str, type_: str) -> bool:
        self._changes.allow()
        if name in self._tables.search_attributes.of(namespace):
            return False
        self._changes.add(self._tables.search_attributes, namespace, name, type_)
        return True

    def unregister(self, namespace: str, name: str) -> None:
        def write() -> None:
            if name in self._tables.search_attributes.of(namespace):
                self._changes.remove(self._tables.search_attributes, namespace, name)

        self._changes.record(write)

    def unregister_all(self, namespace: str) -> None:
        def write() -> None:
            for name in [*self._tables.search_attributes.of(namespace)]:
                self._changes.remove(self._tables.search_attributes, namespace, name)

        self._changes.record(write)

    async def unindexed(self, limit: int) -> Sequence[RunId]:
        return ()

    def index(self, run_id: RunId, run: Run | None) -> None:
        """Nothing to do: runs are scanned, not indexed."""


def _age(run: Run) -> tuple[int, str]:
    return run.started_at_ms, run.run_id
