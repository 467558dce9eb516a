"""Which statements reach a database: SQLite and PostgreSQL themselves are asked, whoever sends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest

from penstock.stores.sqlite import connections

Seen = list[str]


STEP = 20
"""SQLite tells after so many instructions."""


class StatementLog:
    """All statements that were sent so far, and of SQLite how many instructions it took to answer them."""

    def __init__(self) -> None:
        self.statements: Seen = []
        self.values: dict[str, Sequence[Any]] = {}
        """Of PostgreSQL, what a statement was sent with the last time; SQLite tells the text with its values."""
        self.instructions = 0

    def record(self, sql: str) -> None:
        if not sql.startswith("--"):  # what a trigger does
            self.statements.append(sql)

    def step(self) -> int:
        self.instructions += STEP
        return 0  # go on

    @contextlib.asynccontextmanager
    async def during(self) -> AsyncIterator[Seen]:
        """Those that are sent inside the block, known after it."""
        await self._rest()
        before, described = len(self.statements), Seen()
        yield described
        await self._rest()
        described += self.statements[before:]

    async def fewest(self, times: int, work: Callable[[], Awaitable[object]]) -> Seen:
        """The shortest of some repetitions: now and then something is also looked after that is no part of it."""
        found = []
        for _ in range(times):
            async with self.during() as described:
                await work()
            found.append(described)
        return min(found, key=len)

    async def fewest_instructions(self, times: int, work: Callable[[], Awaitable[object]]) -> int:
        found = []
        for _ in range(times):
            before = self.instructions
            await work()
            found.append(self.instructions - before)
        return min(found)

    @staticmethod
    async def _rest() -> None:
        """Drivers tell in a later turn of the loop."""
        for _ in range(5):
            await asyncio.sleep(0)


def described(statements: Seen) -> str:
    """The statements as a reader of a failed test wants them, the most frequent first."""
    begun = Counter(" ".join(sql.split())[:90] for sql in statements)
    return "\n".join(f"{count:4} × {sql}" for sql, count in begun.most_common())


def log_sqlite(log: StatementLog, patch: pytest.MonkeyPatch) -> None:
    """From here on, of every connection that a store opens."""
    connect: Callable[..., Any] = connections.connect

    def connected(*given: Any) -> Any:
        connection = connect(*given)
        connection.set_trace_callback(log.record)
        connection.set_progress_handler(log.step, STEP)
        return connection

    patch.setattr(connections, "connect", connected)


def log_postgres(log: StatementLog, patch: pytest.MonkeyPatch) -> None:
    """From here on, of every connection that a store opens."""
    connect, create_pool = asyncpg.connect, asyncpg.create_pool

    def tell(record: Any) -> None:
        log.record(record.query)
        log.values[record.query] = record.args

    async def connected(*given: Any, **options: Any) -> Any:
        connection = await connect(*given, **options)
        connection.add_query_logger(tell)
        return connection

    def pooled(*given: Any, init: Callable[[Any], Awaitable[None]], **options: Any) -> Any:
        async def begun(connection: Any) -> None:
            await init(connection)
            connection.add_query_logger(tell)

        return create_pool(*given, **options, init=begun)

    patch.setattr(asyncpg, "connect", connected)
    patch.setattr(asyncpg, "create_pool", pooled)


def transactions(statements: Seen) -> int:
    """On PostgreSQL what ends one travels with its last write, which tells the other servers."""
    return sum(sql.startswith("COMMIT") or "pg_notify(" in sql for sql in statements)
