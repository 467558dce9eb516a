"""What the memory store refuses, so that a mistake shows before it meets a database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from penstock.core.model import Queue, RunId, RunStatus, TaskState
from penstock.core.policies import PolicyChange
from penstock.core.scheduling.fairness import Clockwork, Place
from penstock.errors import Unavailable
from penstock.ports.store import Store, Tx
from penstock.stores.memory import MemoryStore
from penstock.wakeups.local import LocalWakeups
from tests.stores.working import ANYTHING, a_queue, claim, enqueue, look, record
from tests.support.builders import (
    NOW_MS,
    a_run,
    a_task,
    an_activity,
    an_event,
    an_instance,
    leased,
    standing_of,
)
from tests.support.clock import ManualClock


@pytest.fixture
def memory(clock: ManualClock, wakeups: LocalWakeups) -> MemoryStore:
    return MemoryStore(clock, wakeups)


async def test_an_operation_that_waits_for_something_else_is_refused(memory: Store):
    async def operation(tx: Tx) -> None:
        tx.runs.insert(a_run())
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="await only its transaction"):
        await memory.transact(operation, key="r1")
    assert await look(memory, lambda tx: tx.runs.get(RunId("r1"))) is None


@pytest.mark.parametrize(
    "write",
    [
        lambda tx: tx.runs.insert(a_run()),
        lambda tx: tx.workers.delete("default", "worker-1"),
        lambda tx: tx.wake("run:r1"),
    ],
)
async def test_a_read_that_records_is_refused(memory: Store, write: Callable[[Tx], None]):
    async def operation(tx: Tx) -> None:
        write(tx)

    with pytest.raises(RuntimeError, match="must record nothing"):
        await memory.read(operation)


async def test_a_read_that_reserves_is_refused(memory: Store):
    with pytest.raises(RuntimeError, match="must record nothing"):
        await look(memory, lambda tx: tx.runs.reserve(an_instance()))
    assert await look(memory, lambda tx: tx.runs.instance("default", "order-1")) is None


async def test_a_history_takes_no_event_that_leaves_a_gap(memory: Store):
    with pytest.raises(AssertionError, match="event 2 after 0"):
        await record(memory, lambda tx: tx.histories.append([an_event("r1", 2)]))


async def test_what_a_run_was_started_with_cannot_be_changed(memory: Store):
    await record(memory, lambda tx: tx.runs.insert(a_run()))
    with pytest.raises(AssertionError):
        await record(memory, lambda tx: tx.runs.save(a_run(workflow_type="Other")))


async def test_a_closed_run_cannot_keep_a_deadline(memory: Store):
    run = a_run(deadline_at_ms=NOW_MS)
    await record(memory, lambda tx: tx.runs.insert(run))
    with pytest.raises(AssertionError):
        await record(memory, lambda tx: tx.runs.save(replace(run, status=RunStatus.COMPLETED)))


async def test_an_activity_id_is_used_once(memory: Store):
    await record(memory, lambda tx: tx.activities.insert(an_activity()))
    with pytest.raises(AssertionError):
        await record(memory, lambda tx: tx.activities.insert(an_activity()))


@pytest.mark.parametrize(
    "write",
    [
        lambda tx, queue: tx.tasks.save(a_task(queue, last_error="x"), TaskState.LEASED),
        lambda tx, queue: tx.tasks.save(leased(a_task(queue)), TaskState.READY),
        lambda tx, queue: tx.tasks.save(a_task(queue, type="Other"), TaskState.READY),
        lambda tx, queue: tx.tasks.lease(a_task(queue)),
        lambda tx, queue: tx.tasks.lease(replace(leased(a_task(queue)), lease_token=None)),
        lambda tx, queue: tx.tasks.insert(a_task(queue), standing_of(a_task(queue))),
    ],
)
async def test_a_task_cannot_be_brought_into_a_state_that_contradicts_itself(
    memory: Store, write: Callable[[Tx, Queue], None]
):
    queue = await a_queue(memory)
    await enqueue(memory, a_task(queue))
    with pytest.raises(AssertionError):
        await record(memory, lambda tx: write(tx, queue))
    [granted] = await claim(memory, queue.queue_id, 9)
    assert granted.task_id == "r1-1"


async def test_a_lane_cannot_give_more_than_it_has(memory: Store):
    queue = await a_queue(memory)
    await enqueue(memory, a_task(queue))
    [lane] = await look(memory, lambda tx: tx.queues.lanes_to_place(queue.queue_id, ANYTHING, Place.FRESH))
    with pytest.raises(AssertionError, match="more than it had"):
        await record(memory, lambda tx: tx.queues.settle(queue.queue_id, lane, 2))


async def test_a_key_cannot_end_more_than_it_runs(memory: Store):
    queue = await a_queue(memory)
    with pytest.raises(AssertionError, match="more than it ran"):
        await record(memory, lambda tx: tx.policies.spend(queue.queue_id, "tenant", None, -1))


async def test_a_version_is_logged_once(memory: Store):
    queue = await a_queue(memory)
    change = PolicyChange(1, NOW_MS, "ann", "paused", "tenant", None, "1", None)
    await record(memory, lambda tx: tx.policies.log(queue.queue_id, [change]))
    with pytest.raises(AssertionError, match="version 1 is in the log"):
        await record(memory, lambda tx: tx.policies.log(queue.queue_id, [change]))


@pytest.mark.parametrize(
    "question",
    [
        lambda tx, queue: tx.policies.count_leases(queue.queue_id),
        lambda tx, queue: tx.policies.rank_lanes(queue.queue_id, by_running=True),
        lambda tx, queue: tx.queues.rebase(queue.queue_id, Clockwork(3)),
    ],
)
async def test_a_read_that_changes_many_rows_at_once_is_refused(
    memory: Store, question: Callable[[Tx, Queue], Awaitable[None]]
):
    queue = await a_queue(memory)
    with pytest.raises(RuntimeError, match="must record nothing"):
        await look(memory, lambda tx: question(tx, queue))


async def test_the_time_of_an_operation_is_the_time_of_the_clock(memory: Store, clock: ManualClock):
    async def operation(tx: Tx) -> int:
        return tx.now_ms

    clock.advance(7)
    assert await memory.transact(operation, key="r1") == NOW_MS + 7


async def test_a_closed_store_answers_nobody(memory: Store):
    await memory.close()
    with pytest.raises(Unavailable):
        await memory.check()
    with pytest.raises(Unavailable):
        await record(memory, lambda tx: tx.runs.insert(a_run()))
