"""The session of one operation with a SQL database, and the repositories through which the operation uses it.

An operation performs no I/O. It awaits fetches, which the store that drives its coroutine answers, and records writes,
which the store executes after the operation has returned (see `stores.group_commit`). Every write is one call:
`record`, or `save` for a row of a cached table, which also has the row cache updated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from types import coroutine
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from penstock.core.model import TaskId
from penstock.ports.wakeups import Topic
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.row_cache import NO_ROW_CACHE, CachedTable, ImmutableCache, RowCache

T = TypeVar("T")
R = TypeVar("R")
Row = Sequence[Any]
Rows = Sequence[Row]


class Fetch(Struct, frozen=True):
    """A statement with its values, which the store that drives an operation executes.

    Equal fetches of one snapshot have equal rows (`ports.gather.remembering`).
    """

    statement: Statement
    values: tuple[Any, ...]


@coroutine
def fetch_all(fetches: Sequence[Fetch]) -> Generator[tuple[Fetch, ...], Sequence[Rows], Sequence[Rows]]:
    """The rows of several fetches, which are answered together."""
    return (yield (*fetches,)) if fetches else ()


class Session:
    """Fetches the rows of one operation and collects its writes, which are executed after it has returned.

    Args:
        statements: the statements of the database, by name.
        now_ms: the time of the transaction.
        immutable: the committed facts that never change.
        shard: the row in which this connection counts ended leases, so that others need not wait for it.
        journals: whether transitions are written to the journal.
        row_cache: the cached rows, where one connection writes to the database.
    """

    __slots__ = (
        "cacheable",
        "effects",
        "ended_task",
        "immutable",
        "journals",
        "now_ms",
        "ready_lines",
        "row_cache",
        "shard",
        "statements",
        "topics",
        "writes",
    )

    def __init__(
        self,
        statements: Mapping[str, Statement],
        now_ms: int,
        immutable: ImmutableCache,
        shard: int = 0,
        *,
        journals: bool = False,
        row_cache: RowCache = NO_ROW_CACHE,
    ) -> None:
        self.statements = statements
        self.now_ms = now_ms
        self.immutable = immutable
        self.cacheable = ImmutableCache()
        """Immutable facts that this operation found or created; cached by the store after the commit."""
        self.shard = shard
        self.journals = journals
        self.row_cache = row_cache
        self.writes: defaultdict[Statement, list[tuple[Any, ...]]] = defaultdict(list)
        self.effects: list[tuple[Callable[[Any], None], Any]] = []
        """What the writes change in the row cache, once they are executed or buffered in this transaction."""
        self.topics: dict[Topic, None] = {}
        self.ended_task: TaskId | None = None
        """The task whose lease ended in this operation, which is the cause of what becomes ready in it."""
        self.ready_lines: Sequence[tuple[int, Mapping[str, Any]]] = ()
        """Lines of the journal that still lack their cause, by their place among its rows."""

    @coroutine
    def fetch(self, name: str, *values: Any) -> Generator[tuple[Fetch], Sequence[Rows], Rows]:
        """The rows of a statement."""
        (answer,) = yield (Fetch(self.statements[name], values),)
        return answer

    @coroutine
    def fetch_each(
        self, name: str, rows: Iterable[tuple[Any, ...]]
    ) -> Generator[tuple[Fetch, ...], Sequence[Rows], Sequence[Rows]]:
        """The rows of a statement for each of several values."""
        statement = self.statements[name]
        fetches = tuple(Fetch(statement, row) for row in rows)
        return (yield fetches) if fetches else ()

    def record(self, name: str, *values: Any) -> None:
        """Record a write."""
        self.writes[self.statements[name]].append(values)

    def save(self, name: str, row: object, values: tuple[Any, ...]) -> None:
        """Record the write of a row of a cached table."""
        self.writes[self.statements[name]].append(values)
        if (effect := self.row_cache.effects.get(name)) is not None:
            self.effects.append((effect, row))

    def wake(self, topic: Topic) -> None:
        self.topics[topic] = None


class ReadOnlySession(Session):
    """A session whose operation may fetch but not write."""

    def record(self, name: str, *values: Any) -> None:
        raise RuntimeError(f"a read tried to record {name!r}: use transact")

    def save(self, name: str, row: object, values: tuple[Any, ...]) -> None:
        self.record(name, *values)


class Repository(Struct):
    """The statements of one noun, over the session of an operation."""

    _session: Session


class CachedRepository(Repository, Generic[T]):
    """A repository whose rows the writer caches: a read by id is a fetch only if the row is not cached."""

    _table: ClassVar[CachedTable[Any]]

    async def get(self, key: str) -> T | None:
        return await self._one(self._table.read_by, key)

    async def get_many(self, keys: Sequence[str]) -> Sequence[T | None]:
        table, cached = self._table, self._session.row_cache.tables.get(self._table)
        found = [None] * len(keys) if cached is None else [cached.get(key) for key in keys]
        missing = [place for place, row in enumerate(found) if row is None]
        answers = await self._session.fetch_each(table.read_by, [(keys[place],) for place in missing])
        for place, rows in zip(missing, answers, strict=True):
            if rows:
                found[place] = row = table.make(rows[0])
                if cached is not None:
                    cached.add(row)
        return found

    async def _one(self, name: str, key: str) -> T | None:
        """The row with an id, from the cache or by a statement."""
        table, cached = self._table, self._session.row_cache.tables.get(self._table)
        row: T | None = None if cached is None else cached.get(key)
        if row is None and (rows := await self._session.fetch(name, key)):
            row = table.make(rows[0])
            if cached is not None:
                cached.add(row)
        return row


class RepositoryAttribute(Generic[R]):
    """An attribute of a transaction: the repository of one noun, created when it is first used."""

    def __init__(self, kind: Callable[[Session], R]) -> None:
        self._kind = kind

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, tx: _HasSession, kind: type[Any]) -> R:
        repository = tx.__dict__[self._name] = self._kind(tx.session)
        return repository


class _HasSession(Protocol):
    session: Session
