"""Write buffer: defers and coalesces the writes of a SQLite commit group.

Theory of operation
-------------------
The operations of a group run one after the other in one transaction. Most of them write the same few statements: a
task row, a lane count, a meter. Executed one operation at a time these are many small statements; executed together
they are `executemany` calls, and rows that only count (`-- coalesce` in the .sql file) become one row with a number.

So the writes of an operation that has ended are appended to this buffer, and the store drains it when it must: at the
end of the group, before a fetch that could see them, or before a write that may not be reordered with them.
Statements are drained in the one order that all servers keep (`Statement.rank`), and within a statement in the order
of arrival.

Invariant: no reader can tell. Two rules keep it:
- `must_flush_before(fetches)`: a fetch that reads a table which buffered writes change, or changes a table which
  they read, is preceded by a flush.
- `append(writes)`: writes may wait together only if draining by rank executes every pair that meets (one touches
  what the other changes) in the order in which they were recorded. A write whose statement has a lower rank than a
  buffered one that it meets would overtake it, so it must be flushed first. Statements that write single rows of one
  cached table meet only where they name the same id, which is what keeps inserts and saves of different tasks in one
  buffer.

Only the writes that a fetch could see are drained before it (`drain_before`), with those that must precede them: of the
rest, rows of later operations still join. A start under a cap reads the counters that the start before it changed; if
that drained everything, none of their other writes would be executed together.

Which tables a statement reads and changes is taken from its text (`catalogue.touched_tables`); a test asks SQLite's
authorizer whether that is right for each of them.

If the database refuses a buffered row, it is no longer known whose it was: the flush raises `DirtyFailure`, and the
group runs again with a savepoint and a flush per operation, so that only the operation at fault fails.

Rejected: buffering across transactions (callers are answered after the commit), and an overlay that answers fetches
from the buffer (a second implementation of every SELECT).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from penstock.stores.sql.catalogue import Statement, changed_tables, touched_tables
from penstock.stores.sql.row_cache import CachedTable
from penstock.stores.sql.session import Fetch

Rows = list[tuple[Any, ...]]


class _Overtaking(NamedTuple):
    """Statements that would be executed before a buffered write although they were recorded after it."""

    always: frozenset[Statement]
    same_row: frozenset[Statement]
    """These only if they name a row that the buffered write names."""


class _PartialDrain(NamedTuple):
    """The statements that are drained, in order, and what is true of those that stay."""

    due: tuple[Statement, ...]
    changed: frozenset[str]
    touched: frozenset[str]
    excluded: frozenset[Statement]


PLANS_MAX = 1024
"""Plans of partial drains that are kept; there are as many as combinations of operations that meet."""


class WriteBuffer:
    """The writes of a group that were not executed yet."""

    def __init__(self, statements: Iterable[Statement], tables: Iterable[CachedTable[Any]]) -> None:
        self._statements = tuple(statements)
        self._tables = {name: table.name for table in tables for name in table.written_by}
        self._overtaking: dict[Statement, _Overtaking] = {}
        """Computed once per statement."""
        self._plans: dict[tuple[frozenset[Statement], frozenset[Statement]], _PartialDrain] = {}
        """By what is buffered, and what is fetched."""
        self._writes: dict[Statement, Rows] = {}
        self._changed: set[str] = set()
        self._touched: set[str] = set()
        self._excluded: set[Statement] = set()
        """Statements that cannot be appended now."""
        self._excluded_ids: defaultdict[Statement, set[str]] = defaultdict(set)
        """Ids that cannot be appended now, by statement."""

    def must_flush_before(self, fetches: Iterable[Fetch]) -> bool:
        """Whether one of some fetches must be preceded by a flush."""
        return bool(self._writes) and any(
            not self._changed.isdisjoint(touched_tables(fetch.statement))
            or not self._touched.isdisjoint(changed_tables(fetch.statement))
            for fetch in fetches
        )

    def append(self, writes: Mapping[Statement, Rows]) -> bool:
        """Append the writes of an operation; returns False if they must not be reordered with what is buffered."""
        for statement, rows in writes.items():
            ids = self._excluded_ids.get(statement)
            if statement in self._excluded or (ids and any(row[0] in ids for row in rows)):
                return False
        for statement, rows in writes.items():
            overtaking = self._overtaking.get(statement) or self._overtaking_of(statement)
            if (buffered := self._writes.get(statement)) is not None:
                buffered.extend(rows)
            else:
                self._writes[statement] = [*rows]
                self._changed |= changed_tables(statement)
                self._touched |= touched_tables(statement)
                self._excluded |= overtaking.always
            for other in overtaking.same_row:
                self._excluded_ids[other].update(row[0] for row in rows)
        return True

    def drain_before(self, fetches: Iterable[Fetch]) -> list[tuple[Statement, Rows]]:
        """Take out what some fetches could see, and what must be executed before that, in the order of execution.

        Ids stay excluded until the buffer is empty: that costs a drain at most.
        """
        key = frozenset(self._writes), frozenset(fetch.statement for fetch in fetches)
        plan = self._plans.get(key) or self._plan(*key)
        self._changed, self._touched = set(plan.changed), set(plan.touched)
        self._excluded = set(plan.excluded)
        taken = [(each, self._writes.pop(each)) for each in plan.due]
        return [(each, coalesced(rows) if each.coalesces else rows) for each, rows in taken]

    def _plan(self, buffered: frozenset[Statement], fetched: frozenset[Statement]) -> _PartialDrain:
        due = {each for each in buffered if any(_sees(fetch, each) for fetch in fetched)}
        while more := {
            each
            for each in buffered - due
            if any(each.rank < later.rank and _meet(each, later) for later in due)
        }:
            due |= more
        kept = buffered - due
        if len(self._plans) >= PLANS_MAX:
            self._plans.clear()
        found = self._plans[buffered, fetched] = _PartialDrain(
            tuple(sorted(due, key=lambda each: each.rank)),
            frozenset().union(*map(changed_tables, kept)),
            frozenset().union(*map(touched_tables, kept)),
            frozenset().union(*(self._overtaking_of(each).always for each in kept)),
        )
        return found

    def drain(self) -> list[tuple[Statement, Rows]]:
        """Empty the buffer; returns the writes in the order of their execution."""
        writes, self._writes = sorted(self._writes.items(), key=lambda each: each[0].rank), {}
        for excluded in (self._changed, self._touched, self._excluded, self._excluded_ids):
            excluded.clear()
        return [(each, coalesced(rows) if each.coalesces else rows) for each, rows in writes]

    def _overtaking_of(self, statement: Statement) -> _Overtaking:
        table = self._tables.get(statement.name)
        earlier = [each for each in self._statements if each.rank < statement.rank and _meet(each, statement)]
        same_row = frozenset(each for each in earlier if table and self._tables.get(each.name) == table)
        found = self._overtaking[statement] = _Overtaking(frozenset(earlier) - same_row, same_row)
        return found


def coalesced(rows: Iterable[tuple[Any, ...]]) -> Rows:
    """Equal rows as one, with their number. Rows that differ only in their last column keep their order."""
    found: list[tuple[tuple[Any, ...], int]] = []
    places: dict[tuple[Any, ...], int] = {}
    for row in rows:
        place = places.get(row[:-1])
        if place is not None and found[place][0] == row:
            found[place] = (row, found[place][1] + 1)
        else:
            places[row[:-1]] = len(found)
            found.append((row, 1))
    return [(*row, number) for row, number in found]


def _sees(fetch: Statement, write: Statement) -> bool:
    """Whether a fetch reads a table that a write changes, or changes one that it reads."""
    return not (
        changed_tables(write).isdisjoint(touched_tables(fetch))
        and touched_tables(write).isdisjoint(changed_tables(fetch))
    )


@cache
def _meet(one: Statement, other: Statement) -> bool:
    """Whether one of two statements touches a table that the other one changes."""
    return not (
        changed_tables(one).isdisjoint(touched_tables(other))
        and changed_tables(other).isdisjoint(touched_tables(one))
    )
