"""The shared store: PostgreSQL under any number of servers.

Operations that arrive together run in lock-step inside one short transaction: equal questions of all of them
travel as one statement, and so do equal writes at the end. Rows are locked in one order (see `ports.store`);
the database's time is everybody's time; a serialization failure or deadlock runs the group again.
"""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import asyncpg
import structlog
from msgspec.structs import replace

from penstock.errors import Reason, Unavailable
from penstock.ports.store import Operation, StoreHealth, Transaction, TransactionClass
from penstock.ports.wakeups import Topic, Wakeups
from penstock.stores.group_commit import (
    CommitHook,
    CommitPoint,
    QueuedOperation,
    WriteHealth,
    no_hook,
    ordered_writes,
    queued_operation,
    queued_operations,
)
from penstock.stores.migrations.registry import Migration, migrations, outdated, pending
from penstock.stores.postgres import pipeline, session_limits
from penstock.stores.postgres.batched_queries import (
    DISCONNECTED,
    RETRYABLE,
    Connection,
    Waiting,
    advance,
    answer_all,
    is_outage,
    is_timeout,
    refused,
    too_slow,
    unavailable,
    was_ended_idle,
)
from penstock.stores.postgres.database_clock import DatabaseClock
from penstock.stores.postgres.pipeline import PipelinedConnection
from penstock.stores.postgres.readers import Readers
from penstock.stores.postgres.session_limits import SessionLimits
from penstock.stores.postgres.transactions import (
    PipelinedTransaction,
    outgoing_statements,
    prepare_piggybacked,
)
from penstock.stores.sql.catalogue import Dialect, Statement, catalogue, reading_catalogue
from penstock.stores.sql.immutable_cache import ImmutableCache
from penstock.stores.sql.scope_locks import ScopeLocks
from penstock.stores.sql.session import Fetch, Rows, Session
from penstock.stores.sql.statement_merger import HotBatches
from penstock.stores.sql.transaction import SqlTx

T = TypeVar("T")
GROUP_MAX = 128
WAITING_MAX = 20_000
TRIES = 6
PAUSE_S_MAX = 2.0
"""Longest pause before a group is tried again: a database that is back is noticed within it."""
WORK_LINES = 2
DIVERSION_LOCK_MS = 200
"""A group waits so long for a row that another session has locked; then those that want it are diverted."""
BLOCKED_LOCK_MS = 400
"""So long one that was diverted waits at a time; then it is the turn of the next."""
BLOCKED_MAX = 3
"""After so many operations of a group that were blocked one by one, the rest of it is diverted untried."""
SLOW_MAX = 2
"""After so many that were too slow one by one, the rest is tried together with the limits of long writes."""
CONTENDED_S = 10.0
"""How long after an operation was diverted those with its key have transactions of their own."""
CONTENDED_MAX = 4
"""Of so many keys that is remembered, those whose rows were waited for last: each costs a transaction in every turn."""
DIVERSION_IDLE_S = 10.0
"""How long a diversion keeps its connection without work."""
STALE_MAX = 2
"""So many times a group may be found to be stale at its commit before it counts as too slow."""
SHARDS = 16
"""Over so many rows the ends of a scope's leases are counted, so that connections seldom wait for each other."""
NOTIFY_BYTES_MAX = 7000
STATEMENTS_KEPT = 256
"""So many statements a connection keeps prepared: those of the catalogue that it needs, and usual batches of writes."""
CONNECT_S_MAX = 5.0
LOOK_AGAIN_S = 0.5
REMIND_S = 10.0
"""How often a starting server looks for its database, and how often it logs that it waits."""
ROLLBACK_S_MAX = 2.0
CLOSE_S_MAX = 2.0
"""How long a database that is silent is waited for when a connection is closed."""
MIGRATION_LOCK = zlib.crc32(b"penstock migrations")
log = structlog.get_logger("penstock.store")


class DirtyFailure(Exception):
    """An operation was refused after it had reserved something: the group runs again without it."""


class _Blocked(Exception):
    """A row is locked by another session, which did not release it in time. Nothing was changed."""


class _TooSlow(Exception):
    """The database ended the transaction because it took longer than it may. Nothing was changed."""


class _Stale(Exception):
    """More time has passed since the group began than a transaction may take: what it saw is too old to act on."""


class PostgresStore:
    """Made by `open`. Its schema is made by `migrate`, never on start: several servers share it."""

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
        self._known = ImmutableCache()
        moments = DatabaseClock()
        self._reads = Readers(readers, reading_catalogue(Dialect.POSTGRES), self._known, moments)
        shared = _Shared(
            url, node, self._statements, self._known, moments, wakeups, on_commit, journals, WriteHealth()
        )
        short = session_limits.short_write_limits(statement_timeout_ms, hold_ms)
        long = session_limits.long_write_limits(statement_timeout_ms, hold_ms)
        self._lines: dict[TransactionClass, _GroupLine] = {
            TransactionClass.CLAIM: _DivertingLine(shared, short, long),
            TransactionClass.CHANGE: _GroupLine(shared, long, long),
            TransactionClass.PERMIT: _DivertingLine(shared, short, long),
        }
        self._work = [_DivertingLine(shared, short, long) for _ in range(WORK_LINES)]
        self._vitals = shared.vitals
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
            url: where the database is.
            wakeups: receives what is to be looked at after a commit.
            node: the name of this server in notifications; None where wakeups travel another way.
            pool_size: most connections for reading.
            statement_timeout_ms: longest time that the database works on one statement of a read or a long write.
            hold_ms: longest time that a short write may hold its locks, also when this process stops in it.
            on_moment: called around every commit.
            journals: whether transitions are journalled.

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
        self._hand_in([queued_operation(operation, key, future)], tx_class)
        return await future

    async def transact_all(self, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        future: asyncio.Future[list[T | Exception]] = asyncio.get_running_loop().create_future()
        self._hand_in(queued_operations(asked, future), TransactionClass.WORK)
        return await future

    def _hand_in(self, jobs: Sequence[QueuedOperation], line: TransactionClass) -> None:
        """Give each operation to its line, unless one of the lines has enough to do."""
        if self._closing:
            raise Unavailable(Reason.SERVER_DRAINING, "The store is closing.", outcome="none")
        parts: dict[_GroupLine, list[QueuedOperation]] = {}
        for job in jobs:
            parts.setdefault(self._runner(job.key, line), []).append(job)
        for runner, part in parts.items():
            runner.check_room(len(part))
        for runner, part in parts.items():
            runner.submit(part)

    def _runner(self, key: str, line: TransactionClass) -> _GroupLine:
        return self._lines.get(line) or self._work[zlib.crc32(key.encode()) % WORK_LINES]

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        return cast("T", await self._reads.read(operation, long=long))

    async def check(self) -> None:
        try:
            async with self._readers.acquire(timeout=3) as connection:
                writable = await _is_writable(cast("Connection", connection))
        except (*DISCONNECTED, asyncpg.PostgresError) as error:
            raise unavailable(error) from error
        if not writable:
            await self._readers.expire_connections()  # a session stays as it was told to be when it began
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                "PostgreSQL takes no writes here: a standby, or read-only.",
                outcome="none",
            )

    def health(self) -> StoreHealth:
        stalled_s = max(line.under_way_s for line in self._every_line())
        return StoreHealth(round(stalled_s * 1000), self._vitals.refusal)

    def _every_line(self) -> Sequence[_GroupLine]:
        return (*self._lines.values(), *self._work)

    async def close(self) -> None:
        self._closing = True
        await asyncio.gather(*(line.close() for line in self._every_line()))
        await self._reads.close()
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._readers.close()
        except TimeoutError:
            self._readers.terminate()


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all lines of a store have in common."""

    url: str
    node: str | None
    statements: Mapping[str, Statement]
    known: ImmutableCache
    moments: DatabaseClock
    wakeups: Wakeups
    on_commit: CommitHook
    journals: bool
    vitals: WriteHealth


class _GroupLine:
    """One connection on which groups of operations commit one after the other.

    Args:
        shared: what all lines have in common.
        limits: the limits of its session.
        long: the limits for a single operation that took longer than `limits` allow.
    """

    def __init__(self, shared: _Shared, limits: SessionLimits, long: SessionLimits) -> None:
        self._shared = shared
        self._limits = limits
        self._long = long
        self._shard = random.randrange(SHARDS)
        self._jobs: deque[QueuedOperation] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._connection: PipelinedConnection | None = None
        self._habits = HotBatches()
        self._questions = HotBatches()
        self._group_max = GROUP_MAX
        self._began_at: float | None = None
        self._turn_of_apart = False
        self._runner = asyncio.create_task(self._run(), name="penstock-group-line")

    @property
    def under_way_s(self) -> float:
        """For how long the group that is being committed has been tried; 0 where there is none."""
        return 0.0 if self._began_at is None else time.monotonic() - self._began_at

    def check_room(self, more: int) -> None:
        if self._waiting() + more > WAITING_MAX:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                "The database does not keep up. Try again shortly.",
                outcome="none",
            )

    def _waiting(self) -> int:
        return len(self._jobs)

    def submit(self, jobs: Sequence[QueuedOperation]) -> None:
        self._jobs.extend(jobs)
        self._arrived.set()

    async def close(self) -> None:
        """Finish what was handed in, then disconnect."""
        self._closing = True
        self._arrived.set()
        await self._runner
        if self._connection is not None:
            try:
                await self._connection.close(timeout=CLOSE_S_MAX)
            except (*DISCONNECTED, asyncpg.PostgresError):
                self._hang_up()

    async def _run(self) -> None:
        while True:
            await self._wait_for_jobs()
            while self._jobs:
                group = self._next_group()
                self._began_at = time.monotonic()
                await self._settle(group)
                self._began_at = None
            if self._closing:
                return
            self._arrived.clear()

    async def _wait_for_jobs(self) -> None:
        await self._arrived.wait()

    def _next_in_turns(self, apart: dict[str, float]) -> list[QueuedOperation]:
        """By turns a group without the keys that are kept apart, and a single operation of each of these keys."""
        self._turn_of_apart = not self._turn_of_apart
        waiting = {job.key for job in self._jobs}
        key = next((key for key in apart if key in waiting), None)
        if key is None or (waiting - apart.keys() and not self._turn_of_apart):
            return self._taken(lambda job: job.key not in apart)
        apart[key] = apart.pop(key)  # the others come before its next turn
        first = next(job for job in self._jobs if job.key == key)
        return self._taken(lambda job: job is first)

    def _taken(self, try_acquire: Callable[[QueuedOperation], bool]) -> list[QueuedOperation]:
        """The next group of those that may go; the others keep their places."""
        others = [job for job in self._jobs if not try_acquire(job)]
        self._jobs = deque(job for job in self._jobs if try_acquire(job))
        group = _GroupLine._next_group(self)
        self._jobs.extendleft(reversed(others))
        return group

    def _next_group(self) -> list[QueuedOperation]:
        """The oldest operations, one per key: those that share a key must see each other's outcome."""
        chosen: dict[str, QueuedOperation] = {}
        later: list[QueuedOperation] = []
        while self._jobs and len(chosen) < self._group_max:
            job = self._jobs.popleft()
            if job.key in chosen:
                later.append(job)
            elif job.future.cancelled():
                self._settled(job)
            else:
                chosen[job.key] = job
        self._jobs.extendleft(reversed(later))
        return list(chosen.values())

    async def _settle(self, jobs: list[QueuedOperation]) -> None:
        """Commit the group, or report why not: together if that works, else in parts."""
        try:
            await self._commit_with_patience(jobs)
            self._group_max = min(GROUP_MAX, self._group_max * 2)
        except _Blocked:
            await self._settle_blocked(jobs)
            return
        except _TooSlow as error:
            if len(jobs) > 1 or self._limits is not self._long:
                await self._settle_slow(jobs)
                return
            log.warning("an operation took too long and was given up", key=jobs[0].key)
            jobs[0].error = too_slow(error)
        except asyncpg.PostgresError as error:
            if len(jobs) > 1:
                log.warning("group failed; trying one by one", error=str(error), operations=len(jobs))
                for job in jobs:
                    await self._settle([job])
                return
            log.error("operation failed", error=str(error), key=jobs[0].key)
            jobs[0].error = error
        except Exception as error:
            for job in jobs:
                job.error = error
        self._answer(jobs)

    def _answer(self, jobs: list[QueuedOperation]) -> None:
        later = [job for job in jobs if job.deferred and job.error is None]
        self._jobs.extendleft(reversed(later))
        settled = [job for job in jobs if job not in later]
        for job in settled:
            self._settled(job)
            if isinstance(job.error, Unavailable) and job.error.reason is Reason.STORAGE_FULL:
                self._shared.vitals.refused(job.error.reason)
            job.answer()
            if job.error is None:
                self._shared.known.remember(job.cacheable)
        topics = {topic: None for job in settled if job.error is None for topic in job.topics}
        if topics:
            self._shared.wakeups.notify(topics)

    def _settled(self, job: QueuedOperation) -> None:
        """An operation has ended here."""

    async def _settle_blocked(self, jobs: list[QueuedOperation]) -> None:
        raise AssertionError("only a line that diverts gives up a group that is blocked")

    async def _settle_slow(self, jobs: list[QueuedOperation]) -> None:
        """Half a group takes less time."""
        log.warning("a group was too slow; trying halves of it", operations=len(jobs))
        half = self._group_max = len(jobs) // 2
        await self._settle(jobs[:half])
        await self._settle(jobs[half:])

    async def _commit_with_patience(self, jobs: list[QueuedOperation]) -> None:
        failures = 0
        while jobs:
            for job in jobs:
                job.begin_again()
            try:
                await self._commit(jobs)
                return
            except DirtyFailure:
                jobs = [job for job in jobs if not (job.error is not None and job.acted)]
            except (_Stale, *DISCONNECTED, asyncpg.PostgresError) as error:
                failures += 1
                self._check_again(error, failures)
                log.info("trying a group again", error=type(error).__name__, failures=failures)
                await asyncio.sleep(random.uniform(0, min(PAUSE_S_MAX, 0.02 * 4**failures)))

    def _check_again(self, error: Exception, failures: int) -> None:
        """Raise what becomes of a group that failed, unless it may be tried again as it is."""
        if is_timeout(error) or (isinstance(error, _Stale) and failures >= STALE_MAX):
            raise _TooSlow from error
        if isinstance(error, TimeoutError):  # a database that is silent is not asked again while callers wait
            raise unavailable(error) from error
        if isinstance(error, (_Stale, *RETRYABLE, *DISCONNECTED)) or was_ended_idle(error):
            if failures >= TRIES:
                raise unavailable(error) from error
        elif isinstance(error, asyncpg.PostgresError) and is_outage(error):
            self._hang_up()
            raise unavailable(error) from error
        else:
            raise error

    async def _commit(self, jobs: list[QueuedOperation]) -> None:
        connection = await self._connected()
        transaction = PipelinedTransaction(connection, self._questions)
        began_at = time.monotonic()
        try:
            now_ms = await self._shared.moments.now_ms(connection)
            scope_locks = ScopeLocks(self._shared.statements)
            sessions = await self._operate(transaction, jobs, now_ms, scope_locks)
            if any(job.error is not None and job.acted for job in jobs):
                raise DirtyFailure
            writes = [(each, scope_locks.final_rows(each, rows)) for each, rows in ordered_writes(sessions)]
            sent = outgoing_statements(writes, self._notes(sessions), self._habits)
            for sending in sent[:-1]:
                await transaction.write(sending)
            self._shared.on_commit(CommitPoint.BEFORE_COMMIT)
            if time.monotonic() - began_at > self._limits.decide_ms / 1000:
                raise _Stale
            await transaction.commit(sent[-1] if sent else None)
            self._shared.on_commit(CommitPoint.AFTER_COMMIT)
        except BaseException as error:
            if transaction.commit_was_sent and isinstance(error, DISCONNECTED) and not was_ended_idle(error):
                self._hang_up()
                raise Unavailable(
                    Reason.OUTCOME_UNKNOWN,
                    "The connection broke during commit, so nobody can say whether this happened. "
                    "Ask for its state. A request that names an id or a key may be sent again: it counts once.",
                    outcome="unknown",
                ) from error
            if isinstance(error, TimeoutError):
                self._hang_up()
            elif transaction.begun or not isinstance(error, asyncpg.PostgresError | DirtyFailure | _Stale):
                await self._roll_back(connection)
            raise

    async def _operate(
        self,
        transaction: PipelinedTransaction,
        jobs: list[QueuedOperation],
        now_ms: int,
        scope_locks: ScopeLocks,
    ) -> list[Session]:
        """Advance all operations in lock-step, merging equal questions, until each has ended."""
        sessions: dict[int, Session] = {}
        waiting: list[Waiting] = []
        for index, job in enumerate(jobs):
            session = sessions[index] = Session(
                self._shared.statements, now_ms, self._shard, journals=self._shared.journals
            )
            advance(jobs, index, job.operation(SqlTx(session, self._shared.known)), None, waiting)
        locked: dict[tuple[Statement, tuple[Any, ...]], int] = {}
        while waiting:
            going: list[Waiting] = []
            later: list[Waiting] = []
            for each in waiting:
                index, _, fetches = each
                if self._must_defer(jobs[index], each, locked, scope_locks):
                    scope_locks.advanced(index, sessions[index], ended=True)
                else:
                    (going if scope_locks.try_acquire(index, fetches) else later).append(each)
            assert going or not later, "whoever has a scope goes on"
            asked = [fetch for _, _, fetches in going for fetch in scope_locks.as_sent(fetches)]
            rows = await answer_all(transaction, asked)
            waiting, place = later, 0
            for index, coroutine, fetches in going:
                answers = rows[place : place + len(fetches)]
                place += len(fetches)
                if not scope_locks.all_acquired(fetches, answers):
                    _defer(jobs[index], coroutine)
                    scope_locks.advanced(index, sessions[index], ended=True)
                    continue
                jobs[index].acted |= any(map(_has_acted, fetches, answers))
                before = len(waiting)
                shown = [
                    scope_locks.overlay(fetch, each) for fetch, each in zip(fetches, answers, strict=True)
                ]
                advance(jobs, index, coroutine, shown, waiting)
                scope_locks.advanced(index, sessions[index], ended=len(waiting) == before)
                if jobs[index].error is not None and scope_locks.was_read_by_others(index):
                    jobs[index].acted = True
        done = [index for index, job in enumerate(jobs) if job.error is None and not job.deferred]
        for index in done:
            jobs[index].ended(sessions[index])
        return [sessions[index] for index in done]

    @staticmethod
    def _must_defer(
        job: QueuedOperation,
        waiting: Waiting,
        locked: dict[tuple[Statement, tuple[Any, ...]], int],
        scope_locks: ScopeLocks,
    ) -> bool:
        """Row locks do not part operations of one transaction: whoever asks second waits for the next group."""
        index, coroutine, fetches = waiting
        for fetch in fetches:
            if not fetch.statement.locks or scope_locks.covers(fetch.statement):
                continue
            if locked.setdefault((fetch.statement, fetch.values), index) != index:
                assert not scope_locks.was_read_by_others(index), (
                    "nothing is locked after the scopes are recorded"
                )
                _defer(job, coroutine)
        return job.deferred

    def _notes(self, sessions: Sequence[Session]) -> Sequence[str]:
        """What has the other servers look, unless the bells travel to them another way."""
        node = self._shared.node
        if node is None:
            return ()
        return list(_payloads(node, dict.fromkeys(topic for each in sessions for topic in each.topics)))

    async def _connected(self) -> PipelinedConnection:
        """The session of this line, with its limits set and its statements prepared; one that is not is given up."""
        if self._connection is None or self._connection.is_closed():
            connection = await pipeline.connect(
                self._shared.url,
                timeout=CONNECT_S_MAX,
                server_settings=session_limits.server_settings(self._limits),
                command_timeout=self._limits.reply_timeout_s,
                statement_cache_size=STATEMENTS_KEPT,
            )
            try:
                await session_limits.limit_transactions(connection, self._limits)
                await prepare_piggybacked(connection)
            except BaseException:
                connection.terminate()
                raise
            self._connection = connection
            self._shared.moments.forget()
        return self._connection

    async def _roll_back(self, connection: PipelinedConnection) -> None:
        try:
            await connection.execute("ROLLBACK", timeout=ROLLBACK_S_MAX)
        except Exception:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


class _DivertingLine(_GroupLine):
    """A line on which no operation waits for a row that only another operation of its group wants.

    Operations of unrelated queues share a transaction. Where one of them meets a row that another session has locked,
    a frozen one for example, the group is rolled back after a moment and its operations are tried one by one; those
    that are blocked wait on a second connection, the diversion, and the line goes on with the others. A group that
    takes longer than a short write may is diverted as a whole. Operations with one key keep their order: as long as
    one of them is diverted, so are those behind it.

    A key whose operation was diverted stays contended for a while: its operations have transactions of their own, so
    that this server, if it stops in one of them, does not hold the rows of other queues with it.
    """

    def __init__(self, shared: _Shared, limits: SessionLimits, long: SessionLimits) -> None:
        brief = replace(limits, lock_ms=min(DIVERSION_LOCK_MS, limits.lock_ms))
        super().__init__(shared, brief, long)
        self._patient = replace(limits, lock_ms=min(BLOCKED_LOCK_MS, limits.lock_ms))
        self._patience_s = 1.5 * TRIES * limits.lock_ms / 1000
        """How long in all an operation waits for rows that others have locked."""
        self._diverted: Counter[str] = Counter()
        self._diversion: _Diversion | None = None
        self._contended: dict[str, float] = {}
        """Until when each key has transactions of its own."""

    def _waiting(self) -> int:
        return len(self._jobs) + self._diverted.total()

    async def close(self) -> None:
        await super().close()
        if self._diversion is not None:
            await self._diversion.close()

    def _next_group(self) -> list[QueuedOperation]:
        if self._diverted:
            behind = [job for job in self._jobs if job.key in self._diverted]
            self._jobs = deque(job for job in self._jobs if job.key not in self._diverted)
            self._divert(behind)
        if not self._contended:
            return super()._next_group()
        now = time.monotonic()
        self._contended = {key: until for key, until in self._contended.items() if until > now}
        return self._next_in_turns(self._contended)

    def _check_again(self, error: Exception, failures: int) -> None:
        if isinstance(error, asyncpg.LockNotAvailableError):
            raise _Blocked from error
        super()._check_again(error, failures)

    async def _settle_blocked(self, jobs: list[QueuedOperation]) -> None:
        if len(jobs) == 1:
            self._divert(jobs, blocked=True)
            return
        for place, job in enumerate(jobs):
            if sum(each.key in self._diverted for each in jobs[:place]) == BLOCKED_MAX:
                self._divert(jobs[place:])
                return
            await self._settle([job])

    async def _settle_slow(self, jobs: list[QueuedOperation]) -> None:
        """What needs more time has it on the diversion; others do not wait for it."""
        self._group_max = max(1, len(jobs) // 2)
        self._divert(jobs)

    def _divert(self, jobs: list[QueuedOperation], *, blocked: bool = False) -> None:
        if not jobs:
            return
        if self._diversion is None:
            self._diversion = _Diversion(
                self._shared, self._patient, self._long, self._patience_s, self._came_back
            )
        self._diverted.update(job.key for job in jobs)
        self._diversion.submit(jobs)
        if blocked:
            self._diversion.note_blocked(jobs[0])

    def _came_back(self, job: QueuedOperation) -> None:
        self._diverted[job.key] -= 1
        if not self._diverted[job.key]:
            del self._diverted[job.key]
        self._contended.pop(job.key, None)
        self._contended[job.key] = time.monotonic() + CONTENDED_S
        if len(self._contended) > CONTENDED_MAX:
            del self._contended[next(iter(self._contended))]


class _Diversion(_GroupLine):
    """Where operations wait for rows that another session has locked, or take long; it connects when there are some.

    Operations that are blocked have a transaction each, wait for their row for a moment at a time, and take turns with
    each other and with what was not tried yet. One that is too slow is given the limits of long writes once the others
    have had their turn; where several are too slow it is the database, and the rest is tried together with them.
    """

    def __init__(
        self,
        shared: _Shared,
        limits: SessionLimits,
        long: SessionLimits,
        reply_timeout_s: float,
        on_settled: Callable[[QueuedOperation], None],
    ) -> None:
        super().__init__(shared, limits, long)
        self._patience_s = reply_timeout_s
        self._on_settled = on_settled
        self._blocked: dict[str, float] = {}
        """Keys whose first operation is blocked, in the order of their turns, and since when it is."""
        self._slow: list[QueuedOperation] | None = None
        """What was too slow, while operations of a group are tried one by one."""

    def note_blocked(self, job: QueuedOperation) -> float:
        """The first operation of a key is blocked; returns since when, on the monotonic clock."""
        return self._blocked.setdefault(job.key, time.monotonic())

    def _settled(self, job: QueuedOperation) -> None:
        self._blocked.pop(job.key, None)
        self._on_settled(job)

    def _next_group(self) -> list[QueuedOperation]:
        if not self._blocked:
            return super()._next_group()
        return self._next_in_turns(self._blocked)

    async def _wait_for_jobs(self) -> None:
        while not self._arrived.is_set():
            try:
                await asyncio.wait_for(self._arrived.wait(), DIVERSION_IDLE_S if self._connection else None)
            except TimeoutError:
                self._hang_up()

    def _check_again(self, error: Exception, failures: int) -> None:
        if isinstance(error, asyncpg.LockNotAvailableError):
            raise _Blocked from error
        super()._check_again(error, failures)

    async def _settle_blocked(self, jobs: list[QueuedOperation]) -> None:
        if len(jobs) > 1:
            await self._settle_each(jobs)
            return
        since = self.note_blocked(jobs[0])
        if time.monotonic() - since < self._patience_s:
            self._jobs.extendleft(jobs)
            return
        jobs[0].error = unavailable(asyncpg.LockNotAvailableError("a row is locked by another session"))
        self._answer(jobs)

    async def _settle_slow(self, jobs: list[QueuedOperation]) -> None:
        if self._limits is self._long:
            for job in jobs:
                job.error = too_slow(_TooSlow())
            self._answer(jobs)
        elif len(jobs) > 1:
            await self._settle_each(jobs)
        elif self._slow is not None:
            self._slow += jobs
        else:
            await self._settle_long(jobs)

    async def _settle_each(self, jobs: list[QueuedOperation]) -> None:
        """Commit each operation for itself, until a few are known to be blocked or too slow."""
        rest, blocked_before = deque(jobs), len(self._blocked)
        slow = self._slow = []
        while rest and len(slow) < SLOW_MAX and len(self._blocked) - blocked_before < BLOCKED_MAX:
            await self._settle([rest.popleft()])
        self._slow = None
        if len(slow) < SLOW_MAX:
            self._jobs.extendleft(reversed(rest))
        elif rest:
            await self._settle_long(list(rest))
        for job in slow:
            await self._settle_long([job])

    async def _settle_long(self, jobs: list[QueuedOperation]) -> None:
        """Operations that were too slow get the limits of long ones, on a session of their own."""
        log.warning("too slow; trying with more time", operations=len(jobs), key=jobs[0].key)
        self._hang_up()
        usual, self._limits = self._limits, self._long
        try:
            await self._settle(jobs)
        finally:
            self._limits = usual
            self._hang_up()


def _has_acted(fetch: Fetch, answer: Rows) -> bool:
    """Whether a question has changed something: one that says what it changed may have found nothing to change."""
    return fetch.statement.acts and bool(answer or not fetch.statement.answers)


def _defer(job: QueuedOperation, coroutine: Coroutine[Any, Any, Any]) -> None:
    """The operation runs again from its beginning, in the next group."""
    coroutine.close()
    job.deferred = True


async def _keep_as_is(_connection: object) -> None:
    """Readers change no setting, hold no lock and listen to nothing: there is nothing to reset after them."""


async def _is_writable(connection: Connection) -> bool:
    writable = "SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'"
    try:
        return bool(await connection.fetchval(writable, timeout=3))
    except TimeoutError:
        connection.terminate()
        raise


def _payloads(node: str, topics: Iterable[Topic]) -> Iterable[str]:
    """The bells as few notifications, each below the database's limit and marked with who rang."""
    text = node
    for topic in topics:
        if len(text) + len(topic) + 1 > NOTIFY_BYTES_MAX:
            yield text
            text = node
        text += "," + topic
    if text != node:
        yield text


async def wait_until_writable(url: str, wait_s: float) -> None:
    """Return once the database takes connections and writes.

    One that starts up, recovers or is promoted is asked again until `wait_s` have passed; then, and at once where
    waiting does not help (a wrong password, no such database), `Unavailable` is raised.
    """
    ends_at = time.monotonic() + wait_s
    reminded_at: float | None = None
    while (obstacle := await _obstacle(url)) is not None:
        now = time.monotonic()
        if now >= ends_at:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                f"PostgreSQL {obstacle}; a starting server waited {wait_s:g} s for it (DW_DATABASE_WAIT_SECONDS). "
                "Start the database, or name another one in DW_DATABASE_URL.",
                outcome="none",
                retryable=True,
            )
        if reminded_at is None or now - reminded_at >= REMIND_S:
            reminded_at = now
            log.warning("waiting for PostgreSQL", obstacle=obstacle, seconds_left=round(ends_at - now))
        await asyncio.sleep(min(LOOK_AGAIN_S, max(0.0, ends_at - now)))


async def _obstacle(url: str) -> str | None:
    """Why the database cannot be used yet; None where it can."""
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_S_MAX)
    except (asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError) as error:
        return f"takes no connections yet ({error})"
    except (*DISCONNECTED, asyncpg.PostgresError) as error:
        if isinstance(error, asyncpg.PostgresError) and not isinstance(
            error, asyncpg.PostgresConnectionError
        ):
            raise refused(error) from error
        return f"cannot be reached ({type(error).__name__})"
    try:
        return None if await _is_writable(connection) else "takes no writes: a standby, or read-only"
    except (*DISCONNECTED, asyncpg.PostgresError) as error:
        return f"does not answer ({type(error).__name__})"
    finally:
        connection.terminate()


async def migrate(url: str) -> list[int]:
    """Bring the schema up to date; of several that try at once one works and the others wait."""
    connection = await _connect_once(url)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(number BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
        )
        missing = await _missing(connection)
        for migration in missing:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO migrations VALUES ($1, $2, $3)",
                    migration.number,
                    migration.name,
                    migration.checksum,
                )
        return [migration.number for migration in missing]
    finally:
        await connection.close()


async def missing_migrations(url: str) -> Sequence[Migration]:
    connection = await _connect_once(url)
    try:
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return migrations(Dialect.POSTGRES)
        return await _missing(connection)
    finally:
        await connection.close()


async def require_current_schema(url: str) -> None:
    missing = await missing_migrations(url)
    if missing:
        raise outdated(missing)


async def _missing(connection: Connection) -> Sequence[Migration]:
    rows = await connection.fetch("SELECT number, checksum FROM migrations")
    return pending(migrations(Dialect.POSTGRES), {row[0]: row[1] for row in rows})


async def _connect_once(url: str) -> Connection:
    try:
        return await asyncpg.connect(url, timeout=10, server_settings=session_limits.UNLIMITED)
    except (*DISCONNECTED, asyncpg.PostgresError) as error:
        raise unavailable(error) from error
