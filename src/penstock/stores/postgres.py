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
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import asyncpg
import structlog

from penstock.errors import Reason, Unavailable
from penstock.ports.store import Line, Operation, Tx
from penstock.ports.wakeups import Bell, Wakeups
from penstock.stores.driving import Job, Moment, OnMoment, ReadOnlySession, ordered_writes, undisturbed
from penstock.stores.migrating import Migration, migrations, outdated, pending
from penstock.stores.sql.catalogue import Dialect, Statement, catalogue, reading_catalogue
from penstock.stores.sql.known import Known
from penstock.stores.sql.session import Ask, Rows, Session
from penstock.stores.sql.turns import Turns
from penstock.stores.sql.tx import SqlTx

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
CHANNEL = "penstock_wakeups"
GROUP_MAX = 128
WAITING_MAX = 20_000
TRIES = 6
PAUSE_S_MAX = 2.0
"""Longest pause before a group is tried again: a database that is back is noticed within it."""
WORK_LINES = 2
SHARDS = 16
"""Over so many rows the ends of a scope's leases are counted, so that connections seldom wait for each other."""
NOTIFY_BYTES_MAX = 7000
NOW_MS = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
MIGRATION_LOCK = zlib.crc32(b"penstock migrations")
log = structlog.get_logger("penstock.store")

_TRY_AGAIN = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
)
_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg says when the connection breaks in the middle of an exchange
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    OSError,
)


class _LeftTraces(Exception):
    """An operation was refused after it had reserved something: the group runs again without it."""


_Waiting: TypeAlias = tuple[int, Coroutine[Any, Any, Any], tuple[Ask, ...]]
"""An operation that waits for answers: its place in the group, itself, and what it asked."""


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
        self._reading = reading_catalogue(Dialect.POSTGRES)
        self._known = Known()
        lines = [
            _GroupLine(
                url, node, self._statements, self._known, wakeups, statement_timeout_ms, on_moment, journals
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
        readers = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=pool_size,
            server_settings=_server_settings(statement_timeout_ms),
            command_timeout=_patience_s(statement_timeout_ms),
            reset=_keep_as_is,
        )
        return cls(url, node, wakeups, readers, statement_timeout_ms, on_moment, journals)

    async def transact(self, operation: Operation[T], *, key: str, line: Line = Line.WORK) -> T:
        if self._closing:
            raise Unavailable(Reason.SERVER_DRAINING, "The store is closing.", outcome="none")
        return cast("T", await self._runner(key, line).submit(operation, key))

    def _runner(self, key: str, line: Line) -> _GroupLine:
        return self._lines.get(line) or self._work[zlib.crc32(key.encode()) % WORK_LINES]

    async def read(self, operation: Operation[T]) -> T:
        try:
            async with self._readers.acquire(timeout=10) as connection:
                return await self._read_on(cast("Connection", connection), operation)
        except (*_GONE, asyncpg.PostgresError) as error:
            if isinstance(error, asyncpg.PostgresError) and not is_outage(error):
                raise
            raise unavailable(error) from error

    async def _read_on(self, connection: Connection, operation: Operation[T]) -> T:
        """All statements of a read see the same moment: a run that is succeeded in between is not shown as the last."""
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                session = ReadOnlySession(self._reading, await connection.fetchval(NOW_MS))
                operation_ = cast("Callable[[Tx], Coroutine[Any, Any, T]]", operation)
                coroutine = operation_(SqlTx(session, self._known))
                return cast("T", await _drive_alone(connection, coroutine))
        except TimeoutError:
            connection.terminate()  # it is silent: do not wait for it again when it goes back to the pool
            raise

    async def check(self) -> None:
        try:
            async with self._readers.acquire(timeout=3) as connection:
                writable = await _is_writable(cast("Connection", connection))
        except (*_GONE, asyncpg.PostgresError) as error:
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
        await self._readers.close()


class _GroupLine:
    """One connection on which groups of operations commit one after the other."""

    def __init__(
        self,
        url: str,
        node: str | None,
        statements: Mapping[str, Statement],
        known: Known,
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
        self._shard = random.randrange(SHARDS)
        self._wakeups = wakeups
        self._statement_timeout_ms = statement_timeout_ms
        self._on_moment = on_moment
        self._jobs: deque[Job] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._connection: Connection | None = None
        self._runner = asyncio.create_task(self._run(), name="penstock-group-line")

    async def submit(self, operation: Operation[T], key: str) -> T:
        if len(self._jobs) >= WAITING_MAX:
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                "The database does not keep up. Try again shortly.",
                outcome="none",
            )
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append(Job(cast("Callable[[Tx], Coroutine[Any, Any, T]]", operation), key, future))
        self._arrived.set()
        return await future

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
            except (*_TRY_AGAIN, *_GONE) as error:
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
        committing = False
        try:
            await connection.execute("BEGIN")
            now_ms = await connection.fetchval(NOW_MS)
            turns = Turns(self._statements)
            sessions = await self._operate(connection, jobs, now_ms, turns)
            if any(job.error is not None and job.acted for job in jobs):
                raise _LeftTraces
            for statement, rows in ordered_writes(sessions):
                await _write(connection, statement, turns.written(statement, rows))
            await self._notify(connection, [bell for session in sessions for bell in session.bells])
            self._on_moment(Moment.BEFORE_COMMIT)
            committing = True
            await connection.execute("COMMIT")
            self._on_moment(Moment.AFTER_COMMIT)
        except BaseException as error:
            if committing and isinstance(error, _GONE):
                self._hang_up()
                raise Unavailable(
                    Reason.OUTCOME_UNKNOWN,
                    "The connection broke during commit, so nobody can say whether this happened. "
                    "Ask for its state. A request that names an id or a key may be sent again: it counts once.",
                    outcome="unknown",
                ) from error
            if isinstance(error, TimeoutError):
                self._hang_up()
            else:
                await self._roll_back(connection)
            raise

    async def _operate(
        self, connection: Connection, jobs: list[Job], now_ms: int, turns: Turns
    ) -> list[Session]:
        """Advance all operations in lock-step, merging equal questions, until each has ended."""
        sessions: dict[int, Session] = {}
        waiting: list[_Waiting] = []
        for index, job in enumerate(jobs):
            session = sessions[index] = Session(
                self._statements, now_ms, self._shard, journals=self._journals
            )
            _advance(jobs, index, job.operation(SqlTx(session, self._known)), None, waiting)
        locked: dict[tuple[Statement, tuple[Any, ...]], int] = {}
        while waiting:
            going: list[_Waiting] = []
            later: list[_Waiting] = []
            for each in waiting:
                index, _, asks = each
                if self._must_stand_back(jobs[index], each, locked, turns):
                    turns.moved(index, sessions[index], ended=True)
                else:
                    (going if turns.may_go(index, asks) else later).append(each)
            assert going or not later, "whoever has a scope goes on"
            asked = [ask for _, _, asks in going for ask in turns.asked(asks)]
            rows = await _answer_all(connection, asked)
            waiting, place = later, 0
            for index, coroutine, asks in going:
                answers = rows[place : place + len(asks)]
                place += len(asks)
                if not turns.got_all(asks, answers):
                    _stand_back(jobs[index], coroutine)
                    turns.moved(index, sessions[index], ended=True)
                    continue
                before = len(waiting)
                shown = [turns.seen(ask, each) for ask, each in zip(asks, answers, strict=True)]
                _advance(jobs, index, coroutine, shown, waiting)
                turns.moved(index, sessions[index], ended=len(waiting) == before)
                if jobs[index].error is not None and turns.was_shown(index):
                    jobs[index].acted = True
        done = [index for index, job in enumerate(jobs) if job.error is None and not job.stands_back]
        for index in done:
            jobs[index].ended(sessions[index])
        return [sessions[index] for index in done]

    @staticmethod
    def _must_stand_back(
        job: Job, waiting: _Waiting, locked: dict[tuple[Statement, tuple[Any, ...]], int], turns: Turns
    ) -> bool:
        """Row locks do not part operations of one transaction: whoever asks second waits for the next group."""
        index, coroutine, asks = waiting
        for ask in asks:
            job.acted = job.acted or ask.statement.acts
            if not ask.statement.locks or turns.takes(ask.statement):
                continue
            if locked.setdefault((ask.statement, ask.values), index) != index:
                assert not turns.was_shown(index), "nothing is locked after the scopes are recorded"
                _stand_back(job, coroutine)
        return job.stands_back

    async def _notify(self, connection: Connection, bells: Iterable[Bell]) -> None:
        """Have the other servers look, unless the bells travel to them another way."""
        if self._node is None:
            return
        for payload in _payloads(self._node, dict.fromkeys(bells)):
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(
                self._url,
                timeout=5,
                server_settings=_server_settings(self._statement_timeout_ms),
                command_timeout=_patience_s(self._statement_timeout_ms),
            )
        return self._connection

    async def _roll_back(self, connection: Connection) -> None:
        try:
            await connection.execute("ROLLBACK", timeout=5)
        except Exception:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _stand_back(job: Job, coroutine: Coroutine[Any, Any, Any]) -> None:
    """The operation runs again from its beginning, in the next group."""
    coroutine.close()
    job.stands_back = True


def _advance(
    jobs: Sequence[Job],
    index: int,
    coroutine: Coroutine[Any, Any, Any],
    answers: Sequence[Rows] | None,
    waiting: list[_Waiting],
) -> None:
    """Let one operation go on to its next question, its result or its refusal."""
    try:
        asks = coroutine.send(answers)
    except StopIteration as end:
        jobs[index].result = end.value
    except Exception as error:
        jobs[index].error = error
    else:
        waiting.append((index, coroutine, _expect(asks)))


def _expect(asks: Any) -> tuple[Ask, ...]:
    if not isinstance(asks, tuple):
        raise RuntimeError(f"an operation awaited {asks!r}; it may await only the store")
    return asks


async def _drive_alone(connection: Connection, coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        asks = coroutine.send(None)
        while True:
            asks = coroutine.send(await _answer_all(connection, _expect(asks)))
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()


async def _keep_as_is(_connection: object) -> None:
    """Readers change no setting, hold no lock and listen to nothing: there is nothing to reset after them."""


async def _is_writable(connection: Connection) -> bool:
    writable = "SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'"
    try:
        return bool(await connection.fetchval(writable, timeout=3))
    except TimeoutError:
        connection.terminate()
        raise


async def _answer_all(connection: Connection, asks: Sequence[Ask]) -> list[Rows]:
    """Ask each distinct statement once, and hand each asker its own rows."""
    places: dict[Statement, list[int]] = {}
    for place, ask in enumerate(asks):
        places.setdefault(ask.statement, []).append(place)
    answers: list[Rows] = [()] * len(asks)
    for statement in sorted(places, key=lambda each: each.rank):
        askers = places[statement]
        if statement.alone:
            for place in askers:
                answers[place] = cast("Rows", await connection.fetch(statement.sql, *asks[place].values))
            continue
        rows = await connection.fetch(statement.sql, *_columns([asks[place].values for place in askers]))
        if not statement.answers:
            continue
        if len(askers) == 1:
            answers[askers[0]] = cast("Rows", rows)
            continue
        shares: list[list[asyncpg.Record]] = [[] for _ in askers]
        for row in rows:
            shares[row[0] - 1].append(row)
        for place, share in zip(askers, shares, strict=True):
            answers[place] = cast("Rows", share)
    return answers


async def _write(connection: Connection, statement: Statement, rows: list[tuple[Any, ...]]) -> None:
    if statement.alone:
        for row in rows:
            await connection.execute(statement.sql, *row)
    else:
        await connection.execute(statement.sql, *_columns(rows))


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


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


_OUTAGES = frozenset({"08", "25", "28", "3D", "53", "55", "57", "58"})
"""Classes of SQLSTATE that speak of the server's state, not of our statement: try later, on another connection."""


def is_outage(error: asyncpg.PostgresError) -> bool:
    return str(getattr(error, "sqlstate", None) or "")[:2] in _OUTAGES


def unavailable(error: BaseException) -> Unavailable:
    if isinstance(error, asyncpg.DiskFullError):
        return Unavailable(
            Reason.STORAGE_FULL, "PostgreSQL's disk is full; nothing was changed.", outcome="none"
        )
    return Unavailable(
        Reason.STORE_UNAVAILABLE,
        f"PostgreSQL cannot be used now ({type(error).__name__}). Nothing was changed; try again shortly.",
        outcome="none",
        retryable=True,
    )


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
    except (*_GONE, asyncpg.PostgresError) as error:
        raise unavailable(error) from error
