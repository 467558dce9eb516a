"""What a store keeps of its database in memory: the rows of a single writer, and facts that never change.

Theory of operation
-------------------
A report of a task reads the run, the task and the activity that the same connection wrote a moment before; reading
them and decoding them again was a third of a completion. One process owns a SQLite file (a lock file sees to that)
and writes through one connection, so it can keep what it read or wrote last. The cache holds rows *as the open
transaction sees them*, which includes writes that are still in the write buffer.

Per table there is a `TableCache`: rows by id, and for tables with at most one live row per owner (the workflow task
of a run) the id of that row, or the knowledge that there is none. Both are two-generation caches, an approximation of
LRU without a linked list: new entries go into the young generation; when it is full it becomes the old one, and the
old one is dropped; a hit in the old generation is copied back. At most 2 * `ROWS_MAX` rows are kept per table, none
larger than `SIZE_MAX` characters, and none that is finished and so will hardly be read again.

Invalidation, in the order of likelihood:
- A save writes the mutable columns only. Its row is cached if the immutable ones equal those that were cached before;
  otherwise the database has other values, and the entry is dropped.
- An insert that leaves columns to the database (the sequence number of a task) drops what was known about its owner.
- A statement that changes rows without naming each by id, and is not one of `CachedTable.written_by`, clears the
  tables that it changes (`RowCache.invalidate`).
- A rollback, a failed commit, or a write by another process (`PRAGMA data_version` differs) clears everything.

Invariant: an entry equals what a SELECT in the same transaction would return. The test suite compares both after
every group commit (`tests/support/checked_store.py`), in random programs too, and asks SQLite's authorizer which
tables each statement writes.

Rejected: the same on PostgreSQL, where other servers write the same rows; a cache of rows that are read only (most
reads are of open runs, which change all the time); a real LRU (twice the cost per hit in Python).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from penstock.core.limits.admission import Admission
from penstock.core.model import Queue
from penstock.stores.sql.catalogue import Statement, changed_tables

T = TypeVar("T")
ROWS_MAX = 1024
"""Rows of a table in one generation."""
SIZE_MAX = 4096
"""Larger rows are not cached."""


def length_of(*texts: str) -> Callable[[object], int]:
    """A function that adds up the lengths of some text columns; NULL counts as 0."""
    values = attrgetter(*texts)
    return lambda row: sum(map(len, filter(None, values(row))))


class CachedTable(Generic[T]):
    """A table whose rows are cached by their first column.

    Args:
        name: the table in the database.
        read_by: the statement that fetches a row by its id.
        columns: all columns, the id first.
        mutable: the columns that a save writes.
        make: turns a fetched row, which has its number before the columns, into a value.
        size: the size of a value, in characters, of what may be large.
        is_finished: whether a value will hardly be read again.
        written_by: the statements that write single rows, named by id in their first column, and what each does to
            the cache.
        owner_of: the owner whose only live row a value is; None if it is one of several.
    """

    def __init__(
        self,
        name: str,
        read_by: str,
        columns: Sequence[str],
        mutable: Iterable[str],
        make: Callable[[Sequence[Any]], T],
        *,
        size: Callable[[T], int],
        is_finished: Callable[[T], bool],
        written_by: Mapping[str, Callable[[TableCache[T], T], None]],
        owner_of: Callable[[T], str | None] = lambda _: None,
    ) -> None:
        self.name = name
        self.read_by = read_by
        self.id_of: Callable[[T], str] = attrgetter(columns[0])
        self.immutable = attrgetter(*(set(columns) - set(mutable)))
        self.make = make
        self.size = size
        self.is_finished = is_finished
        self.written_by = written_by
        self.owner_of = owner_of


class _TwoGenerationCache(Generic[T]):
    """A bounded mapping that drops what was not used for a while."""

    __slots__ = ("_old", "_young")

    def __init__(self) -> None:
        self._young: dict[str, T] = {}
        self._old: dict[str, T] = {}

    def get(self, key: str) -> T | None:
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: str, value: T) -> None:
        if len(self._young) >= ROWS_MAX:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def drop(self, key: str) -> None:
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        self._young.clear()
        self._old.clear()

    def all(self) -> dict[str, T]:
        return self._old | self._young


class TableCache(Generic[T]):
    """The cached rows of one table, and the only live row of each owner."""

    __slots__ = ("_only", "_rows", "get", "table")

    def __init__(self, table: CachedTable[T]) -> None:
        self.table = table
        self._rows: _TwoGenerationCache[T] = _TwoGenerationCache()
        self.get = self._rows.get
        self._only: _TwoGenerationCache[str] = _TwoGenerationCache()
        """The id of the row by owner; empty if the owner has none."""

    def only_of(self, owner: str) -> tuple[bool, T | None]:
        """Whether the cache knows, and the only live row of an owner; None if it has none."""
        key = self._only.get(owner)
        if not key:
            return key is not None, None
        row = self._rows.get(key)
        return row is not None, row

    def note_none(self, owner: str) -> None:
        """Remember that an owner has no live row."""
        self._only.put(owner, "")

    def add(self, row: T) -> None:
        """Cache a row that was read, or inserted with all its columns."""
        table, key = self.table, self.table.id_of(row)
        if table.is_finished(row):  # says nothing about other rows of its owner
            self._rows.drop(key)
        elif table.size(row) > SIZE_MAX:
            self._rows.drop(key)
            self.forget_owner(row)
        else:
            self._rows.put(key, row)
            if (owner := table.owner_of(row)) is not None:
                self._only.put(owner, key)

    def update(self, row: T) -> None:
        """Cache a row whose mutable columns were saved, if its other columns are those of the database."""
        table, key = self.table, self.table.id_of(row)
        before = self._rows.get(key)
        if before is None:
            self.forget_owner(row)
        elif table.is_finished(row):
            self._rows.drop(key)
            if (owner := table.owner_of(row)) is not None and self._only.get(owner) == key:
                self.note_none(owner)
        elif table.immutable(before) == table.immutable(row):
            self.add(row)
        else:
            self._rows.drop(key)
            self.forget_owner(row)

    def forget_owner(self, row: T) -> None:
        """Forget which row is the only one of an owner: a row was written that is not known completely."""
        if (owner := self.table.owner_of(row)) is not None:
            self._only.drop(owner)

    def clear(self) -> None:
        self._rows.clear()
        self._only.clear()

    def rows(self) -> Mapping[str, T]:
        """All cached rows by id."""
        return self._rows.all()

    def only(self) -> Mapping[str, str]:
        """The id of the only live row by owner; empty where the owner has none."""
        return self._only.all()


class RowCache:
    """The table caches of one writer."""

    def __init__(self, tables: Sequence[CachedTable[Any]], statements: Iterable[Statement]) -> None:
        self.tables: dict[CachedTable[Any], TableCache[Any]] = {table: TableCache(table) for table in tables}
        self.effects: dict[str, Callable[[Any], None]] = {
            name: partial(effect, self.tables[table])
            for table in tables
            for name, effect in table.written_by.items()
        }
        """By statement: what a row that it has written changes here."""
        names = {table.name for table in tables}
        self.invalidated_by = {
            statement: stale
            for statement in statements
            if not names.isdisjoint(changed_tables(statement)) and (stale := self._invalidated(statement))
        }
        """The statements that change rows which they do not name, and the caches of their tables."""

    def invalidate(self, statements: Iterable[Statement]) -> None:
        """Clear what some statements may have changed."""
        for statement in statements:
            for cache in self.invalidated_by.get(statement, ()):
                cache.clear()

    def clear(self) -> None:
        for cache in self.tables.values():
            cache.clear()

    def _invalidated(self, statement: Statement) -> tuple[TableCache[Any], ...]:
        changed = changed_tables(statement)
        return tuple(
            each
            for each in self.tables.values()
            if each.table.name in changed and statement.name not in each.table.written_by
        )


NO_ROW_CACHE = RowCache((), ())
"""Where others write to the same database, no row is cached."""

QueueName = tuple[str, str, str]
ADMISSIONS_MAX = 64


class ImmutableCache(Struct, frozen=True):
    """Facts that never change once they are committed, shared by all operations of a store on any database."""

    queues: dict[QueueName, Queue] = field(default_factory=dict)
    """By namespace, name and kind; only their identity is immutable, not their settings."""
    scopes: dict[str, int] = field(default_factory=dict)
    """The ids of scopes by name."""
    admissions: dict[str, Admission] = field(default_factory=dict)
    """The limits in force, by the stamp of the queues that use them."""

    def remember(self, other: ImmutableCache) -> None:
        """Add what an operation found or created, now that it is committed."""
        self.queues.update(other.queues)
        self.scopes.update(other.scopes)
        self.admissions.update(other.admissions)
        while len(self.admissions) > ADMISSIONS_MAX:
            del self.admissions[next(iter(self.admissions))]
