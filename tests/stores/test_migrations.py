"""Migration of databases of earlier schemas, with their rows."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from penstock.core.model import (
    NO_LINEAGE,
    Activity,
    ActivityTimeouts,
    OutboxKind,
    OutboxMessage,
    QueueId,
    RetrySchedule,
    Run,
    RunId,
    Task,
    TaskId,
    Timer,
)
from penstock.core.priority_levels import LEVEL_DEFAULT
from penstock.core.scheduling.fairness import LaneState, VirtualClock
from penstock.core.waits import NO_WAITS, Waits
from penstock.ports.store import Store, Tx
from penstock.stores.migrations.registry import Migration, migrations
from penstock.stores.sql.catalogue import Dialect
from penstock.wakeups.local import LocalWakeups
from tests.stores.conftest import open_store
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, a_child, a_letter, a_request, an_event, an_update
from tests.support.clock import ManualClock

NUMBERS = [each.number for each in migrations(Dialect.SQLITE)]
BEFORE_RENAMES = 13
"""The last schema with the earlier names of tables and columns."""
BEFORE_LEVELS = 14
"""The last schema with 3 as the default level, and priority keys as levels of the same number."""
BEFORE_WORKFLOWS = (1, 2, 3)
"""Schemas in which runs do not record what they wait for."""
LEVELS = {0: 0, 1: 1, 2: 3, 3: 5, 4: 7, 5: 9, 6: 9, 7: 9, 8: 9, 9: 9}
"""Each level of earlier schemas, and the one that it became."""
Row = Mapping[str, Any]
Rows = Sequence[tuple[str, Row]]


def an_old_run(run_id: str, **changes: Any) -> Row:
    """A run as the first schema has it."""
    plain: dict[str, Any] = {
        "run_id": run_id,
        "namespace": "default",
        "workflow_id": f"order-{run_id}",
        "run_number": 1,
        "host": "workflow",
        "workflow_type": "Order",
        "task_queue": "orders",
        "level": 3,
        "key": "",
        "weight_milli": 1000,
        "input": "",
        "memo": '{"note":"ü"}',
        "search_attributes": "{}",
        "started_at_ms": NOW_MS,
        "status": "waiting",
        "last_progress_at_ms": NOW_MS,
        "last_sequence": 1,
        "last_step": 1,
        "last_task": 1,
        "open_activities": 0,
        "open_timers": 0,
        "buffered": 0,
        "task_failures": 0,
    }
    return plain | changes


OLD_RUNS = (
    an_old_run("calling", open_activities=2),
    an_old_run("sleeping", open_timers=1),
    an_old_run("new", status="pending", open_activities=1),
    an_old_run("going", status="running", open_timers=3),
    an_old_run("idle"),
    an_old_run("done", status="completed", closed_at_ms=NOW_MS, closed_reason="completed", open_activities=1),
)
OLD_TASK: Row = {
    "task_id": "idle-1",
    "queue_id": 1,
    "namespace": "default",
    "task_queue": "orders",
    "kind": "workflow",
    "run_id": "idle",
    "activity_id": None,
    "type": "Order",
    "compatibility": None,
    "level": 3,
    "key": "",
    "state": "ready",
    "available_at_ms": NOW_MS,
    "enqueued_at_ms": NOW_MS,
    "attempt": 0,
}
OLD_ACTIVITY: Row = {
    "activity_id": "calling-a1",
    "run_id": "calling",
    "task_id": "calling-2",
    "step": 1,
    "activity_type": "Charge",
    "task_queue": "orders",
    "arguments": "",
    "retry": '{"max_attempts":3,"given":true,"backoff_s":[1,5],"non_retryable_error_types":["CardDeclined"]}',
    "timeouts": '{"start_to_close_ms":30000}',
    "extra": '{"parallel_group_path":[]}',
    "scheduled_at_ms": NOW_MS,
    "status": "pending",
    "attempt": 0,
}
OLD_TIMER: Row = {
    "timer_id": "sleeping-t1",
    "run_id": "sleeping",
    "step": 1,
    "delay_s": 60,
    "fire_at_ms": NOW_MS,
    "extra": "{}",
    "state": "open",
}
OLD_END: Row = {
    "run_id": "done",
    "sequence": 1,
    "type": "WorkflowCompleted",
    "payload": "{}",
    "recorded_at_ms": NOW_MS,
}
OLD_ROWS: Rows = (
    *(("runs", run) for run in OLD_RUNS),
    ("events", OLD_END),
    ("queues", {"namespace": "default", "name": "orders", "kind": "workflow"}),
    ("tasks", {**OLD_TASK, "route": "Order\x1f"}),
    ("activities", OLD_ACTIVITY),
    ("timers", OLD_TIMER),
)
RENAMED_ROWS: Rows = (
    *OLD_ROWS,
    (
        "letters",
        {
            "letter_id": "m1",
            "namespace": "default",
            "workflow_id": "order-idle",
            "run_id": "idle",
            "kind": "child_started",
            "payload": "{}",
            "created_at_ms": NOW_MS,
        },
    ),
    (
        "tasks",
        {
            **OLD_TASK,
            "task_id": "new-1",
            "run_id": "new",
            "route": "Order\x1f",
            "reserved_for": "worker-1",
            "reserved_until_ms": NOW_MS + 5_000,
        },
    ),
    (
        "lanes",
        {
            "queue_id": 1,
            "level": 3,
            "key": "",
            "tag": 7,
            "weight_milli": 1000,
            "wanted_milli": 1000,
            "count": 2,
            "place": 4,
        },
    ),
    ("keys", {"queue_id": 1, "key": "tenant", "running_limit": 5, "at_ms": NOW_MS, "author": "ops"}),
    (
        "message_streams",
        {
            "namespace": "default",
            "workflow_id": "order-idle",
            "name": "chat",
            "run_id": "idle",
            "last_position": 9,
            "told_position": 6,
            "through_position": 4,
        },
    ),
    ("remains", {"run_id": "gone"}),
)
"""Rows of the last schema with the earlier names, one in each table that was renamed in part or as a whole."""


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    if request.param == "sqlite":
        return tmp_path / "penstock.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def migrated(
    address: str | Path, schema: int, clock: ManualClock, wakeups: LocalWakeups
) -> AsyncIterator[Store]:
    """A store over a database that was created and filled by an earlier version."""
    await fill(address, schema)
    store = await open_store(address, clock, wakeups)
    yield store
    await store.close()


async def fill(address: str | Path, schema: int, rows: Rows | None = None) -> None:
    """Create a database of an earlier schema, and insert the old rows."""
    rows = OLD_ROWS if rows is None else rows
    match address:
        case Path():
            with contextlib.closing(sqlite3.connect(address)) as file:
                for migration in migrations(Dialect.SQLITE)[:schema]:
                    file.executescript(migration.sql)
                for statement, values in (*_noted(Dialect.SQLITE, schema), *_inserts("?{}", rows)):
                    file.execute(statement, values)
                file.commit()
        case str():
            connection = await asyncpg.connect(address)
            try:
                for migration in migrations(Dialect.POSTGRES)[:schema]:
                    await connection.execute(migration.sql)
                for statement, values in (*_noted(Dialect.POSTGRES, schema), *_inserts("${}", rows)):
                    await connection.execute(statement, *values)
            finally:
                await connection.close()


def _noted(dialect: Dialect, schema: int) -> list[tuple[str, tuple[Any, ...]]]:
    """The statements that record which migrations a database has."""
    number = "INTEGER" if dialect is Dialect.SQLITE else "BIGINT"
    table = (
        f"CREATE TABLE migrations (number {number} PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
    )
    known: Sequence[Migration] = migrations(dialect)[:schema]
    return [
        (table, ()),
        *(
            (f"INSERT INTO migrations VALUES ({each.number}, '{each.name}', '{each.checksum}')", ())
            for each in known
        ),
    ]


def _inserts(mark: str, rows: Rows) -> list[tuple[str, tuple[Any, ...]]]:
    found = []
    for table, row in rows:
        marks = ", ".join(mark.format(place) for place in range(1, len(row) + 1))
        found.append((f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values())))
    return found


def level_now(level: int, schema: int) -> int:
    return LEVELS[level] if schema <= BEFORE_LEVELS else level


async def run_of(store: Store, run_id: str) -> Run:
    run = await look(store, lambda tx: tx.runs.get(RunId(run_id)))
    assert run is not None
    return run


async def task_of(store: Store, task_id: str) -> Task | None:
    return await look(store, lambda tx: tx.tasks.get(TaskId(task_id)))


every_schema = pytest.mark.parametrize("schema", NUMBERS[:-1])
before_workflows = pytest.mark.parametrize("schema", BEFORE_WORKFLOWS)


@every_schema
async def test_the_runs_of_an_earlier_database_are_read_as_they_were(migrated: Store, schema: int):
    for old in OLD_RUNS:
        run = await run_of(migrated, old["run_id"])
        assert {name: getattr(run, name) for name in old} == {**old, "level": level_now(old["level"], schema)}


@every_schema
async def test_the_tasks_activities_and_timers_of_an_earlier_database_wait_on(migrated: Store, schema: int):
    task = Task(**{**OLD_TASK, "level": level_now(OLD_TASK["level"], schema)}, seq=1)
    activity = Activity(
        **{
            **OLD_ACTIVITY,
            "retry": RetrySchedule(3, True, (1, 5), ("CardDeclined",)),
            "timeouts": ActivityTimeouts(start_to_close_ms=30_000),
        }
    )
    assert await look(migrated, lambda tx: tx.tasks.get(task.task_id)) == task
    assert await look(migrated, lambda tx: tx.activities.open_of(activity.run_id)) == [activity]
    assert await look(migrated, lambda tx: tx.timers.open_of(RunId("sleeping"))) == [Timer(**OLD_TIMER)]


@before_workflows
async def test_open_runs_with_something_open_are_marked_as_not_knowing_their_groups(
    migrated: Store, schema: int
):
    marked = {run["run_id"]: (await run_of(migrated, run["run_id"])).waits for run in OLD_RUNS}
    old = Waits(old=True)
    assert marked == {
        "calling": old,
        "sleeping": old,
        "new": old,
        "going": old,
        "idle": NO_WAITS,
        "done": NO_WAITS,
    }


@before_workflows
async def test_old_runs_have_no_children_updates_or_signals_and_come_from_nowhere(
    migrated: Store, schema: int
):
    for old in OLD_RUNS:
        run = await run_of(migrated, old["run_id"])
        assert (run.open_children, run.open_updates, run.unseen_signals) == (0, 0, 0)
        assert (run.last_request, run.owed, run.lineage) == (0, 0, NO_LINEAGE)
        assert (run.blocked, run.archived_at_ms) == (None, None)


@every_schema
async def test_an_old_run_goes_on_with_everything_that_is_new(migrated: Store, schema: int):
    def write(tx: Tx) -> None:
        tx.children.insert(a_child("idle"))
        tx.updates.insert(an_update("u1", "idle"))
        tx.requests.insert(a_request(run_id="idle"))
        tx.outbox.insert(a_letter(run_id="idle"))
        tx.histories.append([an_event("idle", 1, "WorkflowContinuedAsNew")])

    await record(migrated, write)
    assert await look(migrated, lambda tx: tx.children.open_of(RunId("idle"))) == [a_child("idle")]
    assert await look(migrated, lambda tx: tx.updates.next_accepted(RunId("idle"))) == an_update("u1", "idle")
    assert await look(migrated, lambda tx: tx.outbox.waiting(9)) == ["letter-1"]


@every_schema
@pytest.mark.parametrize("end", ["WorkflowFailed", "WorkflowContinuedAsNew"])
async def test_an_old_run_that_has_ended_does_not_end_again(migrated: Store, schema: int, end: str):
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        await record(migrated, lambda tx: tx.histories.append([an_event("done", 2, end)]))


@every_schema
async def test_a_sqlite_file_is_copied_before_it_is_changed(
    tmp_path: Path, schema: int, clock: ManualClock, wakeups: LocalWakeups
):
    path = tmp_path / "penstock.db"
    await fill(path, schema)
    store = await open_store(path, clock, wakeups)
    await store.close()
    following = NUMBERS[NUMBERS.index(schema) + 1]
    with contextlib.closing(sqlite3.connect(f"{path}.before-{following:04d}")) as copy:
        assert copy.execute("SELECT max(number) FROM migrations").fetchone() == (schema,)
        assert copy.execute("SELECT count(*) FROM runs").fetchone() == (len(OLD_RUNS),)


async def test_rows_under_earlier_names_of_tables_and_columns_are_read_as_they_were(
    address: str | Path, clock: ManualClock, wakeups: LocalWakeups
):
    await fill(address, BEFORE_RENAMES, RENAMED_ROWS)
    store = await open_store(address, clock, wakeups)
    try:
        message = await look(store, lambda tx: tx.outbox.get("m1"))
        assert message == OutboxMessage(
            "m1", "default", "order-idle", RunId("idle"), OutboxKind.CHILD_STARTED, "{}", NOW_MS
        )
        assert await look(store, lambda tx: tx.outbox.waiting(9)) == ["m1"]
        sticky = await look(store, lambda tx: tx.tasks.get(TaskId("new-1")))
        assert sticky is not None
        assert (sticky.sticky_worker_id, sticky.sticky_until_ms) == ("worker-1", NOW_MS + 5_000)
        found = await look(store, lambda tx: tx.queues.lane(QueueId(1), LEVEL_DEFAULT, "", NOW_MS))
        assert found is not None
        assert (found.lane.state, found.lane.tag, found.lane.count) == (LaneState.BLOCKED, 7, 2)
        settings = await look(store, lambda tx: tx.policies.key_settings(QueueId(1), ["tenant"]))
        assert settings["tenant"].lease_cap == 5
        [stream] = await look(store, lambda tx: tx.messages.streams_of(RunId("idle")))
        assert (stream.last_position, stream.delivered_position, stream.through_position) == (9, 6, 4)
        assert await look(store, lambda tx: tx.retention.remains(9)) == ["gone"]
    finally:
        await store.close()


def a_lane(level: int, **changes: Any) -> Row:
    plain = {
        "queue_id": 1,
        "level": level,
        "key": "tenant",
        "tag": 100 + level,
        "weight_milli": 1000,
        "wanted_milli": 1000 + level,
        "count": 1,
        "state": LaneState.READY,
    }
    return plain | changes


PRIORITY_ROWS: Rows = (
    ("queues", {"namespace": "default", "name": "orders", "kind": "workflow"}),
    *(("runs", an_old_run(f"r{level}", level=level)) for level in LEVELS),
    *(
        (
            "tasks",
            {
                **OLD_TASK,
                "task_id": f"r{level}-1",
                "run_id": f"r{level}",
                "level": level,
                "key": "tenant",
                "route": "Order\x1f",
            },
        )
        for level in LEVELS
    ),
    *(("lanes", a_lane(level)) for level in LEVELS),
    ("lanes", a_lane(8, key="idle", count=0)),
    ("lanes", a_lane(5, key="paused", count=3, state=LaneState.BLOCKED)),
    *(
        ("clocks", {"queue_id": 1, "level": level, "virtual": 10 * level, "placed": level})
        for level in LEVELS
    ),
)


async def test_what_waited_at_its_priority_waits_in_the_same_order_on_the_scale_of_ten_levels(
    address: str | Path, clock: ManualClock, wakeups: LocalWakeups
):
    await fill(address, BEFORE_LEVELS, PRIORITY_ROWS)
    store = await open_store(address, clock, wakeups)
    queue = QueueId(1)

    async def lane(level: int, key: str) -> tuple[int, int, int] | None:
        found = await look(store, lambda tx: tx.queues.lane(queue, level, key, NOW_MS))
        return None if found is None else (found.lane.count, found.lane.tag, found.lane.state)

    try:
        for before, after in LEVELS.items():
            assert (await run_of(store, f"r{before}")).level == after
            task = await task_of(store, f"r{before}-1")
            assert task is not None
            assert task.level == after
        for before in range(5):
            assert await lane(LEVELS[before], "tenant") == (1, 100 + before, LaneState.READY)
        assert await lane(9, "tenant") == (5, 0, LaneState.NEW)
        assert await lane(9, "paused") == (3, 0, LaneState.NEW)
        for level in (2, 4, 6, 8):
            assert await lane(level, "tenant") is None
        clocks = await look(store, lambda tx: tx.queues.clocks(queue))
        assert sorted(clocks, key=lambda each: each.level) == [
            VirtualClock(0, 0, 0),
            VirtualClock(1, 10, 1),
            VirtualClock(3, 20, 2),
            VirtualClock(5, 30, 3),
            VirtualClock(7, 40, 4),
            VirtualClock(9, 90, 9),
        ]
    finally:
        await store.close()
