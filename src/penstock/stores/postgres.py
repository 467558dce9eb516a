"""The shared store: PostgreSQL under any number of servers.

Operations that arrive together run in lock-step inside one short transaction: equal questions of all of them
travel as one statement, and so do equal writes at the end. Rows are locked in one order (see `ports.store`);
the database's time is everybody's time; a serialization failure or deadlock runs the group again.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import asyncpg
import structlog

from penstock.errors import Reason, Unavailable
from penstock.ports.store import Keyed, Line, Operation
from penstock.ports.wakeups import Bell, Wakeups
from penstock.stores import postgres_wire
from penstock.stores.driving import Job, Moment, OnMoment, job_of, jobs_of, ordered_writes, undisturbed
from penstock.stores.migrating import Migration, migrations, outdated, pending
from penstock.stores.postgres_moments import Moments
from penstock.stores.postgres_reading import Readers
from penstock.stores.postgres_talk import (
    GONE,
    TRY_AGAIN,
    Connection,
    Waiting,
    advance,
    answer_all,
    is_outage,
    unavailable,
)
from penstock.stores.postgres_transactions import Transaction, make_ready, sendings
from penstock.stores.postgres_wire import WiredConnection
from penstock.stores.sql.catalogue import Dialect, Statement, catalogue, reading_catalogue
from penstock.stores.sql.known import Known
from penstock.stores.sql.merging import Habits
from penstock.stores.sql.session import Ask, Rows, Session
from penstock.stores.sql.turns import Turns
from penstock.stores.sql.tx import SqlTx

T = TypeVar("T")
GROUP_MAX = 128
WAITING_MAX = 20_000
TRIES = 6
PAUSE_S_MAX = 2.0
"""Longest pause before a group is tried again: a database that is back is noticed within it."""
WORK_LINES = 2
SHARDS = 16
"""Over so many rows the ends of a scope's leases are counted, so that connections seldom wait for each other."""
NOTIFY_BYTES_MAX = 7000
STATEMENTS_KEPT = 256
"""So many statements a connection keeps prepared: those of the catalogue that it needs, and usual batches of writes."""
MIGRATION_LOCK = zlib.crc32(b"penstock migrations")
log = structlog.get_logger("penstock.store")


class _LeftTraces(Exception):
    """An operation was refused after it had reserved something: the group runs again without it."""


class PostgresStore:
    """Made by `open`. Its schema is made by `migrate`, never on start: several servers share it."""

    def __init__(
        self,
        url: str,
        node: str | None,
        wakeups: Wakeups,
        readers: asyncpg.Pool[asyncpg.Record],
        statement_timeout_ms: int,
        on_moment: OnMoment,
        journals: bool,
    ) -> None:
        self._readers = readers
        self.journals = journals
        self._wakeups = wakeups
        self._statements = catalogue(Dialect.POSTGRES)
        self._known = Known()
        moments = Moments()
        self._reads = Readers(readers, reading_catalogue(Dialect.POSTGRES), self._known, moments)
        lines = [
            _GroupLine(
                url,
                node,
                self._statements,
                self._known,
                moments,
                wakeups,
                statement_timeout_ms,
                on_moment,
                journals,
            )
            for _ in range(WORK_LINES + 3)
        ]
        self._lines = {Line.CLAIM: lines[0], Line.CHANGE: lines[1], Line.PERMIT: lines[2]}
        self._work = lines[3:]
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
        on_moment: OnMoment = undisturbed,
        journals: bool = False,
    ) -> PostgresStore:
        await require_current_schema(url)
        readers = await postgres_wire.create_pool(
            url,
            min_size=1,
            max_size=pool_size,
            server_settings=_server_settings(statement_timeout_ms),
            command_timeout=_patience_s(statement_timeout_ms),
            reset=_keep_as_is,
            init=make_ready,
        )
        return cls(url, node, wakeups, readers, statement_timeout_ms, on_moment, journals)

    async def transact(self, operation: Operation[T], *, key: str, line: Line = Line.WORK) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._hand_in([job_of(operation, key, future)], line)
        return await future

    async def transact_each(self, asked: Sequence[Keyed[T]]) -> Sequence[T | Exception]:
        future: asyncio.Future[list[T | Exception]] = asyncio.get_running_loop().create_future()
        self._hand_in(jobs_of(asked, future), Line.WORK)
        return await future

    def _hand_in(self, jobs: Sequence[Job], line: Line) -> None:
        """Give each operation to its line, unless one of the lines has enough to do."""
        if self._closing:
            raise Unavailable(Reason.SERVER_DRAINING, "The store is closing.", outcome="none")
        parts: dict[_GroupLine, list[Job]] = {}
        for job in jobs:
            parts.setdefault(self._runner(job.key, line), []).append(job)
        for runner, part in parts.items():
            runner.check_room(len(part))
        for runner, part in parts.items():
            runner.submit(part)

    def _runner(self, key: str, line: Line) -> _GroupLine:
        return self._lines.get(line) or self._work[zlib.crc32(key.encode()) % WORK_LINES]

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        return cast("T", await self._reads.read(operation, long=long))

    async def check(self) -> None:
        try:
            async with self._readers.acquire(timeout=3) as connection:
                writable = await _is_writable(cast("Connection", connection))
        except (*GONE, asyncpg.PostgresError) as error:
            raise unavailable(error) from error
        if not writable:
            await self._readers.expire_connections()  # a session stays as it was told to be when it began
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                "PostgreSQL takes no writes here: a standby, or read-only.",
                outcome="none",
            )

    async def close(self) -> None:
        self._closing = True
        await asyncio.gather(*(line.close() for line in (*self._lines.values(), *self._work)))
        await self._reads.close()
        await self._readers.close()


class _GroupLine:
    """One connection on which groups of operations commit one after the other."""

    def __init__(
        self,
        url: str,
        node: str | None,
        statements: Mapping[str, Statement],
        known: Known,
        moments: Moments,
        wakeups: Wakeups,
        statement_timeout_ms: int,
        on_moment: OnMoment,
        journals: bool,
    ) -> None:
        self._url = url
        self._journals = journals
        self._node = node
        self._statements = statements
        self._known = known
        self._moments = moments
        self._shard = random.randrange(SHARDS)
        self._wakeups = wakeups
        self._statement_timeout_ms = statement_timeout_ms
        self._on_moment = on_moment
        self._jobs: deque[Job] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._connection: WiredConnection | None = None
        self._habits = Habits()
        self._questions = Habits()
        self._runner = asyncio.create_task(self._run(), name="penstock-group-line")

    def check_room(self, more: int) -> None:
        if len(self._jobs) + more > WAITING_MAX:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                "The database does not keep up. Try again shortly.",
                outcome="none",
            )

    def submit(self, jobs: Sequence[Job]) -> None:
        self._jobs.extend(jobs)
        self._arrived.set()

    async def close(self) -> None:
        """Finish what was handed in, then hang up."""
        self._closing = True
        self._arrived.set()
        await self._runner
        if self._connection is not None:
            await self._connection.close()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            while self._jobs:
                await self._settle(self._next_group())
            if self._closing:
                return
            self._arrived.clear()

    def _next_group(self) -> list[Job]:
        """The oldest operations, one per key: those that share a key must see each other's outcome."""
        chosen: dict[str, Job] = {}
        later: list[Job] = []
        while self._jobs and len(chosen) < GROUP_MAX:
            job = self._jobs.popleft()
            if job.key in chosen:
                later.append(job)
            elif not job.future.cancelled():
                chosen[job.key] = job
        self._jobs.extendleft(reversed(later))
        return list(chosen.values())

    async def _settle(self, jobs: list[Job]) -> None:
        """Commit the group, or say why not: together if that works, else one by one."""
        try:
            await self._commit_with_patience(jobs)
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
        later = [job for job in jobs if job.stands_back and job.error is None]
        self._jobs.extendleft(reversed(later))
        settled = [job for job in jobs if job not in later]
        for job in settled:
            job.answer()
            if job.error is None:
                self._known.learn(job.learned)
        bells = {bell: None for job in settled if job.error is None for bell in job.bells}
        if bells:
            self._wakeups.ring(bells)

    async def _commit_with_patience(self, jobs: list[Job]) -> None:
        failures = 0
        while jobs:
            for job in jobs:
                job.begin_again()
            try:
                await self._commit(jobs)
                return
            except _LeftTraces:
                jobs = [job for job in jobs if not (job.error is not None and job.acted)]
            except TimeoutError as error:  # a database that is silent is not asked again while callers wait
                raise unavailable(error) from error
            except (*TRY_AGAIN, *GONE) as error:
                failures += 1
                if failures == TRIES:
                    raise unavailable(error) from error
                log.info("trying a group again", error=type(error).__name__, failures=failures)
                await asyncio.sleep(random.uniform(0, min(PAUSE_S_MAX, 0.02 * 4**failures)))
            except asyncpg.PostgresError as error:
                if not is_outage(error):
                    raise
                self._hang_up()
                raise unavailable(error) from error

    async def _commit(self, jobs: list[Job]) -> None:
        connection = await self._connected()
        transaction = Transaction(connection, self._questions)
        committing = False
        try:
            now_ms = await self._moments.now_ms(connection)
            turns = Turns(self._statements)
            sessions = await self._operate(transaction, jobs, now_ms, turns)
            if any(job.error is not None and job.acted for job in jobs):
                raise _LeftTraces
            writes = [(each, turns.written(each, rows)) for each, rows in ordered_writes(sessions)]
            sent = sendings(writes, self._notes(sessions), self._habits)
            for sending in sent[:-1]:
                await transaction.write(sending)
            self._on_moment(Moment.BEFORE_COMMIT)
            committing = True
            await transaction.commit(sent[-1] if sent else None)
            self._on_moment(Moment.AFTER_COMMIT)
        except BaseException as error:
            if committing and isinstance(error, GONE):
                self._hang_up()
                raise Unavailable(
                    Reason.OUTCOME_UNKNOWN,
                    "The connection broke during commit, so nobody can say whether this happened. "
                    "Ask for its state. A request that names an id or a key may be sent again: it counts once.",
                    outcome="unknown",
                ) from error
            if isinstance(error, TimeoutError):
                self._hang_up()
            elif transaction.begun or not isinstance(error, asyncpg.PostgresError | _LeftTraces):
                await self._roll_back(connection)
            raise

    async def _operate(
        self, transaction: Transaction, jobs: list[Job], now_ms: int, turns: Turns
    ) -> list[Session]:
        """Advance all operations in lock-step, merging equal questions, until each has ended."""
        sessions: dict[int, Session] = {}
        waiting: list[Waiting] = []
        for index, job in enumerate(jobs):
            session = sessions[index] = Session(
                self._statements, now_ms, self._shard, journals=self._journals
            )
            advance(jobs, index, job.operation(SqlTx(session, self._known)), None, waiting)
        locked: dict[tuple[Statement, tuple[Any, ...]], int] = {}
        while waiting:
            going: list[Waiting] = []
            later: list[Waiting] = []
            for each in waiting:
                index, _, asks = each
                if self._must_stand_back(jobs[index], each, locked, turns):
                    turns.moved(index, sessions[index], ended=True)
                else:
                    (going if turns.may_go(index, asks) else later).append(each)
            assert going or not later, "whoever has a scope goes on"
            asked = [ask for _, _, asks in going for ask in turns.asked(asks)]
            rows = await answer_all(transaction, asked)
            waiting, place = later, 0
            for index, coroutine, asks in going:
                answers = rows[place : place + len(asks)]
                place += len(asks)
                if not turns.got_all(asks, answers):
                    _stand_back(jobs[index], coroutine)
                    turns.moved(index, sessions[index], ended=True)
                    continue
                jobs[index].acted |= any(map(_has_acted, asks, answers))
                before = len(waiting)
                shown = [turns.seen(ask, each) for ask, each in zip(asks, answers, strict=True)]
                advance(jobs, index, coroutine, shown, waiting)
                turns.moved(index, sessions[index], ended=len(waiting) == before)
                if jobs[index].error is not None and turns.was_shown(index):
                    jobs[index].acted = True
        done = [index for index, job in enumerate(jobs) if job.error is None and not job.stands_back]
        for index in done:
            jobs[index].ended(sessions[index])
        return [sessions[index] for index in done]

    @staticmethod
    def _must_stand_back(
        job: Job, waiting: Waiting, locked: dict[tuple[Statement, tuple[Any, ...]], int], turns: Turns
    ) -> bool:
        """Row locks do not part operations of one transaction: whoever asks second waits for the next group."""
        index, coroutine, asks = waiting
        for ask in asks:
            if not ask.statement.locks or turns.takes(ask.statement):
                continue
            if locked.setdefault((ask.statement, ask.values), index) != index:
                assert not turns.was_shown(index), "nothing is locked after the scopes are recorded"
                _stand_back(job, coroutine)
        return job.stands_back

    def _notes(self, sessions: Sequence[Session]) -> Sequence[str]:
        """What has the other servers look, unless the bells travel to them another way."""
        if self._node is None:
            return ()
        return list(_payloads(self._node, dict.fromkeys(bell for each in sessions for bell in each.bells)))

    async def _connected(self) -> WiredConnection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await postgres_wire.connect(
                self._url,
                timeout=5,
                server_settings=_server_settings(self._statement_timeout_ms),
                command_timeout=_patience_s(self._statement_timeout_ms),
                statement_cache_size=STATEMENTS_KEPT,
            )
            await make_ready(self._connection)
            self._moments.forget()
        return self._connection

    async def _roll_back(self, connection: WiredConnection) -> None:
        try:
            await connection.execute("ROLLBACK", timeout=5)
        except Exception:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _has_acted(ask: Ask, answer: Rows) -> bool:
    """Whether a question has changed something: one that says what it changed may have found nothing to change."""
    return ask.statement.acts and bool(answer or not ask.statement.answers)


def _stand_back(job: Job, coroutine: Coroutine[Any, Any, Any]) -> None:
    """The operation runs again from its beginning, in the next group."""
    coroutine.close()
    job.stands_back = True


async def _keep_as_is(_connection: object) -> None:
    """Readers change no setting, hold no lock and listen to nothing: there is nothing to reset after them."""


async def _is_writable(connection: Connection) -> bool:
    writable = "SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'"
    try:
        return bool(await connection.fetchval(writable, timeout=3))
    except TimeoutError:
        connection.terminate()
        raise


def _payloads(node: str, bells: Iterable[Bell]) -> Iterable[str]:
    """The bells as few notifications, each below the database's limit and marked with who rang."""
    text = node
    for bell in bells:
        if len(text) + len(bell) + 1 > NOTIFY_BYTES_MAX:
            yield text
            text = node
        text += "," + bell
    if text != node:
        yield text


def _server_settings(statement_timeout_ms: int) -> dict[str, str]:
    return {
        "application_name": "penstock",
        "statement_timeout": str(statement_timeout_ms),
        "lock_timeout": "5000",
        "idle_in_transaction_session_timeout": "30000",
        # Every statement here is served by an index and over in a moment: compiling it never pays, and a table
        # must not be read from end to end because its statistics are old.
        "jit": "off",
        "enable_seqscan": "off",
        "random_page_cost": "1.1",
    }


def _patience_s(statement_timeout_ms: int) -> float:
    """How long we wait for an answer: a little longer than the database itself would work on it."""
    return statement_timeout_ms / 1000 + 5


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
        return await asyncpg.connect(url, timeout=10)
    except (*GONE, asyncpg.PostgresError) as error:
        raise unavailable(error) from error
