"""SQLite runs operations on the event loop: what must not block it, and what is run twice."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model import RunId
from penstock.errors import Conflict, Reason, Unavailable
from penstock.ports.store import Tx
from penstock.stores.group_commit import CommitPoint
from penstock.stores.sqlite import connections
from penstock.stores.sqlite.store import SqliteStore
from penstock.wakeups.local import LocalWakeups
from tests.support.builders import NOW_MS, a_run, an_event
from tests.support.clock import ManualClock
from tests.support.patience import PATIENCE_S

DRIVER: Any = vars(connections)["sqlite3"]


class Gate:
    """Delays commits, in the thread that executes them."""

    def __init__(self) -> None:
        self.is_open, self.reached = threading.Event(), threading.Event()
        self.commits = 0
        self.is_open.set()

    def __call__(self, moment: CommitPoint, _keys: Sequence[str]) -> None:
        if moment is CommitPoint.BEFORE_COMMIT:
            self.reached.set()
            assert self.is_open.wait(PATIENCE_S)
            self.commits += 1


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def store(tmp_path: Path, gate: Gate) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(
        tmp_path / "penstock.db", ManualClock(NOW_MS), LocalWakeups(), on_commit=gate
    )
    yield opened
    gate.is_open.set()
    await opened.close()


async def start(store: SqliteStore, name: str) -> None:
    async def operation(tx: Tx) -> None:
        tx.runs.insert(a_run(name, workflow_id=name))

    await store.transact(operation, key=name)


async def is_there(store: SqliteStore, name: str) -> bool:
    async def operation(tx: Tx) -> bool:
        return await tx.runs.get(RunId(name)) is not None

    return await store.read(operation)


@contextlib.asynccontextmanager
async def turns_of_others() -> AsyncIterator[list[None]]:
    """Counts the iterations of the event loop."""
    scope_locks: list[None] = []

    async def count() -> None:
        while True:
            scope_locks.append(None)
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await asyncio.sleep(0)
    scope_locks.clear()
    try:
        yield scope_locks
    finally:
        counting.cancel()


async def test_while_the_disk_is_slow_reads_are_answered_and_what_comes_gathers_for_one_commit(
    store: SqliteStore, gate: Gate
) -> None:
    await start(store, "before")
    gate.reached.clear()
    gate.is_open.clear()
    first = asyncio.ensure_future(start(store, "first"))
    await asyncio.to_thread(gate.reached.wait)
    others = [asyncio.ensure_future(start(store, f"other-{n}")) for n in range(20)]
    assert await is_there(store, "before")
    assert not await is_there(store, "first"), "nobody sees what is not committed"
    commits = gate.commits
    gate.is_open.set()
    await asyncio.gather(first, *others)
    assert gate.commits == commits + 2
    assert await is_there(store, "other-19")


async def test_whoever_writes_to_the_file_by_hand_is_waited_for_and_the_loop_goes_on(
    store: SqliteStore, tmp_path: Path
) -> None:
    await start(store, "before")
    with contextlib.closing(DRIVER.connect(tmp_path / "penstock.db", isolation_level=None)) as hand:
        hand.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(start(store, "after"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert await is_there(store, "before")
        assert not waiting.done()
        hand.execute("ROLLBACK")
        await waiting
    assert await is_there(store, "after")


async def test_a_group_in_which_nothing_changes_does_not_wait_for_the_disk(
    store: SqliteStore, gate: Gate
) -> None:
    await start(store, "before")
    gate.reached.clear()

    async def look(tx: Tx) -> bool:
        return await tx.runs.lock(RunId("before")) is not None

    thread: list[threading.Thread] = []

    def note(_: CommitPoint, _keys: Sequence[str]) -> None:
        thread.append(threading.current_thread())

    store._on_commit = note
    assert await store.transact(look, key="before")
    assert set(thread) == {threading.current_thread()}


async def test_an_operation_that_fails_halfway_lets_its_neighbours_run_again_and_be_committed_once(
    store: SqliteStore,
) -> None:
    ran: list[str] = []

    async def good(tx: Tx) -> None:
        ran.append("good")
        tx.runs.insert(a_run("good", workflow_id="good"))

    async def halfway(tx: Tx) -> None:
        ran.append("halfway")
        tx.runs.insert(a_run("halfway", workflow_id="halfway"))
        tx.histories.append([an_event("halfway", 1), an_event("halfway", 1)])

    async def refused(_: Tx) -> None:
        ran.append("refused")
        raise Conflict(Reason.RUN_NOT_ACTIVE, "not now")

    outcomes = await asyncio.gather(
        *(store.transact(each, key=each.__name__) for each in (good, refused, halfway)),
        return_exceptions=True,
    )
    assert ran == ["good", "refused", "halfway"] * 2
    assert outcomes[0] is None
    assert isinstance(outcomes[1], Conflict)
    assert isinstance(outcomes[2], DRIVER.IntegrityError)
    assert [await is_there(store, name) for name in ("good", "halfway")] == [True, False]


async def test_a_long_group_lets_others_have_their_turn(store: SqliteStore) -> None:
    async def slow(tx: Tx) -> None:
        for _ in range(200):
            await tx.runs.get(RunId("nobody"))

    await start(store, "before")
    async with turns_of_others() as scope_locks:
        await asyncio.gather(*(store.transact(slow, key=str(n)) for n in range(50)))
    assert len(scope_locks) > 5


async def test_a_close_that_is_given_up_goes_on_and_everybody_is_answered(
    store: SqliteStore, gate: Gate, tmp_path: Path
) -> None:
    await start(store, "before")
    gate.reached.clear()
    gate.is_open.clear()
    sent = [asyncio.ensure_future(start(store, f"run-{n}")) for n in range(3)]
    await asyncio.to_thread(gate.reached.wait)
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    gate.is_open.set()
    await asyncio.gather(*sent)
    await store.close()
    again = await SqliteStore.open(tmp_path / "penstock.db", ManualClock(NOW_MS), LocalWakeups())
    assert await is_there(again, "run-2")
    await again.close()


async def test_a_store_that_is_closed_says_so(store: SqliteStore) -> None:
    await store.close()
    for asked in (start(store, "late"), is_there(store, "late")):
        with pytest.raises(Unavailable, match="closing"):
            await asked


class Halt(BaseException):
    """A BaseException that is not an Exception."""


@pytest.mark.parametrize("thrown", [asyncio.CancelledError, Halt])
async def test_an_operation_that_throws_what_ends_programs_leaves_nobody_waiting(
    store: SqliteStore, thrown: type[BaseException]
) -> None:
    async def bad(_: Tx) -> None:
        raise thrown

    sent = [store.transact(bad, key="bad"), start(store, "neighbour")]
    outcomes = await asyncio.gather(*sent, return_exceptions=True)
    assert isinstance(outcomes[0], RuntimeError | Unavailable)
    await start(store, "after")
    assert await is_there(store, "after")


async def test_a_long_operation_lets_others_have_their_turn(store: SqliteStore) -> None:
    async def long(tx: Tx) -> None:
        for n in range(2000):
            await tx.runs.get(RunId("nobody"))
            tx.runs.insert(a_run(f"run-{n}", workflow_id=f"run-{n}"))

    await start(store, "before")
    async with turns_of_others() as scope_locks:
        await store.transact(long, key="long")
    assert len(scope_locks) > 5
    assert await is_there(store, "run-1999")


async def test_a_writer_that_is_stopped_before_it_began_leaves_nobody_waiting(store: SqliteStore) -> None:
    waiting = asyncio.ensure_future(start(store, "first"))
    await asyncio.sleep(0)
    [writer] = [each for each in asyncio.all_tasks() if each.get_name() == "penstock-writer"]
    writer.cancel()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(waiting, PATIENCE_S)
    await asyncio.wait_for(start(store, "second"), PATIENCE_S)
