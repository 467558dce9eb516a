"""The journal: grants and ends of leases, recorded in the transaction that made them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.model import TaskPriority, TaskState
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
    line, *later = [
        each for each in await lines(journaling) if each["event"] != "ready" or each["attempt"] > 1
    ]
    assert [each["event"] for each in later] == (["ready"] if state is TaskState.READY else [])
    assert line.pop("at_ms") > 0
    told = {"event": "ended", "task_id": "r1-1", "lease": task.lease_token, "how": ENDS[state], "cost": 7}
    assert line == told
    stored = await look(journaling, lambda tx: tx.tasks.get(task.task_id))
    assert stored is not None
    assert (stored.ended_lease, stored.ended_how, stored.ended_cost) == (None, None, None), "told, not kept"


@pytest.mark.parametrize("was", [TaskState.READY, TaskState.DELAYED])
async def test_a_task_that_waited_and_will_not_be_granted_is_told_as_gone(journaling: Store, was: TaskState):
    queue = await a_queue(journaling)
    task = replace(a_task(queue, "r1-1"), state=was)
    await enqueue(journaling, task)
    gone = released(task, TaskState.CANCELLED)
    await record(journaling, lambda tx: tx.tasks.save(gone, was))
    *before, line = await lines(journaling)
    assert [each["event"] for each in before] == (["ready"] if was is TaskState.READY else [])
    assert line.pop("at_ms") > 0
    assert line == {"event": "gone", "task_id": "r1-1", "how": "cancelled"}


async def test_a_task_that_arrives_is_told_with_all_that_its_order_depends_on(journaling: Store):
    queue = await a_queue(journaling)
    task = replace(a_task(queue, "r1-1"), level=3, key="tenant", cost=7)
    await record(journaling, lambda tx: tx.tasks.insert(task, TaskPriority(3, "tenant", 2_500)))
    (line,) = await lines(journaling)
    assert line.pop("at_ms") > 0
    assert line == {
        "event": "ready",
        "namespace": task.namespace,
        "task_queue": task.task_queue,
        "kind": "activity",
        "type": task.type,
        "task_id": "r1-1",
        "run_id": task.run_id,
        "key": "tenant",
        "level": 3,
        "attempt": 1,
        "weight": 2_500,
        "cost": 7,
    }


@pytest.mark.parametrize("end_is", ["first", "last"])
async def test_what_becomes_ready_with_the_end_of_a_task_names_that_task(journaling: Store, end_is: str):
    queue = await a_queue(journaling)
    await enqueue(journaling, a_task(queue, "r1-1"))
    (task,) = await claim(journaling, queue.queue_id, 1)
    ended = released(task, TaskState.DONE, ended_lease=task.lease_token, ended_how="completed")

    def operation(tx: Tx) -> None:
        steps = [
            lambda: tx.tasks.save(ended, TaskState.LEASED),
            lambda: tx.tasks.insert(a_task(queue, "r1-2"), TaskPriority()),
        ]
        for step in steps if end_is == "first" else reversed(steps):
            step()

    await record(journaling, operation)
    ready = [line for line in await lines(journaling) if line["event"] == "ready"]
    assert [line.get("after") for line in ready] == [None, "r1-1"]


async def test_a_retry_names_its_own_task_and_when_it_was_due(journaling: Store):
    queue = await a_queue(journaling)
    await enqueue(journaling, a_task(queue, "r1-1"))
    (task,) = await claim(journaling, queue.queue_id, 1)
    delayed = released(task, TaskState.DELAYED, ended_lease=task.lease_token, available_at_ms=5)
    await record(journaling, lambda tx: tx.tasks.save(delayed, TaskState.LEASED))
    due = replace(delayed, state=TaskState.READY, ended_lease=None)
    await record(journaling, lambda tx: tx.tasks.save(due, TaskState.DELAYED))
    line = (await lines(journaling))[-1]
    assert (line["event"], line["after"], line["attempt"], line["due_at_ms"]) == ("ready", "r1-1", 2, 5)


async def test_where_no_journal_is_kept_nothing_is_told(store: Store):
    assert not store.journals
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, "r1-1"))
    (task,) = await claim(store, queue.queue_id, 1)
    await record(store, lambda tx: tx.tasks.save(released(task, TaskState.DONE), TaskState.LEASED))
    assert await lines(store) == []
