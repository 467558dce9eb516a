"""An operation fetches two things at once."""

from __future__ import annotations

import asyncio
import threading
import types
from typing import Any

import pytest

from penstock.core.model import RunId
from penstock.errors import Conflict, Reason
from penstock.ports.gather import gather, remembering
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import record
from tests.support.builders import a_run, an_instance


@pytest.fixture
async def filled(store: Store) -> Store:
    def write(tx: Tx) -> None:
        for name in ("r1", "r2"):
            tx.runs.insert(a_run(name, workflow_id=f"order-{name}"))

    await record(store, write)
    return store


async def number_of(tx: Tx, *names: str) -> list[str]:
    """A fetch for each of some runs, one after the other."""
    found = [await tx.runs.get(RunId(name)) for name in names]
    return [run.workflow_id for run in found if run is not None]


async def workers_of(tx: Tx) -> int:
    return len(await tx.workers.list("default", None)) + len(await tx.cohorts.list("default", "orders"))


async def test_both_are_answered_though_one_asks_more_than_the_other(filled: Store):
    async def operation(tx: Tx) -> tuple[list[str], list[str]]:
        return await gather(number_of(tx, "r1", "r9", "r2"), number_of(tx, "r2"))

    expected = (["order-r1", "order-r2"], ["order-r2"])
    assert await filled.transact(operation, key="one") == expected
    assert await filled.read(operation) == expected


async def test_questions_of_different_kinds_are_answered_together(filled: Store):
    async def operation(tx: Tx, name: str) -> tuple[list[str], int]:
        return await gather(number_of(tx, name), workers_of(tx))

    asked = [filled.transact(lambda tx, n=n: operation(tx, f"r{n}"), key=f"{n}") for n in (1, 2, 9)]  # type: ignore[misc]
    assert await asyncio.gather(*asked) == [(["order-r1"], 0), (["order-r2"], 0), ([], 0)]
    read = [filled.read(lambda tx, n=n: operation(tx, f"r{n}")) for n in (1, 2, 9)]  # type: ignore[misc]
    assert await asyncio.gather(*read) == [(["order-r1"], 0), (["order-r2"], 0), ([], 0)]


async def test_one_that_locks_beside_one_that_looks_are_both_answered(filled: Store):
    async def operation(tx: Tx) -> tuple[str, str]:
        locked, standing = await gather(tx.runs.lock(RunId("r1")), tx.runs.reserve(an_instance(run_id="r1")))
        assert locked is not None
        return locked.run_id, standing.run_id

    assert await filled.transact(operation, key="one") == ("r1", "r1")
    found = await filled.read(lambda tx: tx.runs.instance("default", "order-1"))
    assert found is not None


async def test_what_one_of_them_refuses_ends_both(filled: Store):
    went_on = False

    async def refuse(tx: Tx) -> None:
        await tx.runs.get(RunId("r1"))
        raise Conflict(Reason.RUN_NOT_ACTIVE, "It is not wanted.")

    async def go_on(tx: Tx) -> None:
        nonlocal went_on
        await number_of(tx, "r1", "r2", "r1")
        went_on = True

    async def operation(tx: Tx) -> None:
        await gather(refuse(tx), go_on(tx))

    with pytest.raises(Conflict):
        await filled.transact(operation, key="one")
    assert not went_on


async def test_what_was_read_in_a_snapshot_is_not_read_again(filled: Store):
    """A page reads the same rows for several of its parts."""
    sent: list[int] = []

    @types.coroutine
    def counted(work: Any) -> Any:
        sent.clear()  # the read begins again where it turns out to need a snapshot
        answers = None
        while True:
            try:
                asks = work.send(answers)
            except StopIteration as end:
                return end.value
            sent.append(len(asks))
            answers = yield asks

    async def operation(tx: Tx) -> tuple[object, ...]:
        first = await gather(workers_of(tx), tx.runs.of_instance("default", "order-r1", None, 5))
        return first, await workers_of(tx), await tx.runs.of_instance("default", "order-r1", None, 5)

    (number, runs), again, same = await filled.read(lambda tx: counted(remembering(operation(tx))), long=True)
    assert (number, [run.run_id for run in runs]) == (again, [run.run_id for run in same]) == (0, ["r1"])
    assert sum(sent) == 3, "two of the workers, one of the runs"


async def test_an_error_of_a_read_that_is_remembered_reaches_the_caller(filled: Store):
    async def operation(tx: Tx) -> None:
        await number_of(tx, "r1")
        raise Conflict(Reason.RUN_NOT_ACTIVE, "It is not wanted.")

    with pytest.raises(Conflict):
        await filled.read(lambda tx: remembering(operation(tx)), long=True)


async def test_a_long_read_finds_what_a_short_one_finds(filled: Store):
    """Its fetches of one step are sent as one statement, once their columns are known."""

    async def operation(tx: Tx) -> object:
        return await gather(
            gather(number_of(tx, "r1", "r9"), number_of(tx, "r2")),
            gather(workers_of(tx), tx.namespaces.list()),
            gather(tx.runs.of_instance("default", "order-r2", None, 5), tx.scopes.admission()),
        )

    expected = await filled.read(operation)
    for _ in range(3):
        assert await filled.read(operation, long=True) == expected


async def test_what_a_long_read_makes_of_its_rows_is_not_made_on_the_loop(filled: Store):
    """The timeline of 50,000 events held up every other request of a server on PostgreSQL."""

    async def operation(tx: Tx) -> int:
        await number_of(tx, "r1", "r2")
        return threading.get_ident()

    assert await filled.read(operation, long=True) != threading.get_ident()
