"""Reads on PostgreSQL: those that come together see one moment together, and ask together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

import asyncpg

from penstock.errors import Unavailable
from penstock.ports.store import Operation, Tx
from penstock.stores.group_commit import QueuedOperation, ReadOnlySession
from penstock.stores.postgres.batched_queries import QueryRunner, Waiting, advance, answer_all
from penstock.stores.postgres.database_clock import DatabaseClock
from penstock.stores.postgres.errors import DISCONNECTED, is_outage, unavailable
from penstock.stores.postgres.pipeline import PipelinedConnection
from penstock.stores.postgres.transactions import SingleStatementRead, SnapshotRead
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.immutable_cache import ImmutableCache
from penstock.stores.sql.session import Fetch
from penstock.stores.sql.statement_merger import HotBatches
from penstock.stores.sql.transaction import SqlTx

GROUP_MAX = 64
GROUPS_AT_ONCE = 2
"""Short reads use so many connections at most; the others of the pool are for long ones, which use no more."""
WAITING_MAX = 20_000
ACQUIRE_S_MAX = 10
TOO_SLOW = (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)
SLOW_MAX = 2
"""After so many reads that were too slow each on its own no other one of their group is tried again."""


class Readers:
    """Takes short reads in groups, as many as wait when a connection is free, and long ones each on its own."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        statements: Mapping[str, Statement],
        known: ImmutableCache,
        moments: DatabaseClock,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._known = known
        self._moments = moments
        self._jobs: deque[QueuedOperation] = deque()
        self._groups: set[asyncio.Task[None]] = set()
        self._looking = 0
        """How many groups look for reads that wait; one that has found none is not counted, though it has not gone."""
        self._curious: set[object] = set()
        """Reads that have asked a second question."""
        self._habits = HotBatches()
        self._room = asyncio.Semaphore(max(1, pool.get_max_size() - GROUPS_AT_ONCE))

    async def read(self, operation: Operation[Any], *, long: bool) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        job = QueuedOperation(cast("Callable[[Tx], Coroutine[Any, Any, Any]]", operation), "", future)
        if long:
            await self._settle_alone(job)
            return await future
        if len(self._jobs) >= WAITING_MAX:
            raise unavailable(TimeoutError())
        self._jobs.append(job)
        if self._looking < GROUPS_AT_ONCE:
            self._looking += 1
            group = asyncio.create_task(self._serve(), name="penstock-reads")
            self._groups.add(group)
            group.add_done_callback(self._groups.discard)
        return await future

    async def close(self) -> None:
        """Answer what was handed in, if that does not take long."""
        if self._groups:
            await asyncio.wait(self._groups, timeout=ACQUIRE_S_MAX)

    async def _settle_alone(self, job: QueuedOperation) -> None:
        try:
            async with asyncio.timeout(ACQUIRE_S_MAX):
                await self._room.acquire()
        except TimeoutError as error:
            raise unavailable(error) from error
        try:
            await self._settle([job])
        finally:
            self._room.release()

    async def _serve(self) -> None:
        try:
            while self._jobs:
                group = [self._jobs.popleft() for _ in range(min(GROUP_MAX, len(self._jobs)))]
                wanted = [job for job in group if not job.future.done()]
                if wanted:
                    await self._settle(wanted)
        finally:
            self._looking -= 1

    async def _settle(self, jobs: list[QueuedOperation]) -> None:
        """Answer every caller; what a merged question failed on is asked again, each caller on its own."""
        try:
            async with self._pool.acquire(timeout=ACQUIRE_S_MAX) as connection:
                await self._look(cast("PipelinedConnection", connection), jobs)
        except Exception as error:
            await self._failed([job for job in jobs if not job.future.done()], error)

    async def _failed(self, jobs: list[QueuedOperation], error: Exception) -> None:
        outage = isinstance(error, DISCONNECTED) or (
            isinstance(error, asyncpg.PostgresError) and is_outage(error)
        )
        if len(jobs) > 1 and (not outage or isinstance(error, TOO_SLOW)):
            await self._each_alone(jobs, error)
            return
        if isinstance(error, TimeoutError):  # a database that is silent is not asked again while callers wait
            jobs += self._jobs
            self._jobs.clear()
        for job in jobs:
            job.error = unavailable(error) if outage else error
            job.answer()

    async def _each_alone(self, jobs: list[QueuedOperation], error: Exception) -> None:
        """Only the read that is too slow, or wrong, fails; where several are too slow it is the database."""
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

    async def _look(self, connection: PipelinedConnection, jobs: list[QueuedOperation]) -> None:
        """Whoever asks one question goes first: its answer is of one moment. The others see one moment together.

        Who has read all is answered at once, before the others and before the end of the transaction.
        """
        try:
            now_ms = await self._moments.now_ms(connection)
            curious = [job for job in jobs if _code(job) in self._curious]
            others = [job for job in jobs if _code(job) not in self._curious]
            curious += await self._glance(connection, others, now_ms)
            if curious:
                snapshot = SnapshotRead(connection, self._habits)
                await self._operate(snapshot, curious, now_ms)
                await snapshot.end()
        except BaseException:
            connection.terminate()  # it is silent or in the middle of something: it does not go back to the pool
            raise

    async def _glance(
        self, connection: PipelinedConnection, jobs: list[QueuedOperation], now_ms: int
    ) -> list[QueuedOperation]:
        """Answer those who ask one question; the others are remembered, and begin anew."""
        waiting = self._begun(jobs, now_ms)
        going = [each for each in waiting if _is_one_question(each[2])]
        curious = [each for each in waiting if not _is_one_question(each[2])]
        curious += await self._answered(SingleStatementRead(connection, self._habits), jobs, going)
        for index, coroutine, _ in curious:
            coroutine.close()
            self._curious.add(_code(jobs[index]))
        return [jobs[index] for index, _, _ in curious]

    async def _operate(self, snapshot: SnapshotRead, jobs: list[QueuedOperation], now_ms: int) -> None:
        """Answer those who ask more; who did not is taken for one who asks one question the next time."""
        first = self._begun(jobs, now_ms)
        waiting = await self._answered(snapshot, jobs, first)
        self._curious -= {_code(jobs[index]) for index, _, fetches in first if _is_one_question(fetches)}
        self._curious |= {_code(jobs[index]) for index, _, _ in waiting}
        while waiting:
            waiting = await self._answered(snapshot, jobs, waiting)

    def _begun(self, jobs: list[QueuedOperation], now_ms: int) -> list[Waiting]:
        """What each of them asks first."""
        waiting: list[Waiting] = []
        for index, job in enumerate(jobs):
            job.begin_again()
            session = ReadOnlySession(self._statements, now_ms)
            self._advance(jobs, index, job.operation(SqlTx(session, self._known)), None, waiting)
        return waiting

    async def _answered(
        self, asking: QueryRunner, jobs: list[QueuedOperation], going: list[Waiting]
    ) -> list[Waiting]:
        """What those who were answered ask next."""
        try:
            rows = await answer_all(asking, [fetch for _, _, fetches in going for fetch in fetches])
        except BaseException:
            for _, coroutine, _ in going:
                coroutine.close()
            raise
        place, waiting = 0, list[Waiting]()
        for index, coroutine, fetches in going:
            answers = rows[place : place + len(fetches)]
            place += len(fetches)
            self._advance(jobs, index, coroutine, answers, waiting)
        return waiting

    @staticmethod
    def _advance(
        jobs: list[QueuedOperation],
        index: int,
        coroutine: Coroutine[Any, Any, Any],
        answers: Any,
        waiting: list[Waiting],
    ) -> None:
        before = len(waiting)
        advance(jobs, index, coroutine, answers, waiting)
        if len(waiting) == before:
            jobs[index].answer()


def _code(job: QueuedOperation) -> object:
    """What tells kinds of reads from each other: those that are written once ask alike."""
    return getattr(job.operation, "__code__", type(job.operation))


def _is_one_question(fetches: Sequence[Fetch]) -> bool:
    """Whether they travel as one statement, which only reads."""
    statement = fetches[0].statement
    alike = len(fetches) == 1 or (
        not statement.alone and all(fetch.statement is statement for fetch in fetches)
    )
    return alike and not statement.acts
