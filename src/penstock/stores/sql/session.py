"""One operation's conversation with a SQL database: it asks, and it records."""

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
    """A question that the operation waits for; whoever drives the operation answers it."""

    statement: Statement
    values: tuple[Any, ...]

    def __await__(self) -> Generator[tuple[Fetch, ...], Sequence[Rows], Rows]:
        (answer,) = yield (self,)
        return answer


class FetchAll(Struct, frozen=True, eq=False):
    """Several questions at once, answered together."""

    fetches: tuple[Fetch, ...]

    def __await__(self) -> Generator[tuple[Fetch, ...], Sequence[Rows], Sequence[Rows]]:
        if not self.fetches:
            return ()
        answers = yield self.fetches
        return answers


class Session:
    """Collects what one operation records, to be written when it has ended well."""

    __slots__ = (
        "_appeared",
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
        """What this operation found or made, and what may be remembered once it is committed."""
        self.journals = journals
        self._row_cache = row_cache
        """Rows at hand, where nobody else writes."""
        self._wrote: list[tuple[Callable[[Any], None], Any]] = []
        self._appeared: list[tuple[Callable[[Any], None], Any]] = []
        """What there is anew, whatever else was said of its owner."""
        self.shard = shard
        """Where this connection counts what ends, so that others need not wait for it."""

    def fetch(self, name: str, *values: Any) -> Fetch:
        return Fetch(self.statements[name], values)

    def fetch_each(self, name: str, rows: Iterable[tuple[Any, ...]]) -> FetchAll:
        statement = self.statements[name]
        return FetchAll(tuple(Fetch(statement, row) for row in rows))

    async def one(self, name: str, table: CachedTable[T], key: str) -> T | None:
        """The row that has an id, from the database if it is not at hand."""
        if self._row_cache is not None and (row := self._row_cache.table_cache(table).get(key)) is not None:
            return row
        rows = await self.fetch(name, key)
        return self.read(table, table.make(rows[0])) if rows else None

    async def many(self, name: str, table: CachedTable[T], keys: Sequence[str]) -> Sequence[T | None]:
        """The rows that have some ids, those from the database that are not at hand."""
        get = _nothing if self._row_cache is None else self._row_cache.table_cache(table).get
        found = [get(key) for key in keys]
        missing = [place for place, row in enumerate(found) if row is None]
        answers = await self.fetch_each(name, ((keys[place],) for place in missing))
        for place, rows in zip(missing, answers, strict=True):
            found[place] = self.read(table, table.make(rows[0])) if rows else None
        return found

    async def only(self, name: str, table: CachedTable[T], owner: str) -> T | None:
        """The row that is an owner's only one, from the database if that is not known."""
        if self._row_cache is None:
            rows = await self.fetch(name, owner)
            return table.make(rows[0]) if rows else None
        table_cache = self._row_cache.table_cache(table)
        is_known, row = table_cache.only_of(owner)
        if is_known:
            return row
        rows = await self.fetch(name, owner)
        if rows:
            return self.read(table, table.make(rows[0]))
        table_cache.none_of(owner)
        return None

    def cached(self, table: CachedTable[T], key: str) -> T | None:
        """The row as the database has it, if that is known without asking."""
        return None if self._row_cache is None else self._row_cache.table_cache(table).get(key)

    def read(self, table: CachedTable[T], row: T) -> T:
        """Have a row at hand that the database just answered."""
        if self._row_cache is not None:
            self._row_cache.table_cache(table).add(row)
        return row

    def inserted(self, table: CachedTable[T], row: T) -> None:
        """Have a row at hand, once it is written, that was recorded whole."""
        if self._row_cache is not None:
            self._wrote.append((self._row_cache.table_cache(table).add, row))

    def inserted_partially(self, table: CachedTable[T], row: T) -> None:
        """Know, once it is written, that there is a row of which the database alone knows the whole."""
        if self._row_cache is not None:
            self._appeared.append((self._row_cache.table_cache(table).appear, row))

    def saved(self, table: CachedTable[T], row: T) -> None:
        """Have a row at hand, once it is written, of which the columns that change were recorded."""
        if self._row_cache is not None:
            self._wrote.append((self._row_cache.table_cache(table).change, row))

    def written(self) -> None:
        """All that was recorded is in the database."""
        if self._row_cache is None:
            return
        for keep, row in (*self._wrote, *self._appeared):
            keep(row)
        for statement in self.writes:
            for table_cache in self._row_cache.invalidated_by.get(statement, ()):
                table_cache.forget_all()

    def record(self, name: str, *values: Any) -> None:
        self.writes[self.statements[name]].append(values)

    def wake(self, topic: Topic) -> None:
        self.topics[topic] = None


def _nothing(_: str) -> None:
    """What is at hand where others write, too."""
