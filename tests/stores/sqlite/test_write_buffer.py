"""The write buffer: writes of a group are deferred and coalesced, invisibly to readers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.model import Queue, ReplayBlock, RunId, RunStatus, Task, TaskId, TaskKind, TaskState
from penstock.core.run_codec import encode_block
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx
from penstock.stores.sql.catalogue import Dialect, Statement, catalogue, changed_tables, touched_tables
from penstock.stores.sql.session import Fetch
from penstock.stores.sql.write_buffer import WriteBuffer, coalesced
from penstock.stores.sqlite import connections, schema
from penstock.stores.sqlite.store import TABLES
from penstock.wakeups.local import LocalWakeups
from tests.stores.store_operations import a_queue, claim
from tests.support.builders import NOW_MS, a_run, a_task, an_activity, an_event, leased, released, standing_of
from tests.support.checked_store import CheckedStore
from tests.support.clock import ManualClock

DRIVER: Any = vars(connections)["sqlite3"]
SQLITE = catalogue(Dialect.SQLITE)
Operation = Callable[[Tx], Coroutine[Any, Any, Any]]
NO_TABLES = {"sqlite_master", "json_each"}


async def opened(path: Path) -> CheckedStore:
    store = await CheckedStore.open(path, ManualClock(NOW_MS), LocalWakeups())
    assert isinstance(store, CheckedStore)
    return store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CheckedStore]:
    made = await opened(tmp_path / "penstock.db")
    yield made
    await made.close()


async def together(store: CheckedStore, operations: list[Operation]) -> list[Any]:
    """Run operations as one group; returns their outcomes."""
    return await asyncio.gather(
        *(store.transact(each, key=str(number)) for number, each in enumerate(operations)),
        return_exceptions=True,
    )


def recording(record: Callable[[Tx], None]) -> Operation:
    async def operation(tx: Tx) -> None:
        record(tx)

    return operation


def inserting(task: Task, weight_milli: int = 1000) -> Operation:
    return recording(lambda tx: tx.tasks.insert(task, standing_of(task, weight_milli)))


def rows_of(store: CheckedStore, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    with contextlib.closing(DRIVER.connect(store._path)) as database:
        return [tuple(row) for row in database.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2")]


def everything(store: CheckedStore) -> dict[str, list[tuple[Any, ...]]]:
    with contextlib.closing(DRIVER.connect(store._path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: sorted(map(tuple, database.execute(f"SELECT * FROM {name}")), key=repr) for name in tables
        }


async def test_a_question_sees_what_operations_of_its_group_have_written(store: CheckedStore):
    queue = await a_queue(store)
    tasks = [a_task(queue, f"r{n}-1") for n in range(5)]
    starts = [inserting(task) for task in tasks]

    async def count(tx: Tx) -> int:
        return sum([await tx.tasks.get(task.task_id) is not None for task in tasks])

    *_, before, _, after = await together(store, [*starts[:3], count, *starts[3:4], count])
    assert (before, after) == (3, 4)


async def test_a_row_that_is_made_and_changed_in_one_group_is_as_it_was_changed_last(store: CheckedStore):
    """In the order of execution, save_task comes before insert_task."""
    queue = await a_queue(store)
    task = a_task(queue, "r1-1")
    held = leased(task)
    outcomes = await together(
        store,
        [
            inserting(task),
            recording(lambda tx: tx.tasks.lease(held)),
            recording(lambda tx: tx.tasks.save(released(held, TaskState.DONE), TaskState.LEASED)),
        ],
    )
    assert outcomes == [None] * 3
    assert rows_of(store, "tasks", "task_id, state") == [("r1-1", "done")]


async def test_who_breaks_a_rule_of_the_database_is_refused_and_nobody_else(store: CheckedStore):
    def insert(name: str) -> Operation:
        return recording(lambda tx: tx.runs.insert(a_run(name, workflow_id=name)))

    outcomes = await together(store, [insert("a"), insert("b"), insert("a"), insert("c")])
    assert [isinstance(each, DRIVER.IntegrityError) for each in outcomes] == [False, False, True, False]
    assert [name for name, _ in rows_of(store, "runs", "run_id, namespace")] == ["a", "b", "c"]


@pytest.mark.parametrize("place", [0, 2, 4])
async def test_who_has_a_value_that_does_not_fit_is_refused_and_nobody_else(store: CheckedStore, place: int):
    """The driver refuses the value when the buffer is flushed, at the end or before a fetch."""

    def insert(name: str, **columns: Any) -> Operation:
        return recording(lambda tx: tx.runs.insert(a_run(name, workflow_id=name, **columns)))

    async def look(tx: Tx) -> bool:
        return bool(await tx.runs.of_instance("default", "a", None, 10))

    operations = [insert("a"), insert("b"), look, insert("c")]
    operations.insert(place, insert("too large", run_timeout_s=2**70))
    outcomes = await together(store, operations)
    refused = outcomes.pop(place)
    assert isinstance(refused, OverflowError)
    assert outcomes == [None, None, True, None]
    assert [name for name, _ in rows_of(store, "runs", "run_id, namespace")] == ["a", "b", "c"]


async def test_an_operation_that_raises_leaves_what_others_keep_back(store: CheckedStore):
    async def refused(tx: Tx) -> None:
        tx.runs.insert(a_run("never", workflow_id="never"))
        await tx.runs.get(RunId("nobody"))
        raise Conflict(Reason.INSTANCE_ALREADY_STARTED, "no")

    outcomes = await together(
        store,
        [
            recording(lambda tx: tx.runs.insert(a_run("first", workflow_id="first"))),
            refused,
            recording(lambda tx: tx.runs.insert(a_run("last", workflow_id="last"))),
        ],
    )
    assert [type(each) for each in outcomes] == [type(None), Conflict, type(None)]
    assert [name for name, _ in rows_of(store, "runs", "run_id, namespace")] == ["first", "last"]


async def test_a_lane_counts_all_tasks_of_a_group_and_has_the_weight_that_was_said_last(store: CheckedStore):
    queue = await a_queue(store)
    weights = [1000, 2000, 2000, 1000, 3000, 4000]
    tasks = [a_task(queue, f"r{n}-1") for n in range(len(weights))]
    await together(store, [inserting(task, weight) for task, weight in zip(tasks, weights, strict=True)])
    assert rows_of(store, "lanes", "count, weight_milli, wanted_milli") == [(6, 1000, 4000)]
    assert rows_of(store, "meters", "added, dispatched") == [(6, 0)]


async def test_equal_writes_of_a_group_are_one_statement(
    store: CheckedStore, monkeypatch: pytest.MonkeyPatch
):
    written: list[tuple[str, int]] = []
    drain = store._write_buffer.drain

    def drained() -> list[tuple[Statement, list[tuple[Any, ...]]]]:
        writes = drain()
        written.extend((each.sql.split("(")[0].strip(), len(rows)) for each, rows in writes)
        return writes

    monkeypatch.setattr(store._write_buffer, "drain", drained)
    queue = await a_queue(store)
    tasks = [a_task(queue, f"r{n}-1") for n in range(20)]
    written.clear()
    await together(store, [inserting(task) for task in tasks])
    assert sorted(written) == [("INSERT INTO lanes", 1), ("INSERT INTO meters", 1), ("INSERT INTO tasks", 20)]


async def test_a_run_that_only_went_on_keeps_what_is_seldom_written(store: CheckedStore):
    """It is saved by another statement than one that ends, blocks or fails."""
    block = ReplayBlock(build_id="build")
    first = a_run("r1", deadline_at_ms=NOW_MS + 5, task_failures=2, task_error="late", blocked=block)
    later = replace(first, last_sequence=9, open_activities=1)
    ended = replace(
        later, status=RunStatus.COMPLETED, closed_reason="completed", output="7", closed_at_ms=NOW_MS
    )
    columns = (
        "last_sequence, status, deadline_at_ms, task_failures, task_error, blocked, closed_reason, output"
    )
    await together(store, [recording(lambda tx: tx.runs.insert(first))])
    await together(store, [recording(lambda tx: tx.runs.save(later))])
    seldom = (NOW_MS + 5, 2, "late", encode_block(block))
    assert rows_of(store, "runs", columns) == [(9, "pending", *seldom, None, None)]
    await together(store, [recording(lambda tx: tx.runs.save(ended))])
    assert rows_of(store, "runs", columns) == [(9, "completed", *seldom, "completed", "7")]


async def test_whether_a_run_has_a_workflow_task_is_known_and_never_wrong(store: CheckedStore):
    queue = await a_queue(store, TaskKind.WORKFLOW)

    async def live(tx: Tx) -> TaskId | None:
        found = await tx.tasks.lock_workflow_task(RunId("r1"))
        return None if found is None else found.task_id

    async def now() -> TaskId | None:
        return await store.transact(live, key="r1")

    assert await now() is None
    await together(store, [inserting(a_task(queue, "r1-1"))])
    assert await now() == "r1-1"
    [held] = await claim(store, queue.queue_id, 1)
    assert await now() == "r1-1"
    done = released(held, TaskState.DONE)
    await together(store, [recording(lambda tx: tx.tasks.save(done, TaskState.LEASED))])
    assert await now() is None
    await together(store, [inserting(a_task(queue, "r1-2"))])
    assert await now() == "r1-2"
    assert store.owners_compared > 0


async def test_a_workflow_task_that_is_made_before_its_forerunner_is_said_to_be_done_is_known(
    store: CheckedStore,
):
    queue = await a_queue(store, TaskKind.WORKFLOW)
    await together(store, [inserting(a_task(queue, "r1-1"))])
    [held] = await claim(store, queue.queue_id, 1)
    following = a_task(queue, "r1-2")

    async def go_on(tx: Tx) -> None:
        tx.tasks.insert(following, standing_of(following))
        tx.tasks.save(released(held, TaskState.DONE), TaskState.LEASED)

    async def look(tx: Tx) -> TaskId | None:
        found = await tx.tasks.lock_workflow_task(RunId("r1"))
        return None if found is None else found.task_id

    assert await together(store, [go_on, look]) == [None, "r1-2"]


async def test_a_task_of_old_that_is_read_says_nothing_of_the_one_that_is_live(store: CheckedStore):
    queue = await a_queue(store, TaskKind.WORKFLOW)
    first, second = a_task(queue, "r1-1"), a_task(queue, "r1-2")
    await together(
        store,
        [
            inserting(first),
            recording(lambda tx: tx.tasks.save(released(first, TaskState.CANCELLED), TaskState.READY)),
            inserting(second),
        ],
    )

    async def look(tx: Tx) -> TaskId | None:
        await tx.tasks.lock(TaskId("r1-1"))
        found = await tx.tasks.lock_workflow_task(RunId("r1"))
        return None if found is None else found.task_id

    assert await store.transact(look, key="r1") == "r1-2"


def test_equal_rows_are_told_as_one_with_their_number_and_each_lane_keeps_the_order_of_its_weights():
    one, other = ("lane", 1000), ("lane", 2000)
    beside = ("beside", 1000)
    assert coalesced([one, beside, one, other, beside, one]) == [
        ("lane", 1000, 2),
        ("beside", 1000, 2),
        ("lane", 2000, 1),
        ("lane", 1000, 1),
    ]


async def test_an_operation_whose_rows_cannot_be_kept_at_hand_is_told_so_and_not_written(store: CheckedStore):
    odd = a_run("odd", workflow_id="odd", memo=5)
    good = recording(lambda tx: tx.runs.insert(a_run("good", workflow_id="good")))
    told, other = await together(store, [recording(lambda tx: tx.runs.insert(odd)), good])
    assert (type(told), other) == (TypeError, None)
    assert rows_of(store, "runs", "run_id, workflow_id") == [("good", "good")]


async def test_an_operation_that_saves_a_row_twice_is_found_out(store: CheckedStore):
    """Which of the two is kept differs between stores; the test stores refuse it."""
    run = a_run("r1")
    await together(store, [recording(lambda tx: tx.runs.insert(run))])

    def save_twice(tx: Tx) -> None:
        tx.runs.save(replace(run, last_sequence=1))
        tx.runs.save(replace(run, task_failures=1))

    [told] = await together(store, [recording(save_twice)])
    assert isinstance(told, AssertionError)


def test_a_write_that_would_overtake_another_one_of_its_row_does_not_wait_with_it():
    write_buffer = WriteBuffer(SQLITE.values(), TABLES)
    assert write_buffer.append({SQLITE["insert_task"]: [("r1-1", 1)]})
    assert not write_buffer.append({SQLITE["save_task"]: [("r1-1", "done")]})
    assert write_buffer.append({SQLITE["save_task"]: [("r2-1", "done")]})
    assert write_buffer.append({SQLITE["save_clock"]: [(1, 3, 0, 0)]})
    assert not write_buffer.append({SQLITE["join_lane"]: [(1, 3, "", 1000)]}), "it reads the clock"
    drained = [(each.name, len(rows)) for each, rows in write_buffer.drain()]
    assert drained == [("save_task", 1), ("insert_task", 1), ("save_clock", 1)]
    assert write_buffer.append({SQLITE["save_task"]: [("r1-1", "done")]})


def test_a_fetch_drains_what_it_could_see_with_what_must_precede_that_and_the_rest_still_waits():
    write_buffer = WriteBuffer(SQLITE.values(), TABLES)
    reads_clocks = next(
        each for each in SQLITE.values() if not each.changes_rows and touched_tables(each) == {"clocks"}
    )
    assert write_buffer.append({SQLITE["insert_place"]: [("r1", 1, 0, 5, 0)]})
    assert write_buffer.append({SQLITE["join_lane"]: [(1, 3, "", 1000)]})
    assert write_buffer.append({SQLITE["save_clock"]: [(1, 3, 0, 0)]})
    drained = write_buffer.drain_before([Fetch(reads_clocks, ())])
    assert [each.name for each, _ in drained] == ["join_lane", "save_clock"]
    assert not write_buffer.must_flush_before([Fetch(reads_clocks, ())])
    assert write_buffer.must_flush_before([Fetch(SQLITE["has_line"], (1,))])
    assert write_buffer.append({SQLITE["insert_place"]: [("r2", 1, 0, 5, 0)]})
    assert [(each.name, len(rows)) for each, rows in write_buffer.drain()] == [("insert_place", 2)]


def test_every_table_that_a_statement_reads_or_changes_is_known(tmp_path: Path):
    """According to SQLite's authorizer, triggers included."""
    schema.prepare(tmp_path / "penstock.db")
    with contextlib.closing(DRIVER.connect(tmp_path / "penstock.db")) as database:
        for name, each in SQLITE.items():
            read, changed = tables_of(database, each)
            assert changed - NO_TABLES <= changed_tables(each) <= touched_tables(each), name
            assert read - NO_TABLES <= touched_tables(each), name


def tables_of(database: Any, statement: Statement) -> tuple[set[str], set[str]]:
    read, changed = set[str](), set[str]()
    changes = (DRIVER.SQLITE_INSERT, DRIVER.SQLITE_UPDATE, DRIVER.SQLITE_DELETE)

    def note(action: int, table: str, *_: object) -> int:
        if action in changes:
            changed.add(table)
        elif action == DRIVER.SQLITE_READ:
            read.add(table)
        return int(DRIVER.SQLITE_OK)

    database.set_authorizer(note)
    database.execute(f"EXPLAIN {statement.sql}", (None,) * len(statement.takes))
    return read, changed


@pytest.mark.parametrize("seed", range(12))
async def test_a_group_leaves_what_its_operations_leave_one_by_one(tmp_path: Path, seed: int):
    """Random programs, each run as a whole in groups and operation by operation."""
    grouped, single = await opened(tmp_path / "grouped.db"), await opened(tmp_path / "single.db")
    try:
        answers = []
        for store, size in ((grouped, 16), (single, 1)):
            queues = [await a_queue(store, kind) for kind in (TaskKind.WORKFLOW, TaskKind.ACTIVITY)]
            program = list(random_program(Random(seed), queues))
            answers.append(await carried_out(store, program, size))
        assert answers[0] == answers[1]
        assert everything(grouped) == everything(single)
    finally:
        await grouped.close()
        await single.close()


async def carried_out(store: CheckedStore, program: list[Operation], size: int) -> list[Any]:
    answers: list[Any] = []
    for start in range(0, len(program), size):
        answers += await together(store, program[start : start + size])
    return [type(each) if isinstance(each, Exception) else each for each in answers]


def random_program(random: Random, queues: list[Queue]) -> Iterator[Operation]:
    """Few runs and tasks, so that operations of one group conflict; some of them fail."""
    for number in range(120):
        name = f"r{random.randrange(4)}"
        task_id = f"{name}-{random.randrange(3)}"
        yield random.choice(ACTIONS)(random, number, name, task_id, random.choice(queues))


def _insert_run(_: Random, number: int, name: str, task_id: str, queue: Queue) -> Operation:
    return recording(lambda tx: tx.runs.insert(a_run(name, workflow_id=name)))


def _save_run(random: Random, number: int, name: str, task_id: str, queue: Queue) -> Operation:
    blocked = random.choice([None, None, ReplayBlock(build_id="build")])

    async def operation(tx: Tx) -> int | None:
        run = await tx.runs.lock(RunId(name))
        if run is None:
            return None
        tx.runs.save(replace(run, last_sequence=run.last_sequence + number, blocked=blocked))
        return run.last_sequence

    return operation


def _insert_task(random: Random, number: int, name: str, task_id: str, queue: Queue) -> Operation:
    return inserting(a_task(queue, task_id, key=random.choice(["", "k"])), random.choice([1000, 2000]))


def _save_task(random: Random, number: int, name: str, task_id: str, queue: Queue) -> Operation:
    state = random.choice([TaskState.LEASED, TaskState.DONE, TaskState.CANCELLED])

    async def operation(tx: Tx) -> str | None:
        task = await tx.tasks.lock(TaskId(task_id))
        if task is None or not task.is_live:
            return None
        after = leased(task, f"token-{number}") if state is TaskState.LEASED else released(task, state)
        tx.tasks.save(after, task.state)
        return str(task.state)

    return operation


def _append(_: Random, number: int, name: str, task_id: str, queue: Queue) -> Operation:
    async def operation(tx: Tx) -> None:
        run = await tx.runs.lock(RunId(name))
        if run is not None:
            tx.histories.append([an_event(run.run_id, run.last_sequence + 1)])
            tx.runs.save(replace(run, last_sequence=run.last_sequence + 1))

    return operation


def _activity(_: Random, number: int, name: str, task_id: str, queue: Queue) -> Operation:
    return recording(lambda tx: tx.activities.insert(an_activity(f"{task_id}-a", name)))


def _look(_: Random, number: int, name: str, task_id: str, queue: Queue) -> Operation:
    async def operation(tx: Tx) -> tuple[Any, ...]:
        live = await tx.tasks.lock_workflow_task(RunId(name))
        others = await tx.tasks.lock_live_of(RunId(name))
        return live and live.task_id, [each.task_id for each in others]

    return operation


def _fails(_: Random, number: int, name: str, task_id: str, queue: Queue) -> Operation:
    async def operation(tx: Tx) -> None:
        run = await tx.runs.lock(RunId(name))
        if run is not None:
            tx.runs.save(replace(run, last_sequence=run.last_sequence + 1000))
        raise Conflict(Reason.INSTANCE_ALREADY_STARTED, "no")

    return operation


ACTIONS: list[Callable[..., Operation]] = [
    _insert_run,
    _save_run,
    _save_run,
    _insert_task,
    _insert_task,
    _save_task,
    _save_task,
    _append,
    _activity,
    _look,
    _fails,
]
