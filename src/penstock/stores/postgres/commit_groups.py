"""Group commit on PostgreSQL: one connection, one group of operations after the other.

Theory of operation
-------------------
A `GroupCommitter` owns a connection and a queue (see `stores.group_commit` for what all groups have in common). It
takes up to `GROUP_MAX` operations with different keys and advances their coroutines in lock-step: in each round the
fetches of all operations are collected, equal statements are sent as one (`batched_queries`), and each coroutine
continues with its rows. When all have ended, their writes are sorted into the order that every server keeps and sent
in as few statements as possible, the last of them together with COMMIT (`pipeline`). A group thus needs a handful of
round trips, however many operations it has.

Row locks do not separate operations that share a transaction. An operation that asks for a row which another one of
its group has locked is deferred to the next group; rows of scopes, which nearly all claims need, are passed from one
operation to the next inside the transaction instead (`sql.scope_locks`).

What is done about a failure:

| Failure | Reaction |
|---|---|
| serialization failure, deadlock, lost connection before COMMIT | the group runs again, with backoff, `TRIES` times |
| an operation failed after it had changed rows | the group runs again without it (`DirtyFailure`) |
| a statement is refused | the operations run one by one, so that only the cause fails |
| a time limit of the session (`session_limits`) | half the group, down to a single operation (`TooSlow`) |
| a row lock that is not released in time | `Blocked`; see `diversion` |
| lost connection after COMMIT was sent | `outcome_unknown`: the callers must look, nothing is retried |

Invariant: a transaction that began more than `decide_ms` ago is not committed. What it read may be outdated, because
the server may have been suspended since, and the database would end its session anyway (`_Stale`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import asyncpg
import structlog

from penstock.errors import Reason, Unavailable
from penstock.ports.wakeups import Topic, Wakeups
from penstock.stores.group_commit import (
    CommitHook,
    CommitPoint,
    DirtyFailure,
    QueuedOperation,
    WriteHealth,
    deliver,
    ordered_writes,
)
from penstock.stores.postgres import pipeline, session_limits
from penstock.stores.postgres.database_clock import DatabaseClock
from penstock.stores.postgres.errors import (
    DISCONNECTED,
    RETRYABLE,
    is_outage,
    is_timeout,
    too_slow,
    unavailable,
    was_ended_idle,
)
from penstock.stores.postgres.lock_step import LockStep
from penstock.stores.postgres.pipeline import PipelinedConnection
from penstock.stores.postgres.session_limits import SessionLimits
from penstock.stores.postgres.transactions import (
    OutgoingStatement,
    PipelinedTransaction,
    outgoing_statements,
    prepare_piggybacked,
)
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.row_cache import ImmutableCache
from penstock.stores.sql.scope_locks import ScopeLocks
from penstock.stores.sql.session import Session
from penstock.stores.sql.statement_merger import HotBatches

GROUP_MAX = 128
WAITING_MAX = 20_000
TRIES = 6
PAUSE_S_MAX = 2.0
"""Longest pause before a group is retried: a database that is back is used again within it."""
STALE_MAX = 2
"""How many times a group may be stale at its commit before it counts as too slow."""
SHARDS = 16
"""The ended leases of a scope are counted in this many rows, so that connections rarely wait for each other."""
NOTIFY_BYTES_MAX = 7000
STATEMENTS_KEPT = 256
"""Prepared statements per connection: those of the catalogue that it uses, and hot batches of writes."""
CONNECT_S_MAX = 5.0
ROLLBACK_S_MAX = 2.0
CLOSE_S_MAX = 2.0
"""How long closing a connection waits for a database that does not answer."""
log = structlog.get_logger("penstock.store")


class Blocked(Exception):
    """Another session holds a row lock and did not release it in time. Nothing was changed."""


class TooSlow(Exception):
    """The database ended the transaction because it exceeded its time limit. Nothing was changed."""


class _Stale(Exception):
    """The group exceeded its decision time before the commit: what it read is too old to act on."""


@dataclass(frozen=True, slots=True)
class CommitResources:
    """What all committers of a store share."""

    url: str
    node: str | None
    statements: Mapping[str, Statement]
    immutable: ImmutableCache
    clock: DatabaseClock
    wakeups: Wakeups
    on_commit: CommitHook
    journals: bool
    write_health: WriteHealth


class GroupCommitter:
    """Commits groups of operations, one after the other, on one connection.

    Args:
        shared: what all committers of the store share.
        limits: the time limits of its session.
        long: the limits for a single operation that exceeded `limits`.
    """

    def __init__(self, shared: CommitResources, limits: SessionLimits, long: SessionLimits) -> None:
        self._shared = shared
        self._limits = limits
        self._long = long
        self._shard = random.randrange(SHARDS)
        self._jobs: deque[QueuedOperation] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._connection: PipelinedConnection | None = None
        self._hot_writes = HotBatches()
        self._hot_fetches = HotBatches()
        self._group_max = GROUP_MAX
        self._began_at: float | None = None
        self._apart_is_next = False
        self._runner = asyncio.create_task(self._run(), name="penstock-group-commit")

    @property
    def under_way_s(self) -> float:
        """How long the current group has been under way; 0 if there is none."""
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
        """Finish what was submitted, then disconnect."""
        self._closing = True
        self._arrived.set()
        await self._runner
        if self._connection is not None:
            try:
                await self._connection.close(timeout=CLOSE_S_MAX)
            except (*DISCONNECTED, asyncpg.PostgresError):
                self._disconnect()

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

    def _next_round_robin(self, apart: dict[str, float]) -> list[QueuedOperation]:
        """Alternate between a group without the keys in `apart` and a single operation of one of them, round robin."""
        self._apart_is_next = not self._apart_is_next
        waiting = {job.key for job in self._jobs}
        key = next((key for key in apart if key in waiting), None)
        if key is None or (waiting - apart.keys() and not self._apart_is_next):
            return self._take(lambda job: job.key not in apart)
        apart[key] = apart.pop(key)  # to the end of the round robin
        first = next(job for job in self._jobs if job.key == key)
        return self._take(lambda job: job is first)

    def _take(self, is_eligible: Callable[[QueuedOperation], bool]) -> list[QueuedOperation]:
        """The next group of the eligible operations; the others keep their order in the queue."""
        others = [job for job in self._jobs if not is_eligible(job)]
        self._jobs = deque(job for job in self._jobs if is_eligible(job))
        group = GroupCommitter._next_group(self)
        self._jobs.extendleft(reversed(others))
        return group

    def _next_group(self) -> list[QueuedOperation]:
        """The oldest operations, one per key: operations with one key must see each other's outcome."""
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
        """Commit the group and answer its callers; split it if it cannot be committed as a whole."""
        try:
            await self._commit_with_retries(jobs)
            self._group_max = min(GROUP_MAX, self._group_max * 2)
        except Blocked:
            await self._settle_blocked(jobs)
            return
        except TooSlow as error:
            if len(jobs) > 1 or self._limits is not self._long:
                await self._settle_slow(jobs)
                return
            log.warning("an operation exceeded its time limit and was given up", key=jobs[0].key)
            jobs[0].error = too_slow(error)
        except asyncpg.PostgresError as error:
            if len(jobs) > 1:
                log.warning(
                    "group failed; retrying its operations one by one", error=str(error), operations=len(jobs)
                )
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
        """Answer the callers and notify; operations that were deferred go back to the front of the queue."""
        self._jobs.extendleft(job for job in reversed(jobs) if job.must_run_again)
        done = [job for job in jobs if not job.must_run_again]
        for job in done:
            self._settled(job)
            if isinstance(job.error, Unavailable) and job.error.reason is Reason.STORAGE_FULL:
                self._shared.write_health.refused(job.error.reason)
        self._shared.write_health.committed += len(done)
        if topics := deliver(done, self._shared.immutable):
            self._shared.wakeups.notify(topics)

    def _settled(self, job: QueuedOperation) -> None:
        """Called when an operation leaves this committer; overridden where that is tracked."""

    async def _settle_blocked(self, jobs: list[QueuedOperation]) -> None:
        raise AssertionError("only a diverting committer raises Blocked")

    async def _settle_slow(self, jobs: list[QueuedOperation]) -> None:
        """Retry in two halves: each takes less time."""
        log.warning("a group exceeded its time limit; retrying in halves", operations=len(jobs))
        half = self._group_max = len(jobs) // 2
        await self._settle(jobs[:half])
        await self._settle(jobs[half:])

    async def _commit_with_retries(self, jobs: list[QueuedOperation]) -> None:
        failures = 0
        while jobs:
            for job in jobs:
                job.begin_again()
            try:
                await self._commit(jobs)
                return
            except DirtyFailure:
                jobs = [job for job in jobs if not (job.error is not None and job.is_dirty)]
            except (_Stale, *DISCONNECTED, asyncpg.PostgresError) as error:
                failures += 1
                self._check_retryable(error, failures)
                log.info("retrying a group", error=type(error).__name__, failures=failures)
                await asyncio.sleep(random.uniform(0, min(PAUSE_S_MAX, 0.02 * 4**failures)))

    def _check_retryable(self, error: Exception, failures: int) -> None:
        """Return if a failed group may be retried as it is; else raise what it has come to."""
        if is_timeout(error) or (isinstance(error, _Stale) and failures >= STALE_MAX):
            raise TooSlow from error
        if isinstance(error, TimeoutError):  # the database does not answer, and the callers have waited
            raise unavailable(error) from error
        if isinstance(error, (_Stale, *RETRYABLE, *DISCONNECTED)) or was_ended_idle(error):
            if failures >= TRIES:
                raise unavailable(error) from error
        elif isinstance(error, asyncpg.PostgresError) and is_outage(error):
            self._disconnect()
            raise unavailable(error) from error
        else:
            raise error

    async def _commit(self, jobs: list[QueuedOperation]) -> None:
        connection = await self._connected()
        transaction = PipelinedTransaction(connection, self._hot_fetches)
        began_at, keys = time.monotonic(), [job.key for job in jobs]
        try:
            outgoing = await self._run_operations(
                transaction, jobs, await self._shared.clock.now_ms(connection)
            )
            for statement in outgoing[:-1]:
                await transaction.write(statement)
            self._shared.on_commit(CommitPoint.BEFORE_COMMIT, keys)
            if time.monotonic() - began_at > self._limits.decide_ms / 1000:
                raise _Stale
            await transaction.commit(outgoing[-1] if outgoing else None)
            self._shared.on_commit(CommitPoint.AFTER_COMMIT, keys)
        except BaseException as error:
            await self._clean_up(connection, transaction, error)
            raise

    async def _run_operations(
        self, transaction: PipelinedTransaction, jobs: list[QueuedOperation], now_ms: int
    ) -> list[OutgoingStatement]:
        """Run the operations of a group; returns the writes of all."""
        shared = self._shared
        sessions = [
            Session(shared.statements, now_ms, shared.immutable, self._shard, journals=shared.journals)
            for _ in jobs
        ]
        scope_locks = ScopeLocks(shared.statements)
        done = await LockStep(transaction, jobs, sessions, scope_locks).run()
        if any(job.error is not None and job.is_dirty for job in jobs):
            raise DirtyFailure
        writes = [(each, scope_locks.final_rows(each, rows)) for each, rows in ordered_writes(done)]
        return outgoing_statements(writes, self._notes(done), self._hot_writes)

    async def _clean_up(
        self, connection: PipelinedConnection, transaction: PipelinedTransaction, error: BaseException
    ) -> None:
        """Roll back or disconnect after a failure; raises `Unavailable` if the outcome of the commit is unknown."""
        if transaction.commit_was_sent and isinstance(error, DISCONNECTED) and not was_ended_idle(error):
            self._disconnect()
            raise Unavailable(
                Reason.OUTCOME_UNKNOWN,
                "The connection broke during commit, so it is unknown whether this happened. "
                "Ask for its state. A request that names an id or a key may be sent again: it counts once.",
                outcome="unknown",
            ) from error
        if isinstance(error, TimeoutError):
            self._disconnect()
        elif transaction.begun or not isinstance(error, asyncpg.PostgresError | DirtyFailure | _Stale):
            await self._roll_back(connection)

    def _notes(self, sessions: Sequence[Session]) -> Sequence[str]:
        """The NOTIFY payloads for other servers; none where wakeups use another transport."""
        node = self._shared.node
        if node is None:
            return ()
        return list(_payloads(node, dict.fromkeys(topic for each in sessions for topic in each.topics)))

    async def _connected(self) -> PipelinedConnection:
        """The open connection, with its limits set and its piggybacked statements prepared."""
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
            self._shared.clock.forget()
        return self._connection

    async def _roll_back(self, connection: PipelinedConnection) -> None:
        try:
            await connection.execute("ROLLBACK", timeout=ROLLBACK_S_MAX)
        except Exception:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _payloads(node: str, topics: Iterable[Topic]) -> Iterable[str]:
    """The topics in as few notifications as fit the limit of PostgreSQL, each marked with the sending server."""
    text = node
    for topic in topics:
        if len(text) + len(topic) + 1 > NOTIFY_BYTES_MAX:
            yield text
            text = node
        text += "," + topic
    if text != node:
        yield text
