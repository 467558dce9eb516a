"""Writes of operations that have ended, kept back within their transaction so that equal ones are carried out together.

Nobody notices: what a question looks at is written before it is asked, and writes whose order matters keep it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.row_cache import CachedTable

Rows = list[tuple[Any, ...]]
_CHANGED = re.compile(r"\b(?:UPDATE|INTO|DELETE FROM)\s+(\w+)")
_TOUCHED = re.compile(r"\b(?:UPDATE|INTO|FROM|JOIN)\s+(\w+)")


class _Late(NamedTuple):
    """Statements that come too late while a write is kept back: carried out with it, they would be before it."""

    always: frozenset[Statement]
    of_its_rows: frozenset[Statement]
    """These only where they name a row that it names."""


class WriteBuffer:
    """What is to be written, in the one order that all writes keep."""

    def __init__(self, statements: Iterable[Statement], tables: Iterable[CachedTable[Any]]) -> None:
        self._statements = tuple(statements)
        self._tables = {name: table.name for table in tables for name in table.told}
        self._lates: dict[Statement, _Late] = {}
        self._writes: dict[Statement, Rows] = {}
        self._changed: set[str] = set()
        self._touched: set[str] = set()
        self._late: set[Statement] = set()
        self._late_ids: defaultdict[Statement, set[str]] = defaultdict(set)

    def must_flush_before(self, question: Statement) -> bool:
        """Whether it must be asked after these writes."""
        if not self._writes:
            return False
        return not self._changed.isdisjoint(touched_by(question)) or not self._touched.isdisjoint(
            changed_by(question)
        )

    def can_append(self, writes: Mapping[Statement, Rows]) -> bool:
        """Whether an operation's writes can wait with these: no row is written in another order than it was said."""
        for statement, rows in writes.items():
            if statement in self._late:
                return False
            ids = self._late_ids.get(statement)
            if ids and any(row[0] in ids for row in rows):
                return False
        return True

    def add(self, writes: Mapping[Statement, Rows]) -> None:
        for statement, rows in writes.items():
            late = self._lates.get(statement) or self._late_of(statement)
            if (row_cache := self._writes.get(statement)) is not None:
                row_cache.extend(rows)
            else:
                self._writes[statement] = [*rows]
                self._changed |= changed_by(statement)
                self._touched |= touched_by(statement)
                self._late |= late.always
            for other in late.of_its_rows:
                self._late_ids[other].update(row[0] for row in rows)

    def drain(self) -> list[tuple[Statement, Rows]]:
        """All of them, to be carried out now."""
        writes = sorted(self._writes.items(), key=lambda each: each[0].rank)
        self.clear()
        return [(each, coalesced(rows) if each.coalesces else rows) for each, rows in writes]

    def clear(self) -> None:
        self._writes = {}
        self._changed.clear()
        self._touched.clear()
        self._late.clear()
        self._late_ids.clear()

    def _late_of(self, statement: Statement) -> _Late:
        table = self._tables.get(statement.name)
        before = [each for each in self._statements if each.rank < statement.rank and _meet(each, statement)]
        of_its_rows = frozenset(each for each in before if table and self._tables.get(each.name) == table)
        found = self._lates[statement] = _Late(frozenset(before) - of_its_rows, of_its_rows)
        return found


def coalesced(rows: Iterable[tuple[Any, ...]]) -> Rows:
    """Equal rows as one, with their number; those that differ in their last column alone stay in their order."""
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


@lru_cache(maxsize=1024)
def touched_by(statement: Statement) -> frozenset[str]:
    """The tables that it reads or changes, and perhaps words that name none."""
    return frozenset(_TOUCHED.findall(statement.sql))


@lru_cache(maxsize=1024)
def changed_by(statement: Statement) -> frozenset[str]:
    """The tables that it changes, and perhaps words that name none."""
    return frozenset(_CHANGED.findall(statement.sql)) - {"SET"}


def _meet(one: Statement, other: Statement) -> bool:
    """Whether one of them touches what the other one changes."""
    return not (
        changed_by(one).isdisjoint(touched_by(other)) and changed_by(other).isdisjoint(touched_by(one))
    )
