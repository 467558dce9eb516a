"""The row cache: the SQLite writer does not read again what it just read or wrote, and the cache is never outdated."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.model import Instance, ReplayBlock, RetrySchedule, Run, RunId, RunStatus
from penstock.core.waits import Waits
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx
from penstock.stores.group_commit import CommitPoint
from penstock.stores.sql.catalogue import Dialect, Statement, catalogue
from penstock.stores.sql.row_cache import ROWS_MAX, SIZE_MAX, RowCache, TableCache
from penstock.stores.sql.tasks.activities import ACTIVITIES
from penstock.stores.sql.tasks.tasks import TASKS
from penstock.stores.sql.workflows.runs import RUNS
from penstock.stores.sqlite import connections, schema
from penstock.wakeups.local import LocalWakeups
from tests.support.builders import NOW_MS, a_run, an_activity
from tests.support.checked_store import CheckedStore
from tests.support.clock import ManualClock

DRIVER: Any = vars(connections)["sqlite3"]
RUN = RunId("r1")


class Disk:
    """Fails on request."""

    is_broken = False

    def __call__(self, moment: CommitPoint, _keys: Sequence[str]) -> None:
        if self.is_broken and moment is CommitPoint.BEFORE_COMMIT:
            raise DRIVER.OperationalError("disk I/O error")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def store(tmp_path: Path, disk: Disk) -> AsyncIterator[CheckedStore]:
    opened = await CheckedStore.open(
        tmp_path / "penstock.db", ManualClock(NOW_MS), LocalWakeups(), on_commit=disk
    )
    assert isinstance(opened, CheckedStore)
    await change(opened, lambda tx: tx.runs.insert(a_run(RUN)))
    yield opened
    await opened.close()


async def change(store: CheckedStore, record: Callable[[Tx], None]) -> None:
    async def operation(tx: Tx) -> None:
        record(tx)

    await store.transact(operation, key=RUN)


async def found(store: CheckedStore) -> Run:
    """The run as a transaction reads it."""

    async def operation(tx: Tx) -> Run:
        run = await tx.runs.lock(RUN)
        assert run is not None
        return run

    return await store.transact(operation, key=RUN)


def cache_of_runs() -> TableCache[Run]:
    return RowCache((RUNS,), ()).tables[RUNS]


async def test_what_was_written_is_found_as_it_is(store: CheckedStore) -> None:
    await change(store, lambda tx: tx.runs.save(a_run(RUN, last_sequence=7)))
    assert (await found(store)).last_sequence == 7
    assert store.rows_compared > 0


async def test_a_row_is_read_once_and_then_at_hand(store: CheckedStore) -> None:
    first, second = await found(store), await found(store)
    assert first is second


async def test_a_column_that_was_not_written_is_not_believed(store: CheckedStore) -> None:
    """Saving a run writes the mutable columns; its memo has its own statement."""
    await change(store, lambda tx: tx.runs.save(a_run(RUN, memo='{"of": "nobody"}', last_sequence=2)))
    assert ((await found(store)).memo, (await found(store)).last_sequence) == ("{}", 2)
    await change(store, lambda tx: tx.runs.save_attributes(a_run(RUN, memo='{"of": "all"}')))
    assert (await found(store)).memo == '{"of": "all"}'


async def test_what_another_program_changed_is_seen(store: CheckedStore, tmp_path: Path) -> None:
    await found(store)
    with DRIVER.connect(tmp_path / "penstock.db") as other:
        other.execute("UPDATE runs SET last_sequence = 99 WHERE run_id = ?", (RUN,))
    other.close()
    assert (await found(store)).last_sequence == 99


async def test_an_operation_that_fails_halfway_leaves_nothing_at_hand(store: CheckedStore) -> None:
    async def refused(tx: Tx) -> None:
        await tx.runs.reserve(Instance("default", "another", RunId("r2"), 1))
        tx.runs.save(a_run(RUN, last_sequence=50))
        raise Conflict(Reason.INSTANCE_ALREADY_STARTED, "no")

    with pytest.raises(Conflict):
        await store.transact(refused, key=RUN)
    assert (await found(store)).last_sequence == a_run(RUN).last_sequence


async def test_a_commit_that_fails_leaves_nothing_at_hand(store: CheckedStore, disk: Disk) -> None:
    await found(store)
    disk.is_broken = True
    with pytest.raises(Exception, match="disk I/O error"):
        await change(store, lambda tx: tx.runs.save(a_run(RUN, last_sequence=50)))
    disk.is_broken = False
    assert (await found(store)).last_sequence == a_run(RUN).last_sequence


async def test_operations_of_one_group_see_each_other_before_the_commit(store: CheckedStore) -> None:

    async def one_more(tx: Tx) -> int:
        run = await tx.runs.lock(RUN)
        assert run is not None
        tx.runs.save(replace(run, last_sequence=run.last_sequence + 1))
        return run.last_sequence + 1

    counted = await asyncio.gather(*(store.transact(one_more, key=RUN) for _ in range(20)))
    start = a_run(RUN).last_sequence
    assert list(counted) == list(range(start + 1, start + 21))


def test_a_run_that_has_ended_is_not_kept() -> None:
    table_cache = cache_of_runs()
    table_cache.add(a_run())
    table_cache.update(a_run(status=RunStatus.COMPLETED, closed_at_ms=NOW_MS))
    assert table_cache.get(a_run().run_id) is None


LARGE = "x" * (SIZE_MAX + 1)


@pytest.mark.parametrize(
    "large",
    [
        {"input": LARGE},
        {"memo": LARGE},
        {"task_error": LARGE},
        {"blocked": ReplayBlock(message=LARGE)},
        {"waits": Waits(groups={f"g{number}": 1 for number in range(SIZE_MAX // 10)})},
    ],
)
def test_a_run_with_much_text_is_not_kept(large: dict[str, Any]) -> None:
    table_cache = cache_of_runs()
    table_cache.add(a_run(**large))
    assert not table_cache.rows()


@pytest.mark.parametrize(
    "retry",
    [
        RetrySchedule(5, True, non_retryable_error_types=("x" * 255,) * 20),
        RetrySchedule(5, True, backoff_s=(1_000,) * 500),
        RetrySchedule(5, True, backoff_ms=(1_000,) * 500),
    ],
)
def test_an_activity_that_says_much_of_its_retries_is_not_kept(retry: RetrySchedule) -> None:
    table_cache = RowCache((ACTIVITIES,), ()).tables[ACTIVITIES]
    table_cache.add(an_activity(retry=retry))
    assert not table_cache.rows()


def test_rows_that_are_used_stay_and_others_go() -> None:
    table_cache = cache_of_runs()
    table_cache.add(a_run("used"))
    for number in range(10 * ROWS_MAX):
        table_cache.add(a_run(f"r{number}"))
        if number % (ROWS_MAX // 2) == 0:
            assert table_cache.get("used") is not None
    assert len(table_cache.rows()) <= 2 * ROWS_MAX
    assert table_cache.get("r0") is None


def test_every_statement_that_changes_rows_either_tells_which_or_has_its_table_forgotten(
    tmp_path: Path,
) -> None:
    """According to SQLite's authorizer, triggers included."""
    schema.prepare(tmp_path / "penstock.db")
    statements = catalogue(Dialect.SQLITE)
    invalidated_by = RowCache((RUNS, TASKS, ACTIVITIES), statements.values()).invalidated_by
    with contextlib.closing(DRIVER.connect(tmp_path / "penstock.db")) as database:
        for name, each in statements.items():
            noticed = {table_cache.table.name for table_cache in invalidated_by.get(each, ())}
            told = {table.name for table in (RUNS, TASKS, ACTIVITIES) if name in table.written_by}
            assert tables_changed_by(database, each) & {"runs", "tasks", "activities"} == noticed | told, name
    assert {"notify_at_lease_end", "forget_run", "save_run_attributes"} <= {
        each.name for each in invalidated_by
    }


def tables_changed_by(database: Any, statement: Statement) -> set[str]:
    """The tables that a statement would change."""
    changed: set[str] = set()

    def note(action: int, table: str, *_: object) -> int:
        if action in (DRIVER.SQLITE_INSERT, DRIVER.SQLITE_UPDATE, DRIVER.SQLITE_DELETE):
            changed.add(table)
        return int(DRIVER.SQLITE_OK)

    database.set_authorizer(note)
    database.execute(f"EXPLAIN {statement.sql}", (None,) * len(statement.takes))
    return changed
