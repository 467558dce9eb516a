"""One operation's conversation with a SQL database: it asks, and it records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from penstock.ports.wakeups import Bell
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.kept import Kept, Table
from penstock.stores.sql.known import Known

T = TypeVar("T")
Row = Sequence[Any]
Rows = Sequence[Row]


class Ask(Struct, frozen=True, eq=False):
    """A question that the operation waits for; whoever drives the operation answers it."""

    statement: Statement
    values: tuple[Any, ...]

    def __await__(self) -> Generator[tuple[Ask, ...], Sequence[Rows], Rows]:
        (answer,) = yield (self,)
        return answer


class AskAll(Struct, frozen=True, eq=False):
    """Several questions at once, answered together."""

    asks: tuple[Ask, ...]

    def __await__(self) -> Generator[tuple[Ask, ...], Sequence[Rows], Sequence[Rows]]:
        if not self.asks:
            return ()
        answers = yield self.asks
        return answers


class Session:
    """Collects what one operation records, to be written when it has ended well."""

    __slots__ = (
        "_appeared",
        "_kept",
        "_wrote",
        "bells",
        "journals",
        "learned",
        "now_ms",
        "shard",
        "statements",
        "writes",
    )

    def __init__(
        self,
        statements: Mapping[str, Statement],
        now_ms: int,
        shard: int = 0,
        *,
        journals: bool = False,
        kept: Kept | None = None,
    ) -> None:
        self.statements = statements
        self.now_ms = now_ms
        self.writes: defaultdict[Statement, list[tuple[Any, ...]]] = defaultdict(list)
        self.bells: dict[Bell, None] = {}
        self.learned = Known()
        """What this operation found or made, and what may be remembered once it is committed."""
        self.journals = journals
        self._kept = kept
        """Rows at hand, where nobody else writes."""
        self._wrote: list[tuple[Callable[[Any], None], Any]] = []
        self._appeared: list[tuple[Callable[[Any], None], Any]] = []
        """What there is anew, whatever else was said of its owner."""
        self.shard = shard
        """Where this connection counts what ends, so that others need not wait for it."""

    def ask(self, name: str, *values: Any) -> Ask:
        return Ask(self.statements[name], values)

    def ask_each(self, name: str, rows: Iterable[tuple[Any, ...]]) -> AskAll:
        statement = self.statements[name]
        return AskAll(tuple(Ask(statement, row) for row in rows))

    async def one(self, name: str, table: Table[T], key: str) -> T | None:
        """The row that has an id, from the database if it is not at hand."""
        if self._kept is not None and (row := self._kept.shelf(table).get(key)) is not None:
            return row
        rows = await self.ask(name, key)
        return self.read(table, table.make(rows[0])) if rows else None

    async def many(self, name: str, table: Table[T], keys: Sequence[str]) -> Sequence[T | None]:
        """The rows that have some ids, those from the database that are not at hand."""
        get = _nothing if self._kept is None else self._kept.shelf(table).get
        found = [get(key) for key in keys]
        missing = [place for place, row in enumerate(found) if row is None]
        answers = await self.ask_each(name, ((keys[place],) for place in missing))
        for place, rows in zip(missing, answers, strict=True):
            found[place] = self.read(table, table.make(rows[0])) if rows else None
        return found

    async def only(self, name: str, table: Table[T], owner: str) -> T | None:
        """The row that is an owner's only one, from the database if that is not known."""
        if self._kept is None:
            rows = await self.ask(name, owner)
            return table.make(rows[0]) if rows else None
        shelf = self._kept.shelf(table)
        is_known, row = shelf.only_of(owner)
        if is_known:
            return row
        rows = await self.ask(name, owner)
        if rows:
            return self.read(table, table.make(rows[0]))
        shelf.none_of(owner)
        return None

    def at_hand(self, table: Table[T], key: str) -> T | None:
        """The row as the database has it, if that is known without asking."""
        return None if self._kept is None else self._kept.shelf(table).get(key)

    def read(self, table: Table[T], row: T) -> T:
        """Have a row at hand that the database just answered."""
        if self._kept is not None:
            self._kept.shelf(table).add(row)
        return row

    def inserted(self, table: Table[T], row: T) -> None:
        """Have a row at hand, once it is written, that was recorded whole."""
        if self._kept is not None:
            self._wrote.append((self._kept.shelf(table).add, row))

    def appeared(self, table: Table[T], row: T) -> None:
        """Know, once it is written, that there is a row of which the database alone knows the whole."""
        if self._kept is not None:
            self._appeared.append((self._kept.shelf(table).appear, row))

    def saved(self, table: Table[T], row: T) -> None:
        """Have a row at hand, once it is written, of which the columns that change were recorded."""
        if self._kept is not None:
            self._wrote.append((self._kept.shelf(table).change, row))

    def written(self) -> None:
        """All that was recorded is in the database."""
        if self._kept is None:
            return
        for keep, row in (*self._wrote, *self._appeared):
            keep(row)
        for statement in self.writes:
            for shelf in self._kept.disturbed_by.get(statement, ()):
                shelf.forget_all()

    def record(self, name: str, *values: Any) -> None:
        self.writes[self.statements[name]].append(values)

    def wake(self, bell: Bell) -> None:
        self.bells[bell] = None


def _nothing(_: str) -> None:
    """What is at hand where others write, too."""
