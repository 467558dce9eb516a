"""Search for runs in SQL: reads a bounded number of candidates, by the index that reaches furthest back in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.model import Run, RunId
from penstock.core.visibility.index_plan import IndexPlan, index_plans, time_span
from penstock.ports.tables.visibility import PageStart, RunPage, RunSearch, RunTally
from penstock.stores.sql.catalogue import dialect_of
from penstock.stores.sql.session import Repository, Session, fetch_all
from penstock.stores.sql.visibility import run_search
from penstock.stores.sql.visibility.run_search import PageWindow
from penstock.stores.sql.workflows.run_attributes import record_entries
from penstock.stores.sql.workflows.runs import run_from

FIRST_PORTION_MIN = 100
GROWTH = 4
"""After a portion that did not fill the page, the next one is larger by this factor."""


class SqlVisibility(Repository):
    async def page(self, search: RunSearch, after: PageStart | None, limit: int, most: int) -> RunPage:
        look = _Look(self._session, search, after)
        portion = min(most, max(FIRST_PORTION_MIN, 2 * limit))
        runs: list[Run] = []
        left = most
        while True:
            left -= portion
            horizon = await look.ahead(portion)
            [rows] = await fetch_all([look.search.page(look.driver, look.window, limit + 1 - len(runs))])
            runs += [run_from(row) for row in rows]
            if len(runs) > limit:
                last = runs[limit - 1]
                return RunPage(runs[:limit], PageStart(last.started_at_ms, last.run_id))
            if horizon is None or left <= 0:
                return RunPage(runs, horizon)
            portion = min(left, GROWTH * portion)

    async def tally(self, search: RunSearch, after: PageStart | None, most: int) -> RunTally:
        look = _Look(self._session, search, after)
        horizon = await look.ahead(most)
        [rows] = await fetch_all([look.search.tally(look.driver, look.window)])
        return RunTally({row[1]: row[2] for row in rows}, horizon)

    async def types(self, namespace: str) -> Mapping[str, str]:
        rows = await self._session.fetch("search_attribute_types", namespace)
        return {row[1]: row[2] for row in rows}

    async def register(self, namespace: str, name: str, type_: str) -> bool:
        return bool(await self._session.fetch("register_search_attribute", namespace, name, type_))

    def unregister(self, namespace: str, name: str) -> None:
        self._session.record("unregister_search_attribute", namespace, name)

    def unregister_all(self, namespace: str) -> None:
        self._session.record("unregister_search_attributes", namespace)

    async def unindexed(self, limit: int) -> Sequence[RunId]:
        return [RunId(row[1]) for row in await self._session.fetch("unindexed_runs", limit)]

    def index(self, run_id: RunId, run: Run | None) -> None:
        self._session.record("forget_unindexed", run_id)
        if run is not None:
            record_entries(self._session, run)


class _Look:
    """One pass over the runs of a namespace, portion by portion, newest first."""

    def __init__(self, session: Session, search: RunSearch, after: PageStart | None) -> None:
        self.search = run_search.SqlSearch(dialect_of(session.statements), search.namespace, search.wanted)
        self._drivers = index_plans(search.wanted)
        between = time_span(search.wanted)
        self._lower = (between.first_ms, "")
        end = (between.last_ms + 1, "")
        self._upper = end if after is None else min(end, (after.started_at_ms, after.run_id))
        self.window = PageWindow(self._lower, self._upper, 0)

    @property
    def driver(self) -> IndexPlan:
        return self._drivers[0]

    async def ahead(self, portion: int) -> PageStart | None:
        """Move to the next portion; returns where it ends, None if it is the last one.

        Of several index plans, keeps the one that reaches furthest back with as many candidates.
        """
        window = PageWindow(self._lower, self._upper, portion)
        fetches = [self.search.horizon(driver, window) for driver in self._drivers]
        ends = [(rows[0][1], rows[0][2]) if rows else None for rows in await fetch_all(fetches)]
        furthest = min(
            range(len(ends)), key=lambda place: (ends[place] is not None, ends[place] or self._lower)
        )
        self._drivers = (self._drivers[furthest],)
        end = ends[furthest]
        self.window = PageWindow(end or self._lower, self._upper, portion)
        self._upper = end or self._upper
        return None if end is None else PageStart(*end)
