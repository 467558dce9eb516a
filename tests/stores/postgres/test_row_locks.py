"""Row locks on PostgreSQL: a suspended session releases them in time, and other queues do not wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import RunId
from penstock.errors import Reason, Unavailable
from penstock.ports.store import TransactionClass, Tx
from penstock.stores.group_commit import CommitHook, CommitPoint, no_hook
from penstock.stores.postgres import commit_groups, session_limits, transactions
from penstock.stores.postgres.diversion import DivertingCommitter
from penstock.stores.postgres.pipeline import PipelinedConnection
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.wakeups.local import LocalWakeups
from tests.faults.lossy_proxy import swallowing_proxy
from tests.support.binaries import Binaries, all_postgres
from tests.support.builders import a_run
from tests.support.patience import PATIENCE_S
from tests.support.servers import postgres_server

HOLD_MS = 400
SLOW_ROWS = """
CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(new.workflow_type::float); RETURN new; END $$;
CREATE TRIGGER be_slow BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION be_slow()
"""
"""Each run takes as long to insert as its type says, in seconds."""


class Freezer:
    """Suspends the process before its next commit, for longer than its session lives."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.armed = False
        self.commits = 0

    def __call__(self, moment: CommitPoint, _keys: Sequence[str]) -> None:
        if moment is not CommitPoint.BEFORE_COMMIT:
            return
        self.commits += 1
        if self.armed:
            self.armed = False
            time.sleep(self._seconds)  # the whole loop stands still, as a frozen process does


@asynccontextmanager
async def a_store(
    url: str, *, hold_ms: int = HOLD_MS, on_commit: CommitHook = no_hook
) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(
        url, LocalWakeups(), hold_ms=hold_ms, statement_timeout_ms=5_000, on_commit=on_commit
    )
    yield store
    await store.close()


@pytest.fixture
async def url(postgres_url: str) -> str:
    await migrate(postgres_url)
    return postgres_url


@pytest.fixture
async def outsider(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Another session, without time limits."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


async def insert(store: PostgresStore, run_id: str, *, kind: str = "0") -> None:
    async def operation(tx: Tx) -> None:
        tx.runs.insert(a_run(run_id, workflow_id=run_id, workflow_type=kind))

    await store.transact(operation, key=run_id)


async def touch(store: PostgresStore, run_id: str, done: list[str], name: str = "") -> None:
    """Lock a run in a claim transaction, and save it unchanged."""

    async def operation(tx: Tx) -> None:
        run = await tx.runs.lock(RunId(run_id))
        assert run is not None
        tx.runs.save(run)

    await store.transact(operation, key=run_id, tx_class=TransactionClass.CLAIM)
    done.append(name or run_id)


async def runs(connection: asyncpg.Connection[asyncpg.Record]) -> list[str]:
    return [row[0] for row in await connection.fetch("SELECT run_id FROM runs ORDER BY run_id")]


async def test_operations_on_other_rows_are_committed_while_a_row_of_their_group_is_locked(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    async with a_store(url, hold_ms=60_000) as store:
        names = ["hot", *(f"other-{n}" for n in range(5))]
        for name in names:
            await insert(store, name)
        async with outsider.transaction():
            await outsider.execute("SELECT 1 FROM runs WHERE run_id = 'hot' FOR UPDATE")
            done: list[str] = []
            first = [asyncio.create_task(touch(store, name, done)) for name in names]
            await asyncio.wait_for(asyncio.gather(*first[1:]), PATIENCE_S)
            again = [touch(store, name, done, f"{name} again") for name in names[1:]]
            await asyncio.wait_for(asyncio.gather(*again), PATIENCE_S)
            assert not first[0].done(), "the row is locked"
            assert "hot" not in done
        await asyncio.wait_for(first[0], PATIENCE_S)


async def test_operations_on_other_rows_are_committed_however_many_rows_of_their_group_are_locked(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    async with a_store(url, hold_ms=60_000) as store:
        hot, others = [f"hot-{n}" for n in range(6)], [f"other-{n}" for n in range(4)]
        for name in (*hot, *others):
            await insert(store, name)
        async with outsider.transaction():
            await outsider.execute("SELECT 1 FROM runs WHERE run_id LIKE 'hot-%' FOR UPDATE")
            done: list[str] = []
            waiting = [asyncio.create_task(touch(store, name, done)) for name in hot]
            for _ in range(2):
                await asyncio.wait_for(asyncio.gather(*(touch(store, name, done) for name in others)), 20)
            assert not any(task.done() for task in waiting), "their rows are locked"
        await asyncio.wait_for(asyncio.gather(*waiting), 20)


async def test_an_operation_whose_row_is_free_again_does_not_wait_for_one_whose_row_is_not(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    async with a_store(url, hold_ms=60_000) as store:
        for name in ("long", "short"):
            await insert(store, name)
        done: list[str] = []
        other = await asyncpg.connect(url)
        async with outsider.transaction():
            await outsider.execute("SELECT 1 FROM runs WHERE run_id = 'long' FOR UPDATE")
            async with other.transaction():
                await other.execute("SELECT 1 FROM runs WHERE run_id = 'short' FOR UPDATE")
                tasks = [asyncio.create_task(touch(store, name, done)) for name in ("long", "short")]
                line = store._committers[TransactionClass.CLAIM]
                assert isinstance(line, DivertingCommitter)
                async with asyncio.timeout(20):
                    while line._diverted.total() < 2:
                        await asyncio.sleep(0.01)
            await asyncio.wait_for(tasks[1], 20)
            assert not tasks[0].done()
        await asyncio.wait_for(tasks[0], 20)
        await other.close()


async def test_a_row_that_was_contended_is_not_locked_in_one_transaction_with_others(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    async with a_store(url, hold_ms=60_000) as store:
        names = ["hot", *(f"other-{n}" for n in range(4))]
        for name in names:
            await insert(store, name)
        done: list[str] = []
        async with outsider.transaction():
            await outsider.execute("SELECT 1 FROM runs WHERE run_id = 'hot' FOR UPDATE")
            waits = asyncio.create_task(touch(store, "hot", done))
            line = store._committers[TransactionClass.CLAIM]
            assert isinstance(line, DivertingCommitter)
            async with asyncio.timeout(20):
                while not line._diverted:
                    await asyncio.sleep(0.01)
        await asyncio.wait_for(waits, 20)
        line._contended = dict.fromkeys(line._contended, time.monotonic() + 600)
        await asyncio.gather(*(touch(store, name, done) for name in names))
        written = {row[0]: row[1] for row in await outsider.fetch("SELECT run_id, xmin::text FROM runs")}
        assert written.pop("hot") not in written.values()
        assert len(set(written.values())) == 1, "the others share a transaction"
        assert sorted(done) == sorted(["hot", *names])


async def test_operations_with_one_key_keep_their_order_while_the_first_waits_for_a_locked_row(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    async with a_store(url, hold_ms=60_000) as store:
        for name in ("hot", "other"):
            await insert(store, name)
        done: list[str] = []
        async with outsider.transaction():
            await outsider.execute("SELECT 1 FROM runs WHERE run_id = 'hot' FOR UPDATE")
            tasks = [asyncio.create_task(touch(store, "hot", done, f"hot-{n}")) for n in range(2)]
            await asyncio.wait_for(touch(store, "other", done), PATIENCE_S)
            tasks += [asyncio.create_task(touch(store, "hot", done, f"hot-{n}")) for n in range(2, 4)]
            await asyncio.wait_for(touch(store, "other", done), PATIENCE_S)
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
        assert done == ["other", "other", "hot-0", "hot-1", "hot-2", "hot-3"]
        assert store.health().stalled_ms == 0


async def test_an_operation_whose_caller_left_while_it_waited_diverts_no_later_one(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    async with a_store(url, hold_ms=60_000) as store:
        await insert(store, "hot")
        done: list[str] = []
        async with outsider.transaction():
            await outsider.execute("SELECT 1 FROM runs WHERE run_id = 'hot' FOR UPDATE")
            tasks = [asyncio.create_task(touch(store, "hot", done, f"hot-{n}")) for n in range(3)]
            line = store._committers[TransactionClass.CLAIM]
            assert isinstance(line, DivertingCommitter)
            async with asyncio.timeout(PATIENCE_S):
                while line._diverted["hot"] < 3:
                    await asyncio.sleep(0.01)
            tasks[2].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE_S)
        await touch(store, "hot", done, "last")
        async with asyncio.timeout(PATIENCE_S):
            while line._diverted:
                await asyncio.sleep(0.01)
    assert done == ["hot-0", "hot-1", "last"]


async def test_an_operation_whose_session_was_ended_while_it_stood_still_is_made_once(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    """Nothing was committed, and that is known: the outcome is not `unknown`."""
    freezer = Freezer(2 * HOLD_MS / 1000)
    async with a_store(url, on_commit=freezer) as store:
        await insert(store, "before")
        done: list[str] = []
        freezer.armed, freezer.commits = True, 0
        await touch(store, "before", done)
        assert done == ["before"]
        assert freezer.commits > 1, "the first try was ended by the database"
        await insert(store, "after")
    assert await runs(outsider) == ["after", "before"]


async def test_a_decision_from_before_a_standstill_is_not_committed_after_it(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    """No lock is held yet, so the session was not ended; but what the operation read is old, its time included."""
    freezer = Freezer(2 * HOLD_MS / 1000)
    async with a_store(url, on_commit=freezer) as store:
        await insert(store, "before")
        moments: list[int] = []

        async def operation(tx: Tx) -> None:
            moments.append(tx.now_ms)
            tx.runs.insert(a_run("late", workflow_id="late"))

        freezer.armed = True
        await store.transact(operation, key="late")
    assert len(moments) == 2
    assert moments[1] - moments[0] >= 2 * HOLD_MS
    assert await runs(outsider) == ["before", "late"]


async def test_a_group_that_takes_longer_than_a_transaction_may_is_committed_in_parts(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    await outsider.execute(SLOW_ROWS)
    names = [f"run-{n:02}" for n in range(12)]
    async with a_store(url) as store:
        await asyncio.gather(*(insert(store, name, kind="0.15") for name in names))
    assert await runs(outsider) == names


async def test_a_single_operation_that_takes_longer_gets_the_time_of_a_long_one(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    await outsider.execute(SLOW_ROWS)
    async with a_store(url) as store:
        await insert(store, "slow", kind=str(3 * HOLD_MS / 1000))
        await insert(store, "quick")
    assert await runs(outsider) == ["quick", "slow"]


async def test_an_operation_that_takes_longer_than_a_statement_may_is_refused_and_changes_nothing(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    await outsider.execute(SLOW_ROWS)
    store = await PostgresStore.open(url, LocalWakeups(), hold_ms=200, statement_timeout_ms=400)
    with pytest.raises(Unavailable) as refused:
        await insert(store, "never", kind="2")
    assert (refused.value.reason, refused.value.details["outcome"]) == (Reason.STORE_UNAVAILABLE, "none")
    await insert(store, "after")
    await store.close()
    assert await runs(outsider) == ["after"]


async def test_a_database_that_is_too_slow_for_everything_is_not_asked_for_each_operation_again_and_again(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    await outsider.execute(SLOW_ROWS)
    tries = Freezer(0)
    store = await PostgresStore.open(
        url, LocalWakeups(), hold_ms=200, statement_timeout_ms=400, on_commit=tries
    )

    def too_slow(name: str) -> Coroutine[object, object, None]:
        async def operation(tx: Tx) -> None:
            tx.runs.insert(a_run(name, workflow_id=name, workflow_type="2"))

        return store.transact(operation, key=name, tx_class=TransactionClass.CLAIM)

    refusals = await asyncio.gather(*(too_slow(f"never-{n}") for n in range(16)), return_exceptions=True)
    assert {each.details["outcome"] for each in refusals if isinstance(each, Unavailable)} == {"none"}
    assert len([each for each in refusals if isinstance(each, Unavailable)]) == 16
    assert tries.commits < 16
    await insert(store, "after")
    await store.close()
    assert await runs(outsider) == ["after"]


async def test_a_commit_that_does_not_come_back_shows_in_the_condition_of_the_store(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    await outsider.execute(SLOW_ROWS)
    async with a_store(url, hold_ms=5_000) as store:
        assert store.health().stalled_ms == 0
        slow = asyncio.create_task(insert(store, "slow", kind="1"))
        while store.health().stalled_ms < 500:
            assert not slow.done()
            await asyncio.sleep(0.01)
        await slow
        assert store.health().stalled_ms == 0


async def test_an_operation_whose_session_was_ended_for_want_of_work_is_made_once(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    """`idle_session_timeout` of a role or a database: what was sent afterwards was never read."""
    name = await outsider.fetchval("SELECT current_database()")
    await outsider.execute(f'ALTER DATABASE "{name}" SET idle_session_timeout = 500')
    async with a_store(url, hold_ms=60_000) as store:
        for number in range(4):
            await insert(store, f"run-{number}")
            time.sleep(0.9)  # this process does not see that the session has ended
    assert await runs(outsider) == [f"run-{number}" for number in range(4)]


async def test_a_store_is_closed_though_its_database_is_silent(url: str):
    async with swallowing_proxy(url) as proxy:
        store = await PostgresStore.open(proxy.url, LocalWakeups())
        await insert(store, "run")
        await store.check()
        proxy.silent = True
        await asyncio.wait_for(store.close(), 60)


async def test_a_session_that_could_not_be_made_ready_is_not_used(
    url: str, outsider: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
):
    """It lacks the prepared BEGIN and COMMIT: every later operation on it would fail."""
    failures = [TimeoutError(), asyncpg.QueryCanceledError("cancelled")]

    async def prepare_piggybacked(connection: PipelinedConnection) -> None:
        if failures:
            raise failures.pop()
        await transactions.prepare_piggybacked(connection)

    async with a_store(url) as store:
        await insert(store, "run")
        monkeypatch.setattr(commit_groups, "prepare_piggybacked", prepare_piggybacked)
        done: list[str] = []
        while failures:
            with contextlib.suppress(Unavailable):
                await touch(store, "run", done)
        await touch(store, "run", done, "last")
        assert done[-1] == "last"
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock' AND datname = current_database()"
    async with asyncio.timeout(20):
        while await outsider.fetchval(mine):
            await asyncio.sleep(0.01)


async def test_migrations_have_no_time_limit_though_the_role_has(
    url: str, outsider: asyncpg.Connection[asyncpg.Record]
):
    """Identified by the settings of the session."""
    connection = await asyncpg.connect(url, server_settings=session_limits.UNLIMITED)
    try:
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            assert await connection.fetchval("SELECT current_setting($1)", name) == "0"
    finally:
        await connection.close()


def with_transaction_timeout() -> Binaries:
    """A PostgreSQL with `transaction_timeout`; the test environment has one."""
    since = session_limits.TRANSACTION_TIMEOUT_SINCE
    return next(each for each in all_postgres() if int(each.version.split(".")[0]) >= since)


@pytest.fixture(scope="module")
def newer_url() -> Iterator[str]:
    with postgres_server(with_transaction_timeout()) as server:
        yield server.url


async def test_a_newer_postgres_bounds_whole_transactions(newer_url: str):
    await migrate(newer_url)
    store = await PostgresStore.open(newer_url, LocalWakeups(), hold_ms=1_000, statement_timeout_ms=5_000)
    await insert(store, "run-1")
    found = [await _setting(line._connection, "transaction_timeout") for line in store._work]
    assert {each for each in found if each is not None} == {"1500ms"}
    await store.close()


async def test_a_slow_group_on_a_newer_postgres_is_committed_in_parts_and_no_outcome_is_unknown(
    newer_url: str,
):
    """A statement is cancelled before its transaction is ended, so that it is known that nothing was committed."""
    await migrate(newer_url)
    outsider = await asyncpg.connect(newer_url)
    await outsider.execute(SLOW_ROWS)
    store = await PostgresStore.open(newer_url, LocalWakeups(), hold_ms=400, statement_timeout_ms=5_000)
    names = [f"slow-{n}" for n in range(8)]
    await asyncio.gather(*(insert(store, name, kind="0.15") for name in names))
    await store.close()
    assert [name for name in await runs(outsider) if name.startswith("slow")] == names
    await outsider.close()


@given(statement_ms=st.integers(100, 3_600_000), hold_ms=st.integers(200, 60_000))
def test_locks_of_a_client_that_stops_are_released_within_the_hold_time(statement_ms: int, hold_ms: int):
    """For all settings: within the hold time for one lock, and a quarter more for any number of them."""
    short = session_limits.short_write_limits(statement_ms, hold_ms)
    long = session_limits.long_write_limits(statement_ms, hold_ms)
    assert short.lock_ms + short.idle_ms <= hold_ms
    assert short.statement_ms + short.idle_ms <= hold_ms * 5 // 4
    assert long.lock_ms + long.idle_ms <= hold_ms
    for limits in (short, long):
        assert limits.decide_ms + limits.statement_ms <= limits.transaction_ms


async def _setting(connection: asyncpg.Connection[asyncpg.Record] | None, name: str) -> str | None:
    if connection is None:
        return None
    return str(await connection.fetchval("SELECT current_setting($1)", name))
