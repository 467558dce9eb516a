"""Searching runs: pages and counts of the runs that match a query or simple filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from penstock.core.model import RunId
from penstock.core.visibility.binder import bind
from penstock.core.visibility.fields import LISTED_STATUSES
from penstock.core.visibility.filters import All, Column, ColumnTest, Filter, Relation, Some
from penstock.core.visibility.live_tasks import LiveTasks
from penstock.core.visibility.parser import has_operator, parse
from penstock.core.visibility.query_errors import QueryProblem
from penstock.core.visibility.syntax import Query
from penstock.engine.context import EngineContext
from penstock.errors import InvalidInput, Reason
from penstock.ports.store import Tx
from penstock.ports.tables.visibility import PageStart, RunPage, RunSearch, RunTally

LOOKS_MAX = 10_000
"""How many runs are scanned for one page."""
COUNT_PORTION = 20_000
COUNT_PORTIONS_MAX = 50
"""How many batches are counted for one answer."""


class RunCriteria(Struct, frozen=True):
    """Search criteria in a namespace, combined with AND."""

    namespace: str
    query: Query | None = None
    text: str | None = None
    """Part of the workflow id or business key."""
    workflow_type: str | None = None
    status: str | None = None
    """One of `LISTED_STATUSES`."""
    only: Filter | None = None

    def filter(self, types: Mapping[str, str], now_ms: int) -> Filter:
        return All(tuple(self._parts(types, now_ms)))

    def _parts(self, types: Mapping[str, str], now_ms: int) -> Iterator[Filter]:
        if self.query is not None:
            try:
                yield bind(self.query, types, now_ms)
            except QueryProblem as problem:
                raise invalid_query(problem) from None
        if self.text is not None:
            columns = (Column.WORKFLOW_ID, Column.BUSINESS_KEY)
            yield Some(tuple(ColumnTest(each, Relation.CONTAINS, (self.text,)) for each in columns))
        if self.workflow_type is not None:
            yield ColumnTest(Column.WORKFLOW_TYPE, Relation.IS, (self.workflow_type,))
        if self.status is not None:
            yield LISTED_STATUSES[self.status]
        if self.only is not None:
            yield self.only


def read_query(text: str) -> Query:
    """Parse a query. Raises `InvalidInput` with the position of the error."""
    try:
        return parse(text)
    except QueryProblem as problem:
        raise invalid_query(problem) from None


def read_query_or_text(text: str) -> Query | None:
    """Parse a query; None for text without operators, which is searched for literally."""
    try:
        return parse(text)
    except QueryProblem as problem:
        if has_operator(text):
            raise invalid_query(problem) from None
        return None


async def page(ctx: EngineContext, criteria: RunCriteria, after: PageStart | None, limit: int) -> RunPage:
    async def operation(tx: Tx) -> RunPage:
        return await tx.visibility.page(await _search(tx, criteria), after, limit, LOOKS_MAX)

    return await ctx.store.read(operation, long=True)


async def page_with_tasks(
    ctx: EngineContext, criteria: RunCriteria, after: PageStart | None, limit: int
) -> tuple[RunPage, Mapping[RunId, Sequence[LiveTasks]]]:
    """A page, and the live tasks of its open runs, of one snapshot."""

    async def operation(tx: Tx) -> tuple[RunPage, Mapping[RunId, Sequence[LiveTasks]]]:
        found = await tx.visibility.page(await _search(tx, criteria), after, limit, LOOKS_MAX)
        open_ids = [run.run_id for run in found.runs if run.is_open]
        counted = await tx.tasks.live_by_state(open_ids) if open_ids else []
        return found, dict(zip(open_ids, counted, strict=True))

    return await ctx.store.read(operation, long=True)


class RunCount(Struct, frozen=True):
    """Runs by status; a lower bound if `complete` is False."""

    by_status: Mapping[str, int]
    complete: bool

    @property
    def total(self) -> int:
        return sum(self.by_status.values())


async def count(ctx: EngineContext, criteria: RunCriteria) -> RunCount:
    """Count in batches, each in its own read transaction, so that none is long."""
    total: Counter[str] = Counter()
    after: PageStart | None = None
    for _ in range(COUNT_PORTIONS_MAX):
        tally = await _tally(ctx, criteria, after)
        total.update(tally.by_status)
        if tally.after is None:
            return RunCount(total, complete=True)
        after = tally.after
    return RunCount(total, complete=False)


async def _tally(ctx: EngineContext, criteria: RunCriteria, after: PageStart | None) -> RunTally:
    async def operation(tx: Tx) -> RunTally:
        return await tx.visibility.tally(await _search(tx, criteria), after, COUNT_PORTION)

    return await ctx.store.read(operation, long=True)


async def _search(tx: Tx, criteria: RunCriteria) -> RunSearch:
    types = await tx.visibility.types(criteria.namespace) if criteria.query is not None else {}
    return RunSearch(criteria.namespace, criteria.filter(types, tx.now_ms))


def invalid_query(problem: QueryProblem) -> InvalidInput:
    errors = {"query": [str(problem)]}
    return InvalidInput(
        Reason.INVALID_QUERY,
        f"The query cannot be answered. {problem}",
        position=problem.position,
        expected=problem.expected,
        errors=errors,
        validation_errors=errors,
    )
