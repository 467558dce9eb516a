"""The session of one operation with a SQL database: it fetches rows and records writes.

An operation performs no I/O. It awaits `Fetch` values, which the store that drives its coroutine answers, and records
writes, which the store executes after the operation has returned (see `stores.group_commit`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from penstock.ports.wakeups import Topic
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.immutable_cache import ImmutableCache
from penstock.stores.sql.row_cache import CachedTable, RowCache

T = TypeVar("T")
Row = Sequence[Any]
Rows = Sequence[Row]


class Fetch(Struct, frozen=True, eq=False):
    """A statement with its values, awaited by an operation and answered by the store that drives it."""

    statement: Statement
    values: tuple[Any, ...]

    def __await__(self) -> Generator[tuple[Fetch, ...], Sequence[Rows], Rows]:
        (answer,) = yield (self,)
        return answer


class FetchAll(Struct, frozen=True, eq=False):
    """Several fetches that are answered together."""

    fetches: tuple[Fetch, ...]

    def __await__(self) -> Generator[tuple[Fetch, ...], Sequence[Rows], Sequence[Rows]]:
        if not self.fetches:
            return ()
        answers = yield self.fetches
        return answers


class Session:
    """Collects the writes of one operation, which are executed after it has returned."""

    __slots__ = (
        "_inserted_partially",
        "_row_cache",
        "_wrote",
        "cacheable",
        "journals",
        "now_ms",
        "shard",
        "statements",
        "topics",
        "writes",
    )

    def __init__(
        self,
        statements: Mapping[str, Statement],
        now_ms: int,
        shard: int = 0,
        *,
        journals: bool = False,
        row_cache: RowCache | None = None,
    ) -> None:
        self.statements = statements
        self.now_ms = now_ms
        self.writes: defaultdict[Statement, list[tuple[Any, ...]]] = defaultdict(list)
        self.topics: dict[Topic, None] = {}
        self.cacheable = ImmutableCache()
        """Immutable facts that this operation found or created; cached by the store after the commit."""
        self.journals = journals
        self._row_cache = row_cache
        """Only where one connection writes to the database."""
        self._wrote: list[tuple[Callable[[Any], None], Any]] = []
        self._inserted_partially: list[tuple[Callable[[Any], None], Any]] = []
        """Applied after `_wrote`, whatever that says about the owner."""
        self.shard = shard
        """The row in which this connection counts ended leases, so that others need not wait for it."""

    def fetch(self, name: str, *values: Any) -> Fetch:
        return Fetch(self.statements[name], values)

    def fetch_each(self, name: str, rows: Iterable[tuple[Any, ...]]) -> FetchAll:
        statement = self.statements[name]
        return FetchAll(tuple(Fetch(statement, row) for row in rows))

    async def one(self, name: str, table: CachedTable[T], key: str) -> T | None:
        """The row with an id, from the cache or the database."""
        if self._row_cache is not None and (row := self._row_cache.table_cache(table).get(key)) is not None:
            return row
        rows = await self.fetch(name, key)
        return self.cache(table, table.make(rows[0])) if rows else None

    async def many(self, name: str, table: CachedTable[T], keys: Sequence[str]) -> Sequence[T | None]:
        """The rows with some ids, from the cache or the database."""
        get = _nothing if self._row_cache is None else self._row_cache.table_cache(table).get
        found = [get(key) for key in keys]
        missing = [place for place, row in enumerate(found) if row is None]
        answers = await self.fetch_each(name, ((keys[place],) for place in missing))
        for place, rows in zip(missing, answers, strict=True):
            found[place] = self.cache(table, table.make(rows[0])) if rows else None
        return found

    async def only(self, name: str, table: CachedTable[T], owner: str) -> T | None:
        """The only live row of an owner, from the cache or the database."""
        if self._row_cache is None:
            rows = await self.fetch(name, owner)
            return table.make(rows[0]) if rows else None
        table_cache = self._row_cache.table_cache(table)
        is_known, row = table_cache.only_of(owner)
        if is_known:
            return row
        rows = await self.fetch(name, owner)
        if rows:
            return self.cache(table, table.make(rows[0]))
        table_cache.note_none(owner)
        return None

    def cached(self, table: CachedTable[T], key: str) -> T | None:
        """The row with an id, if it is cached."""
        return None if self._row_cache is None else self._row_cache.table_cache(table).get(key)

    def cache(self, table: CachedTable[T], row: T) -> T:
        """Cache a row that was just fetched."""
        if self._row_cache is not None:
            self._row_cache.table_cache(table).add(row)
        return row

    def inserted(self, table: CachedTable[T], row: T) -> None:
        """Cache a row, once its insert is executed, that was recorded with all its columns."""
        if self._row_cache is not None:
            self._wrote.append((self._row_cache.table_cache(table).add, row))

    def inserted_partially(self, table: CachedTable[T], row: T) -> None:
        """Note an inserted row of which the database fills in columns: what was cached about its owner is outdated."""
        if self._row_cache is not None:
            self._inserted_partially.append((self._row_cache.table_cache(table).forget_owner, row))

    def saved(self, table: CachedTable[T], row: T) -> None:
        """Cache a row, once its save is executed, whose mutable columns were recorded."""
        if self._row_cache is not None:
            self._wrote.append((self._row_cache.table_cache(table).update, row))

    def written(self) -> None:
        """Update the cache: the recorded writes are executed, or buffered in this transaction."""
        if self._row_cache is None:
            return
        for keep, row in (*self._wrote, *self._inserted_partially):
            keep(row)
        for statement in self.writes:
            self._row_cache.invalidate(statement)

    def record(self, name: str, *values: Any) -> None:
        self.writes[self.statements[name]].append(values)

    def wake(self, topic: Topic) -> None:
        self.topics[topic] = None


def _nothing(_: str) -> None:
    """The lookup of a session without a cache."""
