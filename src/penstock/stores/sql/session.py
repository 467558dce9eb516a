"""One operation's conversation with a SQL database: it asks, and it records."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.ports.wakeups import Bell
from penstock.stores.sql.catalogue import Statement

Row = Sequence[Any]
Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Ask(Awaitable[Rows]):
    """A question that the operation waits for; whoever drives the operation answers it."""

    statement: Statement
    values: tuple[Any, ...]

    def __await__(self) -> Generator[Ask, Rows, Rows]:
        answer = yield self
        return answer


class Session:
    """Collects what one operation records, to be written when it has ended well."""

    __slots__ = ("bells", "now_ms", "statements", "writes")

    def __init__(self, statements: Mapping[str, Statement], now_ms: int) -> None:
        self.statements = statements
        self.now_ms = now_ms
        self.writes: dict[Statement, list[tuple[Any, ...]]] = {}
        self.bells: dict[Bell, None] = {}

    def ask(self, name: str, *values: Any) -> Ask:
        return Ask(self.statements[name], values)

    def record(self, name: str, *values: Any) -> None:
        self.writes.setdefault(self.statements[name], []).append(values)

    def wake(self, bell: Bell) -> None:
        self.bells[bell] = None
