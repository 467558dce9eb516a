"""Translates a search filter into SQL; every value of the caller is a parameter.

A statement reads a bounded number of candidates from the indexes of an index plan, newest first, and evaluates the
whole filter on the runs that they name.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from penstock.core.visibility.filters import (
    All,
    Column,
    ColumnTest,
    EntryTest,
    Filter,
    Not,
    Relation,
    Some,
    kind_of,
)
from penstock.core.visibility.index_plan import IndexKey, IndexPlan, IndexRange
from penstock.stores.sql.catalogue import Dialect, Statement, columns
from penstock.stores.sql.session import Fetch

_SIGNS = {Relation.BELOW: "<", Relation.AT_MOST: "<=", Relation.ABOVE: ">", Relation.AT_LEAST: ">="}
_NULLABLE = (Column.BUILD_ID, Column.BUSINESS_KEY, Column.CLOSED_REASON, Column.CLOSED_AT)
_PLACES = {
    IndexKey.RUN_ID: ("", "t.run_id = {value}"),
    IndexKey.WORKFLOW_ID: ("runs_of_instance", "t.workflow_id = {value}"),
    IndexKey.BUSINESS_KEY: ("runs_by_business_key", "t.business_key = {value}"),
    IndexKey.END: ("runs_by_end", "coalesce(t.closed_reason, 'open') = {value}"),
    IndexKey.TASK_QUEUE: ("runs_by_queue", "t.task_queue = {value}"),
    IndexKey.WORKFLOW_TYPE: ("runs_by_type", "t.workflow_type = {value}"),
}
"""The index of a range, and the condition that selects its rows."""


class PageWindow(Struct, frozen=True):
    """The start times that a statement covers, from (inclusive) and to (exclusive), and its number of candidates."""

    lower: tuple[int, str]
    upper: tuple[int, str]
    portion: int


class SqlSearch:
    """A search in one namespace, in one dialect."""

    def __init__(self, dialect: Dialect, namespace: str, wanted: Filter) -> None:
        self._dialect = dialect
        self._namespace = namespace
        self._wanted = wanted

    def horizon(self, driver: IndexPlan, window: PageWindow) -> Fetch:
        """The last candidate of a full portion; None if the portion is not full."""
        words = _Words(self._dialect)
        candidates = words.candidates(self._namespace, driver, window)
        return words.fetch(
            f"SELECT 1, c.started_at_ms, c.run_id FROM ({candidates}) c "
            f"ORDER BY c.started_at_ms DESC, c.run_id DESC LIMIT 1 OFFSET {words.put(window.portion - 1)}"
        )

    def page(self, driver: IndexPlan, window: PageWindow, limit: int) -> Fetch:
        words = _Words(self._dialect)
        return words.fetch(
            f"SELECT 1, {columns('run')} {self._matching(words, driver, window)} "
            f"ORDER BY c.started_at_ms DESC, c.run_id DESC LIMIT {words.put(limit)}"
        )

    def tally(self, driver: IndexPlan, window: PageWindow) -> Fetch:
        words = _Words(self._dialect)
        counted = "coalesce(t.closed_reason, t.status)"
        return words.fetch(
            f"SELECT 1, {counted}, count(*) {self._matching(words, driver, window)} GROUP BY {counted}"
        )

    def _matching(self, words: _Words, driver: IndexPlan, window: PageWindow) -> str:
        """Joins each candidate with its run (LATERAL), so that PostgreSQL does not read all runs at once."""
        candidates = words.candidates(self._namespace, driver, window)
        runs = f"runs t WHERE t.run_id = c.run_id AND {words.condition(self._wanted)}"
        if self._dialect is Dialect.SQLITE:
            return f"FROM ({candidates}) c CROSS JOIN {runs}"
        return f"FROM ({candidates}) c CROSS JOIN LATERAL (SELECT t.* FROM {runs} LIMIT 1) t"


class _Words:
    """Collects the parameters of one statement."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._values: list[Any] = []

    def fetch(self, sql: str) -> Fetch:
        takes = tuple(("value", "text" if isinstance(each, str) else "bigint") for each in self._values)
        statement = Statement("search", sql, takes, rank=0, returns_rows=True, unmerged=True, locks=False)
        return Fetch(statement, tuple(self._values))

    def put(self, value: str | int) -> str:
        self._values.append(value)
        if self._dialect is Dialect.SQLITE:
            return f"?{len(self._values)}"
        return f"${len(self._values)}::{'text' if isinstance(value, str) else 'bigint'}"

    # candidates

    def candidates(self, namespace: str, driver: IndexPlan, window: PageWindow) -> str:
        parts = [self._range(namespace, each, window) for each in driver]
        if len(parts) == 1:
            return parts[0]
        each = " UNION ".join(
            f"SELECT started_at_ms, run_id FROM ({part}) p{n}" for n, part in enumerate(parts)
        )
        return self._newest(f"SELECT c.started_at_ms, c.run_id FROM ({each}) c", "c", window)

    def _range(self, namespace: str, each: IndexRange, window: PageWindow) -> str:
        if each.by is IndexKey.ENTRY:
            source = f"run_attributes a{self._by_index('run_attributes_newest')}"
            same = f"a.name = {self.put(each.name)} AND a.value = {self.put(each.value)}"
            return self._bounded("a", source, f"a.namespace = {self.put(namespace)} AND {same}", window)
        if each.by is IndexKey.ALL:
            source = f"runs t{self._by_index('runs_newest')}"
            return self._bounded(
                "t", source, f"t.namespace = {self.put(namespace)} AND t.host = 'workflow'", window
            )
        index, same = _PLACES[each.by]
        same = same.format(value=self.put(each.value))
        rest = f"t.namespace = {self.put(namespace)} AND {same} AND t.host <> 'activity'"
        if each.by is IndexKey.BUSINESS_KEY:
            rest += " AND t.business_key IS NOT NULL"
        return self._bounded("t", f"runs t{self._by_index(index)}", rest, window)

    def _bounded(self, table: str, source: str, same: str, window: PageWindow) -> str:
        place = f"({table}.started_at_ms, {table}.run_id)"
        lower, upper = (
            f"({self.put(at)}, {self.put(run_id)})" for at, run_id in (window.lower, window.upper)
        )
        select = f"SELECT {table}.started_at_ms, {table}.run_id FROM {source} WHERE {same}"
        return self._newest(f"{select} AND {place} >= {lower} AND {place} < {upper}", table, window)

    def _newest(self, select: str, table: str, window: PageWindow) -> str:
        order = f"ORDER BY {table}.started_at_ms DESC, {table}.run_id DESC"
        return f"{select} {order} LIMIT {self.put(window.portion)}"

    def _by_index(self, name: str) -> str:
        """Names the index for SQLite; PostgreSQL has no other candidate."""
        return f" INDEXED BY {name}" if name and self._dialect is Dialect.SQLITE else ""

    # conditions; none of them is ever NULL

    def condition(self, wanted: Filter) -> str:
        match wanted:
            case ColumnTest():
                return self._column(wanted)
            case EntryTest():
                return self._entry(wanted)
            case All(parts):
                return self._joined(" AND ", parts) if parts else "(1 = 1)"
            case Some(parts):
                return self._joined(" OR ", parts) if parts else "(1 = 0)"
            case Not(part):
                return f"NOT {self.condition(part)}"

    def _joined(self, word: str, parts: tuple[Filter, ...]) -> str:
        return f"({word.join(self.condition(part) for part in parts)})"

    def _column(self, test: ColumnTest) -> str:
        column = f"t.{test.column.value}"
        present = f"({column} IS NOT NULL)"
        if test.relation is Relation.PRESENT:
            return present
        held = self._held(column, test.relation, test.values)
        return f"({present} AND {held})" if test.column in _NULLABLE else held

    def _entry(self, test: EntryTest) -> str:
        inside = f"a.run_id = t.run_id AND a.name = {self.put(test.name)}"
        if test.relation is Relation.PRESENT:
            inside += " AND a.value = ''"
        else:
            inside += f" AND {self._held('a.value', test.relation, test.marks)}{self._of_kind(test)}"
        return f"EXISTS (SELECT 1 FROM run_attributes a WHERE {inside})"

    def _of_kind(self, test: EntryTest) -> str:
        """Values of another type compare as neither less nor greater."""
        match test.relation:
            case Relation.BELOW | Relation.AT_MOST:
                return f" AND a.value >= {self.put(kind_of(test.marks[0]).value)}"
            case Relation.ABOVE | Relation.AT_LEAST:
                return f" AND a.value < {self.put(kind_of(test.marks[0]).end)}"
        return ""

    def _held(self, what: str, relation: Relation, values: tuple[str | int, ...]) -> str:
        match relation:
            case Relation.IS:
                return f"({what} IN ({', '.join(map(self.put, values))}))"
            case Relation.BETWEEN:
                return f"({what} BETWEEN {self.put(values[0])} AND {self.put(values[1])})"
            case Relation.STARTS_WITH:
                return f"(substr({what}, 1, {len(str(values[0]))}) = {self.put(values[0])})"
            case Relation.CONTAINS:
                place = "instr" if self._dialect is Dialect.SQLITE else "strpos"
                return f"({place}({what}, {self.put(values[0])}) > 0)"
        return f"({what} {_SIGNS[relation]} {self.put(values[0])})"
