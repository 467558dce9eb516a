"""The shared store: PostgreSQL under any number of servers.

Writes are committed in groups, on one connection per class of transaction and `WORK_LINES` for ordinary work
(`commit_groups`, `diversion`); reads are grouped too, on a pool (`readers`). Rows are locked in one order on every
server (see `ports.store`), and all servers use the database's clock (`database_clock`).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import asyncpg

from penstock.errors import Reason, Unavailable
from penstock.ports.store import Operation, StoreHealth, Transaction, TransactionClass
from penstock.ports.wakeups import Wakeups
from penstock.stores.group_commit import (
    CommitHook,
    QueuedOperation,
    WriteHealth,
    no_hook,
    queued_operations,
)
from penstock.stores.postgres import pipeline, session_limits
from penstock.stores.postgres.batched_queries import Connection
from penstock.stores.postgres.commit_groups import CommitResources, GroupCommitter
from penstock.stores.postgres.database_clock import DatabaseClock
from penstock.stores.postgres.diversion import DivertingCommitter
from penstock.stores.postgres.errors import (
    DISCONNECTED,
    unavailable,
)
from penstock.stores.postgres.readers import Readers
from penstock.stores.postgres.schema import require_current_schema
from penstock.stores.postgres.startup import is_writable
from penstock.stores.postgres.transactions import (
    prepare_piggybacked,
)
from penstock.stores.sql.catalogue import Dialect, catalogue, reading_catalogue
from penstock.stores.sql.row_cache import ImmutableCache

T = TypeVar("T")
WORK_LINES = 2
"""Connections for ordinary writes; a key always uses the same one."""
CLOSE_S_MAX = 2.0
"""How long closing waits for a database that does not answer."""


class PostgresStore:
    """Created by `open`. The schema is created by `schema.migrate`, never on start: several servers share it."""

    def __init__(
        self,
        url: str,
        node: str | None,
        wakeups: Wakeups,
        readers: asyncpg.Pool[asyncpg.Record],
        statement_timeout_ms: int,
        hold_ms: int,
        on_commit: CommitHook,
        journals: bool,
    ) -> None:
        self._readers = readers
        self.journals = journals
        self._wakeups = wakeups
        self._statements = catalogue(Dialect.POSTGRES)
        self._immutable = ImmutableCache()
        clock = DatabaseClock()
        self._reads = Readers(readers, reading_catalogue(Dialect.POSTGRES), self._immutable, clock)
        shared = CommitResources(
            url, node, self._statements, self._immutable, clock, wakeups, on_commit, journals, WriteHealth()
        )
        short = session_limits.short_write_limits(statement_timeout_ms, hold_ms)
        long = session_limits.long_write_limits(statement_timeout_ms, hold_ms)
        self._committers: dict[TransactionClass, GroupCommitter] = {
            TransactionClass.CLAIM: DivertingCommitter(shared, short, long),
            TransactionClass.CHANGE: GroupCommitter(shared, long, long),
            TransactionClass.PERMIT: DivertingCommitter(shared, short, long),
        }
        self._work = [DivertingCommitter(shared, short, long) for _ in range(WORK_LINES)]
        self._write_health = shared.write_health
        self._closing = False

    @classmethod
    async def open(
        cls,
        url: str,
        wakeups: Wakeups,
        *,
        node: str | None = "",
        pool_size: int = 4,
        statement_timeout_ms: int = 10_000,
        hold_ms: int = 2_000,
        on_commit: CommitHook = no_hook,
        journals: bool = False,
    ) -> PostgresStore:
        """Connect to a database whose schema is current.

        Args:
            url: the address of the database.
            wakeups: is notified of topics after each commit.
            node: the name of this server in NOTIFY payloads; None if wakeups use another transport.
            pool_size: maximum number of connections for reads.
            statement_timeout_ms: time limit of a statement of a read or a long write.
            hold_ms: how long a short write may hold its locks, even if this process is suspended inside it.
            on_commit: called before and after every commit.
            journals: whether transitions are written to the journal.

        Raises `Unavailable` when the database cannot be reached, `StoreRefused` when its schema is not current.
        """
        await require_current_schema(url)
        limits = session_limits.read_limits(statement_timeout_ms)
        try:
            readers = await pipeline.create_pool(
                url,
                min_size=0,  # else asyncpg logs a traceback whenever it cannot keep one connection up
                max_size=pool_size,
                server_settings=session_limits.server_settings(limits),
                command_timeout=limits.reply_timeout_s,
                reset=_keep_as_is,
                init=prepare_piggybacked,
            )
        except (*DISCONNECTED, asyncpg.PostgresError) as error:
            raise unavailable(error) from error
        return cls(url, node, wakeups, readers, statement_timeout_ms, hold_ms, on_commit, journals)

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._submit([QueuedOperation(cast("Any", operation), key, future)], tx_class)
        return await future

    async def transact_all(self, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        future: asyncio.Future[list[T | Exception]] = asyncio.get_running_loop().create_future()
        self._submit(queued_operations(asked, future), TransactionClass.WORK)
        return await future

    def _submit(self, jobs: Sequence[QueuedOperation], tx_class: TransactionClass) -> None:
        """Submit each operation to its committer; refuse all if one of the committers has no room."""
        if self._closing:
            raise Unavailable(Reason.SERVER_DRAINING, "The store is closing.", outcome="none")
        parts: dict[GroupCommitter, list[QueuedOperation]] = {}
        for job in jobs:
            parts.setdefault(self._committer(job.key, tx_class), []).append(job)
        for runner, part in parts.items():
            runner.check_room(len(part))
        for runner, part in parts.items():
            runner.submit(part)

    def _committer(self, key: str, tx_class: TransactionClass) -> GroupCommitter:
        return self._committers.get(tx_class) or self._work[zlib.crc32(key.encode()) % WORK_LINES]

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        return cast("T", await self._reads.read(operation, long=long))

    async def check(self) -> None:
        try:
            async with self._readers.acquire(timeout=3) as connection:
                writable = await is_writable(cast("Connection", connection))
        except (*DISCONNECTED, asyncpg.PostgresError) as error:
            raise unavailable(error) from error
        if not writable:
            await self._readers.expire_connections()  # their sessions stay read-only after a promotion
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                "PostgreSQL takes no writes here: a standby, or read-only.",
                outcome="none",
            )

    def health(self) -> StoreHealth:
        stalled_s = max(each.under_way_s for each in self._all_committers())
        health = self._write_health
        return StoreHealth(round(stalled_s * 1000), health.refusal, health.committed)

    def _all_committers(self) -> Sequence[GroupCommitter]:
        return (*self._committers.values(), *self._work)

    async def close(self) -> None:
        self._closing = True
        await asyncio.gather(*(each.close() for each in self._all_committers()))
        await self._reads.close()
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._readers.close()
        except TimeoutError:
            self._readers.terminate()


async def _keep_as_is(_connection: object) -> None:
    """Skip the reset of pooled connections: reads change no setting, hold no lock and listen to no channel."""
