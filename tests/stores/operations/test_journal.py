"""The journal: grants and ends of leases, recorded in the transaction that made them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model import TaskState
from penstock.errors import Conflict, Reason
from penstock.ports.store import Store, Tx
from penstock.wakeups.local import LocalWakeups
from tests.stores.conftest import open_store
from tests.stores.store_operations import a_queue, claim, enqueue, look, record
from tests.support.builders import a_task, released
from tests.support.clock import ManualClock

ENDS = {
    TaskState.DONE: "completed",
    TaskState.CANCELLED: "cancelled",
    TaskState.READY: "returned",
    TaskState.DELAYED: "returned",
}


@pytest.fixture
async def journaling(address: str | Path, clock: ManualClock, wakeups: LocalWakeups) -> AsyncIterator[Store]:
    opened = await open_store(address, clock, wakeups, journals=True)
    yield opened
    await opened.close()


async def lines(store: Store) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in await look(store, lambda tx: tx.journal.page(0, 1_000))]


async def test_lines_are_read_page_by_page_in_the_order_in_which_they_were_told(store: Store):
    for number in range(5):
        await record(store, lambda tx, number=number: tx.journal.append({"number": number, "word": "süß"}))  # type: ignore[misc]
    first = await look(store, lambda tx: tx.journal.page(0, 3))
    rest = await look(store, lambda tx: tx.journal.page(first[-1][0], 3))
    assert [json.loads(line)["number"] for _, line in (*first, *rest)] == [0, 1, 2, 3, 4]
    assert [seq for seq, _ in (*first, *rest)] == sorted({seq for seq, _ in (*first, *rest)})
    assert await look(store, lambda tx: tx.journal.page(rest[-1][0], 3)) == []
    assert json.loads(first[0][1]) == {"number": 0, "word": "süß"}


async def test_lines_of_one_operation_keep_their_order(store: Store):
    def tell(tx: Tx) -> None:
        for number in range(9):
            tx.journal.append({"number": number})

    await record(store, tell)
    assert [line["number"] for line in await lines(store)] == [*range(9)]


async def test_old_lines_are_forgotten_and_the_others_keep_their_numbers(store: Store):
    async def tell(tx: Tx) -> int:
        tx.journal.append({"at_ms": tx.now_ms})
        return tx.now_ms

    told_at_ms = await store.transact(tell, key="journal")
    before = await look(store, lambda tx: tx.journal.page(0, 9))
    assert not await look(store, lambda tx: tx.journal.any_before(told_at_ms))
    assert await look(store, lambda tx: tx.journal.any_before(told_at_ms + 1))
    await record(store, lambda tx: tx.journal.forget(told_at_ms))
    assert await look(store, lambda tx: tx.journal.page(0, 9)) == before
    await record(store, lambda tx: tx.journal.forget(told_at_ms + 1))
    assert await lines(store) == []
    await store.transact(tell, key="journal")
    assert [seq > before[0][0] for seq, _ in await look(store, lambda tx: tx.journal.page(0, 9))] == [True]


async def test_a_refused_operation_tells_nothing(store: Store):
    async def refuse(tx: Tx) -> None:
        tx.journal.append({"number": 1})
        raise Conflict(Reason.RUN_NOT_ACTIVE, "not now")

    with pytest.raises(Conflict):
        await store.transact(refuse, key="journal")
    assert await lines(store) == []


@pytest.mark.parametrize("state", ENDS)
async def test_the_end_of_a_lease_is_told_where_a_journal_is_kept(journaling: Store, state: TaskState):
    assert journaling.journals
    queue = await a_queue(journaling)
    await enqueue(journaling, a_task(queue, "r1-1"))
    (task,) = await claim(journaling, queue.queue_id, 1)
    how = "completed" if state is TaskState.DONE else None
    ended = released(task, state, ended_lease=task.lease_token, ended_how=how, ended_cost=7)
    await record(journaling, lambda tx: tx.tasks.save(ended, TaskState.LEASED))
    (line,) = await lines(journaling)
    assert line.pop("at_ms") > 0
    told = {"event": "ended", "task_id": "r1-1", "lease": task.lease_token, "how": ENDS[state], "cost": 7}
    assert line == told
    stored = await look(journaling, lambda tx: tx.tasks.get(task.task_id))
    assert stored is not None
    assert (stored.ended_lease, stored.ended_how, stored.ended_cost) == (None, None, None), "told, not kept"


async def test_the_end_of_a_task_that_nobody_held_is_not_told(journaling: Store):
    queue = await a_queue(journaling)
    task = a_task(queue, "r1-1")
    await enqueue(journaling, task)
    gone = released(task, TaskState.CANCELLED)
    await record(journaling, lambda tx: tx.tasks.save(gone, TaskState.READY))
    assert await lines(journaling) == []


async def test_where_no_journal_is_kept_nothing_is_told(store: Store):
    assert not store.journals
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, "r1-1"))
    (task,) = await claim(store, queue.queue_id, 1)
    await record(store, lambda tx: tx.tasks.save(released(task, TaskState.DONE), TaskState.LEASED))
    assert await lines(store) == []
