"""Assertions of the memory store, which catch mistakes that a database would not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.limits.policies import PolicyChange
from penstock.core.model import (
    NO_LINEAGE,
    ChildState,
    Lineage,
    Queue,
    ReplayBlock,
    RunId,
    RunStatus,
    TaskState,
    UpdateStatus,
)
from penstock.core.scheduling.fairness import LaneState, VirtualClock
from penstock.errors import Unavailable
from penstock.ports.store import Store, Tx
from penstock.stores.memory import MemoryStore
from penstock.wakeups.local import LocalWakeups
from tests.stores.store_operations import ANYTHING, a_queue, claim, enqueue, look, record
from tests.support.builders import (
    NOW_MS,
    a_child,
    a_letter,
    a_run,
    a_task,
    a_timer,
    an_activity,
    an_event,
    an_instance,
    an_update,
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


@pytest.mark.parametrize(
    "write",
    [
        lambda tx, number: tx.runs.save(a_run(last_step=number)),
        lambda tx, number: tx.runs.save_attributes(a_run(memo=f'{{"n":{number}}}')),
        lambda tx, number: tx.activities.save(an_activity(attempt=number)),
        lambda tx, number: tx.timers.save(a_timer()),
        lambda tx, number: tx.children.save(a_child()),
        lambda tx, number: tx.updates.save(an_update()),
    ],
)
async def test_a_row_that_is_saved_twice_in_one_operation_is_refused(
    memory: Store, write: Callable[[Tx, int], None]
):
    def begin(tx: Tx) -> None:
        tx.runs.insert(a_run())
        tx.activities.insert(an_activity())
        tx.timers.insert(a_timer())
        tx.children.insert(a_child())
        tx.updates.insert(an_update())

    def write_twice(tx: Tx) -> None:
        write(tx, 1)
        write(tx, 2)

    await record(memory, begin)
    with pytest.raises(AssertionError, match="written twice in one operation"):
        await record(memory, write_twice)
    assert await look(memory, lambda tx: tx.runs.get(RunId("r1"))) == a_run()


async def test_a_task_that_joins_and_changes_in_one_operation_is_refused(memory: Store):
    queue = await a_queue(memory)
    task = a_task(queue)

    def write(tx: Tx) -> None:
        tx.tasks.insert(task, standing_of(task))
        tx.tasks.save(replace(task, state=TaskState.CANCELLED), TaskState.READY)

    with pytest.raises(AssertionError, match="written twice in one operation"):
        await record(memory, write)


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


async def test_a_closed_run_cannot_be_blocked(memory: Store):
    run = a_run(blocked=ReplayBlock(sequence=5))
    await record(memory, lambda tx: tx.runs.insert(run))
    with pytest.raises(AssertionError, match="waits for no other code"):
        await record(memory, lambda tx: tx.runs.save(replace(run, status=RunStatus.TERMINATED)))


async def test_where_a_run_comes_from_cannot_be_changed(memory: Store):
    await record(memory, lambda tx: tx.runs.insert(a_run(lineage=Lineage(parent_run_id=RunId("r0")))))
    with pytest.raises(AssertionError):
        await record(memory, lambda tx: tx.runs.save(a_run(lineage=NO_LINEAGE)))


async def test_a_workflow_id_passes_over_no_run(memory: Store):
    here = an_instance()
    await memory.transact(lambda tx: tx.runs.reserve(here), key="start")
    with pytest.raises(AssertionError, match="one run follows the other"):
        await record(memory, lambda tx: tx.runs.succeed(replace(here, run_id=RunId("r3"), run_count=3)))
    assert await look(memory, lambda tx: tx.runs.instance("default", "order-1")) == here


@pytest.mark.parametrize("state", [ChildState.CLOSED, ChildState.CANCELLED])
async def test_a_child_that_was_given_up_or_has_ended_does_not_open_again(memory: Store, state: ChildState):
    await record(memory, lambda tx: tx.children.insert(a_child(state=state)))
    with pytest.raises(AssertionError, match="it opens once"):
        await record(memory, lambda tx: tx.children.save(a_child()))


async def test_what_a_child_was_started_as_cannot_be_changed(memory: Store):
    await record(memory, lambda tx: tx.children.insert(a_child()))
    with pytest.raises(AssertionError, match="only the state"):
        await record(memory, lambda tx: tx.children.save(a_child(run_id=RunId("another"))))


async def test_a_letter_id_is_used_once(memory: Store):
    await record(memory, lambda tx: tx.outbox.insert(a_letter()))
    with pytest.raises(AssertionError, match="letter-1 exists"):
        await record(memory, lambda tx: tx.outbox.insert(a_letter(payload="other")))


async def test_two_updates_of_a_run_have_two_numbers(memory: Store):
    await record(memory, lambda tx: tx.updates.insert(an_update("u1")))
    with pytest.raises(AssertionError, match="has an update 1"):
        await record(memory, lambda tx: tx.updates.insert(an_update("u2")))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"status": UpdateStatus.COMPLETED},
        {"closed_at_ms": NOW_MS},
        {"outcome": "{}"},
    ],
)
async def test_an_update_cannot_be_brought_into_a_state_that_contradicts_itself(
    memory: Store, changes: dict[str, Any]
):
    await record(memory, lambda tx: tx.updates.insert(an_update()))
    with pytest.raises(AssertionError):
        await record(memory, lambda tx: tx.updates.save(replace(an_update(), **changes)))
    assert await look(memory, lambda tx: tx.updates.get("u1")) == an_update()


async def test_an_update_has_one_outcome(memory: Store):
    done = an_update(status=UpdateStatus.COMPLETED, outcome="{}", closed_at_ms=NOW_MS)
    await record(memory, lambda tx: tx.updates.insert(an_update()))
    await record(memory, lambda tx: tx.updates.save(done))
    with pytest.raises(AssertionError, match="late-answers-change-nothing"):
        await record(memory, lambda tx: tx.updates.save(replace(done, status=UpdateStatus.FAILED)))


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
    [lane] = await look(memory, lambda tx: tx.queues.lanes_to_tag(queue.queue_id, ANYTHING, LaneState.NEW))
    with pytest.raises(AssertionError, match="more than it had"):
        await record(memory, lambda tx: tx.queues.settle(queue.queue_id, [(lane, 2)]))


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
        lambda tx, queue: tx.queues.rebase(queue.queue_id, VirtualClock(3)),
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
