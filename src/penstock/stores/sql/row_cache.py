"""Rows at hand: what the one writer of a database read or wrote last, so that it need not read it again.

Only who alone writes to a database can go by them. They are what its transaction would read, also before the commit;
when a transaction is taken back, or somebody else changed the database, all of them are forgotten. A statement that
changes rows without saying which, and to what, makes its table forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

from penstock.stores.sql.catalogue import Statement

T = TypeVar("T")
ROWS_MAX = 1024
"""So many rows of a table are kept, and at most as many that were used before them."""
SIZE_MAX = 4096
"""A row that is larger is not kept."""
_CHANGED = re.compile(r"\b(?:UPDATE|INTO|DELETE FROM)\s+(\w+)")


def length_of(*texts: str) -> Callable[[object], int]:
    """The length of some columns that hold text, or nothing."""
    values = attrgetter(*texts)
    return lambda row: sum(map(len, filter(None, values(row))))


class CachedTable(Generic[T]):
    """What is kept of a table: rows whose first column is their id."""

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        changing: Iterable[str],
        make: Callable[[Sequence[Any]], T],
        *,
        size: Callable[[T], int],
        is_over: Callable[[T], bool],
        told: Iterable[str],
        owner_of: Callable[[T], str | None] = lambda _: None,
    ) -> None:
        self.name = name
        self.id_of: Callable[[T], str] = attrgetter(columns[0])
        self.fixed = attrgetter(*(set(columns) - set(changing)))
        """The columns that are written but once."""
        self.make = make
        """The value of a row as it is read, which has its number before the columns."""
        self.size = size
        """How much a row holds, in characters, of what may be large."""
        self.is_over = is_over
        """Whether a row will hardly be asked for again."""
        self.told = frozenset(told)
        """The statements by which single rows are written, each told to the shelf; the first column is the id."""
        self.owner_of = owner_of
        """Whose only row it is, of those that are not over; None: one of several."""


class _TwoGenerationCache(Generic[T]):
    """Values by their keys; those that nobody has used of late go."""

    __slots__ = ("_new", "_old")

    def __init__(self) -> None:
        self._new: dict[str, T] = {}
        self._old: dict[str, T] = {}

    def get(self, key: str) -> T | None:
        value = self._new.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: str, value: T) -> None:
        if len(self._new) >= ROWS_MAX:
            self._old, self._new = self._new, {}
        self._new[key] = value

    def forget(self, key: str) -> None:
        self._new.pop(key, None)
        self._old.pop(key, None)

    def forget_all(self) -> None:
        self._new.clear()
        self._old.clear()

    def all(self) -> dict[str, T]:
        return self._old | self._new


class TableCache(Generic[T]):
    """Rows of one table by their ids, and of each owner which row is its only one."""

    __slots__ = ("_only", "_rows", "table")

    def __init__(self, table: CachedTable[T]) -> None:
        self.table = table
        self._rows: _TwoGenerationCache[T] = _TwoGenerationCache()
        self._only: _TwoGenerationCache[str] = _TwoGenerationCache()
        """The id, or nothing where an owner has none."""

    def get(self, key: str) -> T | None:
        return self._rows.get(key)

    def only_of(self, owner: str) -> tuple[bool, T | None]:
        """Whether it is known, and the row; None: the owner has none."""
        key = self._only.get(owner)
        if not key:
            return key is not None, None
        row = self._rows.get(key)
        return row is not None, row

    def none_of(self, owner: str) -> None:
        """Know that an owner has no row."""
        self._only.put(owner, "")

    def add(self, row: T) -> None:
        """Keep a row that was read, or written whole. One that is over says nothing of others of its owner."""
        table, key = self.table, self.table.id_of(row)
        if table.is_over(row):
            self._rows.forget(key)
        elif table.size(row) > SIZE_MAX:
            self._rows.forget(key)
            self.appear(row)
        else:
            self._rows.put(key, row)
            if (owner := table.owner_of(row)) is not None:
                self._only.put(owner, key)

    def change(self, row: T) -> None:
        """Keep a row of which the columns that change were written; if others differ, the database has not got them."""
        table, key = self.table, self.table.id_of(row)
        before = self._rows.get(key)
        if before is None:
            self.appear(row)
        elif table.is_over(row):
            self._rows.forget(key)
            if (owner := table.owner_of(row)) is not None:
                self.none_of(owner)
        elif table.fixed(before) == table.fixed(row):
            self.add(row)
        else:
            self._rows.forget(key)
            self.appear(row)

    def appear(self, row: T) -> None:
        """Know that a row was written which is not known as a whole."""
        if (owner := self.table.owner_of(row)) is not None:
            self._only.forget(owner)

    def forget_all(self) -> None:
        self._rows.forget_all()
        self._only.forget_all()

    def rows(self) -> Mapping[str, T]:
        """All that is at hand."""
        return self._rows.all()

    def only(self) -> Mapping[str, str]:
        """All owners of whom something is known: the id of their row, or nothing."""
        return self._only.all()


class RowCache:
    """The shelves of one writer."""

    def __init__(self, tables: Iterable[CachedTable[Any]], statements: Iterable[Statement]) -> None:
        self._shelves: dict[CachedTable[Any], TableCache[Any]] = {
            table: TableCache(table) for table in tables
        }
        self.invalidated_by = {
            statement: disturbed for statement in statements if (disturbed := self._disturbed(statement))
        }
        """The statements that change rows without telling, and the shelves of their tables."""

    def table_cache(self, table: CachedTable[T]) -> TableCache[T]:
        return self._shelves[table]

    def forget_all(self) -> None:
        for table_cache in self._shelves.values():
            table_cache.forget_all()

    def _disturbed(self, statement: Statement) -> tuple[TableCache[Any], ...]:
        changed = set(_CHANGED.findall(statement.sql))
        shelves = self._shelves.values()
        return tuple(
            each for each in shelves if each.table.name in changed and statement.name not in each.table.told
        )
