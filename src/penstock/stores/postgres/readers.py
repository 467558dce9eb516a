"""Reads on PostgreSQL, grouped: reads that arrive together share a connection, a snapshot and their statements.

Reads that need a single statement are consistent without a transaction, and are answered first. Which reads need more
is learned per code object: a read that turns out to fetch again is restarted in a repeatable-read snapshot together
with the others of its kind, and is expected there the next time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

import asyncpg

from penstock.errors import Unavailable
from penstock.ports.store import Operation, Tx
from penstock.stores.group_commit import QueuedOperation
from penstock.stores.postgres.batched_queries import QueryRunner, Waiting, advance, answer_all
from penstock.stores.postgres.database_clock import DatabaseClock
from penstock.stores.postgres.errors import DISCONNECTED, is_outage, unavailable
from penstock.stores.postgres.pipeline import PipelinedConnection
from penstock.stores.postgres.transactions import SingleStatementRead, SnapshotRead
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.row_cache import ImmutableCache
from penstock.stores.sql.session import Fetch, ReadOnlySession
from penstock.stores.sql.statement_merger import HotBatches
from penstock.stores.sql.transaction import SqlTx

GROUP_MAX = 64
GROUPS_AT_ONCE = 2
"""Most connections for groups of short reads; the others of the pool are for long ones."""
WAITING_MAX = 20_000
ACQUIRE_S_MAX = 10
TOO_SLOW = (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)
SLOW_MAX = 2
"""After this many reads of a group were too slow on their own, the rest of it fails without a retry."""


class Readers:
    """Runs short reads in groups, as many as wait when a connection is free, and long ones one by one."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        statements: Mapping[str, Statement],
        immutable: ImmutableCache,
        clock: DatabaseClock,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._immutable = immutable
        self._clock = clock
        self._jobs: deque[QueuedOperation] = deque()
        self._groups: set[asyncio.Task[None]] = set()
        self._active_groups = 0
        """How many groups will still look for waiting reads; one that found none is not counted."""
        self._multi_statement: set[object] = set()
        """The code of reads that needed more than one statement."""
        self._hot_batches = HotBatches()
        self._long_slots = asyncio.Semaphore(max(1, pool.get_max_size() - GROUPS_AT_ONCE))

    async def read(self, operation: Operation[Any], *, long: bool) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        job = QueuedOperation(cast("Callable[[Tx], Coroutine[Any, Any, Any]]", operation), "", future)
        if long:
            await self._run_long(job)
            return await future
        if len(self._jobs) >= WAITING_MAX:
            raise unavailable(TimeoutError())
        self._jobs.append(job)
        if self._active_groups < GROUPS_AT_ONCE:
            self._active_groups += 1
            group = asyncio.create_task(self._serve(), name="penstock-reads")
            self._groups.add(group)
            group.add_done_callback(self._groups.discard)
        return await future

    async def close(self) -> None:
        """Answer what was submitted, unless that takes too long."""
        if self._groups:
            await asyncio.wait(self._groups, timeout=ACQUIRE_S_MAX)

    async def _run_long(self, job: QueuedOperation) -> None:
        try:
            async with asyncio.timeout(ACQUIRE_S_MAX):
                await self._long_slots.acquire()
        except TimeoutError as error:
            raise unavailable(error) from error
        try:
            await self._settle([job], long=True)
        finally:
            self._long_slots.release()

    async def _serve(self) -> None:
        try:
            while self._jobs:
                group = [self._jobs.popleft() for _ in range(min(GROUP_MAX, len(self._jobs)))]
                wanted = [job for job in group if not job.future.done()]
                if wanted:
                    await self._settle(wanted)
        finally:
            self._active_groups -= 1

    async def _settle(self, jobs: list[QueuedOperation], *, long: bool = False) -> None:
        """Answer every caller; if a merged statement fails, its reads are retried one by one."""
        try:
            async with self._pool.acquire(timeout=ACQUIRE_S_MAX) as connection:
                await self._run_group(cast("PipelinedConnection", connection), jobs, long=long)
        except Exception as error:
            await self._failed([job for job in jobs if not job.future.done()], error)

    async def _failed(self, jobs: list[QueuedOperation], error: Exception) -> None:
        outage = isinstance(error, DISCONNECTED) or (
            isinstance(error, asyncpg.PostgresError) and is_outage(error)
        )
        if len(jobs) > 1 and (not outage or isinstance(error, TOO_SLOW)):
            await self._retry_one_by_one(jobs, error)
            return
        if isinstance(error, TimeoutError):  # the database does not answer, and the callers have waited
            jobs += self._jobs
            self._jobs.clear()
        for job in jobs:
            job.error = unavailable(error) if outage else error
            job.answer()

    async def _retry_one_by_one(self, jobs: list[QueuedOperation], error: Exception) -> None:
        """Retry one by one, so that only the read at fault fails; if several are too slow, the database is."""
        slow = 0
        for job in jobs:
            if job.future.done():
                continue
            if slow < SLOW_MAX:
                await self._settle([job])
                slow += isinstance(job.error, Unavailable)
            else:
                job.error = unavailable(error)
                job.answer()

    async def _run_group(
        self, connection: PipelinedConnection, jobs: list[QueuedOperation], *, long: bool
    ) -> None:
        """Run single-statement reads first, then the others in one snapshot.

        A read that has ended is answered at once, before the others and before the end of the transaction.
        """
        try:
            now_ms = await self._clock.now_ms(connection)
            multi_statement = [job for job in jobs if _kind_of(job) in self._multi_statement]
            others = [job for job in jobs if _kind_of(job) not in self._multi_statement]
            multi_statement += await self._run_single_statement_reads(connection, others, now_ms, long=long)
            if multi_statement:
                snapshot = SnapshotRead(connection, self._hot_batches, merges_always=long)
                await self._run_in_snapshot(snapshot, multi_statement, now_ms, long=long)
                await snapshot.end()
        except BaseException:
            connection.terminate()  # its state is unknown: it must not go back to the pool
            raise

    async def _run_single_statement_reads(
        self, connection: PipelinedConnection, jobs: list[QueuedOperation], now_ms: int, *, long: bool
    ) -> list[QueuedOperation]:
        """Answer reads of a single statement; returns the others, which start again."""
        waiting = self._start(jobs, now_ms)
        going = [each for each in waiting if _is_single_statement(each[2])]
        multi_statement = [each for each in waiting if not _is_single_statement(each[2])]
        multi_statement += await self._advance_all(
            SingleStatementRead(connection, self._hot_batches), jobs, going, long=long
        )
        for index, coroutine, _ in multi_statement:
            coroutine.close()
            self._multi_statement.add(_kind_of(jobs[index]))
        return [jobs[index] for index, _, _ in multi_statement]

    async def _run_in_snapshot(
        self, snapshot: SnapshotRead, jobs: list[QueuedOperation], now_ms: int, *, long: bool
    ) -> None:
        """Answer reads of several statements; those that needed only one are expected to do so the next time."""
        first = self._start(jobs, now_ms)
        waiting = await self._advance_all(snapshot, jobs, first, long=long)
        self._multi_statement -= {
            _kind_of(jobs[index]) for index, _, fetches in first if _is_single_statement(fetches)
        }
        self._multi_statement |= {_kind_of(jobs[index]) for index, _, _ in waiting}
        while waiting:
            waiting = await self._advance_all(snapshot, jobs, waiting, long=long)

    def _start(self, jobs: list[QueuedOperation], now_ms: int) -> list[Waiting]:
        """Start each read, up to its first fetches."""
        waiting: list[Waiting] = []
        for index, job in enumerate(jobs):
            job.begin_again()
            session = ReadOnlySession(self._statements, now_ms, self._immutable)
            tx = SqlTx(session, now_ms, session.wake)
            before = len(waiting)
            advance(jobs, index, job.operation(tx), None, waiting)
            if len(waiting) == before:
                job.answer()
        return waiting

    async def _advance_all(
        self, runner: QueryRunner, jobs: list[QueuedOperation], going: list[Waiting], *, long: bool
    ) -> list[Waiting]:
        """Execute the fetches of some reads; returns those that fetch again.

        What a long read makes of its rows may take long, too, so that is done in a thread, as on SQLite.
        """
        try:
            rows = await answer_all(runner, [fetch for _, _, fetches in going for fetch in fetches])
        except BaseException:
            for _, coroutine, _ in going:
                coroutine.close()
            raise
        place, waiting = 0, list[Waiting]()
        for index, coroutine, fetches in going:
            answers = rows[place : place + len(fetches)]
            place += len(fetches)
            before = len(waiting)
            if long:
                await asyncio.to_thread(advance, jobs, index, coroutine, answers, waiting)
            else:
                advance(jobs, index, coroutine, answers, waiting)
            if len(waiting) == before:
                jobs[index].answer()
        return waiting


def _kind_of(job: QueuedOperation) -> object:
    """Identifies the kind of a read: reads of the same code fetch alike."""
    return getattr(job.operation, "__code__", type(job.operation))


def _is_single_statement(fetches: Sequence[Fetch]) -> bool:
    """Whether the fetches are sent as one statement that changes nothing."""
    statement = fetches[0].statement
    alike = len(fetches) == 1 or (
        not statement.unmerged and all(fetch.statement is statement for fetch in fetches)
    )
    return alike and not statement.changes_rows
