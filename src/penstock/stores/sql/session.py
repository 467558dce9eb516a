"""One operation's conversation with a SQL database: it asks, and it records."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence
from typing import Any

from penstock.ports.wakeups import Bell
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.known import Known

Row = Sequence[Any]
Rows = Sequence[Row]


class Ask(Awaitable[Rows]):
    """A question that the operation waits for; whoever drives the operation answers it."""

    __slots__ = ("statement", "values")

    def __init__(self, statement: Statement, values: tuple[Any, ...]) -> None:
        self.statement = statement
        self.values = values

    def __await__(self) -> Generator[tuple[Ask, ...], Sequence[Rows], Rows]:
        (answer,) = yield (self,)
        return answer


class AskAll(Awaitable[Sequence[Rows]]):
    """Several questions at once, answered together."""

    __slots__ = ("asks",)

    def __init__(self, asks: tuple[Ask, ...]) -> None:
        self.asks = asks

    def __await__(self) -> Generator[tuple[Ask, ...], Sequence[Rows], Sequence[Rows]]:
        if not self.asks:
            return ()
        answers = yield self.asks
        return answers


class Session:
    """Collects what one operation records, to be written when it has ended well."""

    __slots__ = ("bells", "journals", "learned", "now_ms", "shard", "statements", "writes")

    def __init__(
        self, statements: Mapping[str, Statement], now_ms: int, shard: int = 0, *, journals: bool = False
    ) -> None:
        self.statements = statements
        self.now_ms = now_ms
        self.writes: dict[Statement, list[tuple[Any, ...]]] = {}
        self.bells: dict[Bell, None] = {}
        self.learned = Known()
        """What this operation found or made, and what may be remembered once it is committed."""
        self.journals = journals
        self.shard = shard
        """Where this connection counts what ends, so that others need not wait for it."""

    def ask(self, name: str, *values: Any) -> Ask:
        return Ask(self.statements[name], values)

    def ask_each(self, name: str, rows: Iterable[tuple[Any, ...]]) -> AskAll:
        statement = self.statements[name]
        return AskAll(tuple(Ask(statement, row) for row in rows))

    def record(self, name: str, *values: Any) -> None:
        self.writes.setdefault(self.statements[name], []).append(values)

    def wake(self, bell: Bell) -> None:
        self.bells[bell] = None
