"""Merges statements of one PostgreSQL transaction that do not depend on each other, to save round trips.

Writes become the parts of one `WITH` (data-modifying CTEs), all of which PostgreSQL executes; each keeps its own
text. It executes them from the last to the first, so they are listed backwards: rows are locked in the order that
every server keeps. All parts see the snapshot of the moment at which the first began. A part that waits for a row
lock changes the row as it is then, but rows that others committed meanwhile are invisible to the parts behind it; a
statement that must see them (`Statement.needs_new_snapshot`) starts a new batch. Fetches become the columns of one
SELECT, each an ARRAY of its rows.

Preparing a merged text costs more than it saves unless it is used again, so only *hot* batches are merged
(`HotBatches`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from penstock.stores.sql.catalogue import Statement, changed_tables, touched_tables

Rows = list[tuple[Any, ...]]
Writes = list[tuple[Statement, Rows]]
HOT_AFTER = 2
"""A batch that was seen more often than this, and recently, is merged."""
TRACKED_MAX = 64
_IS_WRITE = re.compile(r"^(?:INSERT INTO|UPDATE|DELETE FROM)\s")
_PARAMETER = re.compile(r"\$(\d+)")


class HotBatches:
    """Counts which batches recur on a connection; the least recently seen are forgotten."""

    def __init__(self) -> None:
        self._times: dict[tuple[Statement, ...], int] = {}

    def is_hot(self, statements: tuple[Statement, ...]) -> bool:
        """Count a batch that is about to be sent; returns whether it recurs often enough to be merged."""
        times = self._times.pop(statements, 0) + 1
        self._times[statements] = times
        if len(self._times) > TRACKED_MAX:
            del self._times[next(iter(self._times))]
        return times > HOT_AFTER


def batches(writes: Iterable[tuple[Statement, Rows]]) -> Iterator[Writes]:
    """Splits writes, in their order, into batches of independent statements."""
    batch: Writes = []
    for statement, rows in writes:
        if batch and (
            statement.needs_new_snapshot or not all(_are_independent(statement, other) for other, _ in batch)
        ):
            yield batch
            batch = []
        batch.append((statement, rows))
    if batch:
        yield batch


@lru_cache(maxsize=512)
def merged(statements: tuple[Statement, ...], end: str = "SELECT 1") -> str:
    """One text for several statements, whose parameters are concatenated; `end` takes the parameters behind them."""
    parts, taken = [], 0
    for number, statement in enumerate(statements):
        parts.append(f"w{number} AS ({_shifted(statement.sql, taken)})")
        taken += statement.parameters
    return f"WITH {', '.join(reversed(parts))} {_shifted(end, taken)}"


@lru_cache(maxsize=512)
def merge_queries(statements: tuple[Statement, ...]) -> str:
    """One text for several fetches: a single row, in which each has an array of its rows.

    A statement that is sent once per operation may occur repeatedly, with other values.
    """
    parts, taken = [], 0
    for statement in statements:
        parts.append(f"ARRAY(SELECT a_ FROM ({_shifted(statement.sql, taken)}) a_)")
        taken += statement.parameters
    return f"SELECT {', '.join(parts)}"


def values_of(writes: Iterable[tuple[Statement, Rows]]) -> list[list[Any]]:
    """The parameters of a merged statement."""
    return [values for statement, rows in writes for values in parameters_for(statement, rows)]


def parameters_for(statement: Statement, rows: Rows) -> list[list[Any]]:
    """The parameters of a statement for some rows: an array per column, or one array of rows."""
    if statement.row_type is not None:
        return [rows]
    return [list(column) for column in zip(*rows, strict=True)]


def _shifted(sql: str, by: int) -> str:
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", sql)


@lru_cache(maxsize=4096)
def _are_independent(one: Statement, other: Statement) -> bool:
    """Whether neither reads or changes a table that the other one changes, and both can be parts of one statement."""
    return all(
        _is_mergeable(each) and changed_tables(each).isdisjoint(touched_tables(beside))
        for each, beside in ((one, other), (other, one))
    )


def are_mergeable(statements: Iterable[Statement]) -> bool:
    """Whether each statement can be a part of a merged one."""
    return all(_is_mergeable(each) for each in statements)


def _is_mergeable(statement: Statement) -> bool:
    return not statement.unmerged and bool(statement.takes) and _IS_WRITE.match(statement.sql) is not None
