"""Writes of one transaction that travel as one statement, where none of them touches what another one changes; and
questions that travel as one.

Each keeps its own text, as a part of a `WITH` of which all parts are carried out. PostgreSQL carries such parts out
from the last to the first: they are listed backwards, so that rows are locked in the order that every node keeps.

All parts see one moment, that at which the first began. A part that waits for a row changes it as it is then; but rows
that others committed meanwhile are not found by the parts behind it. A statement that must find them goes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from penstock.stores.sql.catalogue import Statement

Rows = list[tuple[Any, ...]]
Writes = list[tuple[Statement, Rows]]
HOT_AFTER = 2
"""A batch that has come more often than this, and not long ago, is sent as one statement."""
TRACKED_MAX = 64
_CHANGES = re.compile(r"^(?:INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)")
_TOUCHES = re.compile(r"\b(?:INTO|UPDATE|FROM|JOIN|USING)\s+(\w+)")
_PARAMETER = re.compile(r"\$(\d+)")


class HotBatches:
    """Which batches come often on a connection: to prepare a text for one that does not costs more than it saves."""

    def __init__(self) -> None:
        self._times: dict[tuple[Statement, ...], int] = {}

    def is_hot(self, statements: tuple[Statement, ...]) -> bool:
        """Whether a batch, which has come now, is one of the usual ones."""
        times = self._times.pop(statements, 0) + 1
        self._times[statements] = times
        if len(self._times) > TRACKED_MAX:
            del self._times[next(iter(self._times))]
        return times > HOT_AFTER


def batches(writes: Iterable[tuple[Statement, Rows]]) -> Iterator[Writes]:
    """Writes in their order, as many together as can be."""
    batch: Writes = []
    for statement, rows in writes:
        if batch and (statement.looks or not all(_are_independent(statement, other) for other, _ in batch)):
            yield batch
            batch = []
        batch.append((statement, rows))
    if batch:
        yield batch


@lru_cache(maxsize=512)
def merged(statements: tuple[Statement, ...], end: str = "SELECT 1") -> str:
    """One text for several; what each takes stands behind what those before it take, and `end` takes what is left."""
    parts, taken = [], 0
    for number, statement in enumerate(statements):
        parts.append(f"w{number} AS ({_moved(statement.sql, taken)})")
        taken += statement.parameters
    return f"WITH {', '.join(reversed(parts))} {_moved(end, taken)}"


@lru_cache(maxsize=512)
def merge_queries(statements: tuple[Statement, ...]) -> str:
    """One text that answers several questions: one row, in which each has a list of its rows."""
    parts, taken = [], 0
    for statement in statements:
        parts.append(f"ARRAY(SELECT a_ FROM ({_moved(statement.sql, taken)}) a_)")
        taken += statement.parameters
    return f"SELECT {', '.join(parts)}"


def values_of(writes: Iterable[tuple[Statement, Rows]]) -> list[list[Any]]:
    """What a merged statement is given: what each of its parts is given."""
    return [values for statement, rows in writes for values in parameters_for(statement, rows)]


def parameters_for(statement: Statement, rows: Rows) -> list[list[Any]]:
    """What a statement is given for some rows: their columns, or the rows as they are."""
    if statement.row_type is not None:
        return [rows]
    return [list(column) for column in zip(*rows, strict=True)]


def _moved(sql: str, by: int) -> str:
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", sql)


@lru_cache(maxsize=4096)
def _are_independent(one: Statement, other: Statement) -> bool:
    """Whether neither reads or changes what the other one changes, and both can be parts of one statement."""
    return all(
        _is_mergeable(each) and _changed(each) not in _touched(beside)
        for each, beside in ((one, other), (other, one))
    )


def are_mergeable(statements: Iterable[Statement]) -> bool:
    """Whether each of them can be a part of a greater statement."""
    return all(_is_mergeable(each) for each in statements)


def _is_mergeable(statement: Statement) -> bool:
    return not statement.alone and bool(statement.takes) and _CHANGES.match(statement.sql) is not None


def _changed(statement: Statement) -> str:
    found = _CHANGES.match(statement.sql)
    return found[1] if found else ""


def _touched(statement: Statement) -> frozenset[str]:
    return frozenset(_TOUCHES.findall(statement.sql))
