"""Tasks: in exactly one state, found by run, worker, lease and time."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from penstock.core.model import Queue, RunId, Task, TaskId, TaskKind, TaskState
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import ANYTHING, a_queue, claim, enqueue, ids, look, record
from tests.support.builders import NOW_MS, a_task, leased, released, standing_of


async def stored(store: Store, task_id: str) -> Task:
    task = await look(store, lambda tx: tx.tasks.get(TaskId(task_id)))
    assert task is not None
    return task


async def is_seen(store: Store, queue: Queue, worker_filter: WorkerFilter) -> bool:
    return await look(store, lambda tx: tx.tasks.any_ready(queue.queue_id, worker_filter))


async def test_a_task_is_found_as_it_was_put_in_line_with_its_place(store: Store):
    queue = await a_queue(store)
    task = a_task(queue, "r1-1", compatibility="build-1", level=0, key="tenant-ü", attempt=0)
    await enqueue(store, task)
    found = await stored(store, "r1-1")
    assert found.seq > 0
    assert replace(found, seq=0) == task
    assert await look(store, lambda tx: tx.tasks.get(TaskId("nobody"))) is None


async def test_a_task_keeps_the_update_that_it_is_to_apply(store: Store):
    queue = await a_queue(store, TaskKind.WORKFLOW)
    await enqueue(store, a_task(queue, "r1-1", update_id="u1"), a_task(queue, "r2-1"))
    assert (await stored(store, "r1-1")).update_id == "u1"
    assert (await stored(store, "r2-1")).update_id is None
    granted = {task.task_id: task for task in await claim(store, queue.queue_id, 2)}
    assert granted[TaskId("r1-1")].update_id == "u1"
    again = released(granted[TaskId("r1-1")], TaskState.READY)
    await record(store, lambda tx: tx.tasks.save(again, TaskState.LEASED))
    assert (await stored(store, "r1-1")).update_id == "u1"


async def test_later_tasks_get_later_places(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, "r1-1"), a_task(queue, "r1-2"))
    await enqueue(store, a_task(queue, "r0-1"))
    places = [(await stored(store, name)).seq for name in ("r1-1", "r1-2", "r0-1")]
    assert places == sorted(set(places))


async def test_a_lease_is_recorded_with_all_that_fences_it(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue))
    [granted] = await claim(store, queue.queue_id, 1)
    assert await stored(store, "r1-1") == granted
    assert granted.state is TaskState.LEASED


async def test_a_finished_task_keeps_what_a_repeated_report_needs(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue))
    [granted] = await claim(store, queue.queue_id, 1)
    done = released(
        granted,
        TaskState.DONE,
        done_token=granted.lease_token,
        done_digest="digest",
        done_outcome="{}",
        last_error="none",
    )
    await record(store, lambda tx: tx.tasks.save(done, TaskState.LEASED))
    assert await stored(store, "r1-1") == done


async def test_the_live_tasks_of_a_run_are_the_ready_delayed_and_leased_ones(store: Store):
    queue = await a_queue(store)
    ready, delayed = a_task(queue, "r1-1"), a_task(queue, "r1-2", state=TaskState.DELAYED)
    held, gone = a_task(queue, "r1-3", key="held"), a_task(queue, "r1-4", key="gone")
    await enqueue(store, ready, delayed, held, gone, a_task(queue, "r2-1"))

    async def operation(tx: Tx) -> None:
        for name in ("r1-3", "r1-4"):
            task = await tx.tasks.lock(TaskId(name))
            assert task is not None
            if name == "r1-4":
                tx.tasks.save(released(task, TaskState.CANCELLED), TaskState.READY)
            else:
                tx.tasks.lease(leased(task))

    await store.transact(operation, key="r1")

    async def live(tx: Tx) -> list[str]:
        return ids(await tx.tasks.lock_live_of(RunId("r1")))

    assert await store.transact(live, key="r1") == ["r1-1", "r1-2", "r1-3"]


@pytest.mark.parametrize("state", [TaskState.READY, TaskState.DELAYED])
async def test_the_live_workflow_task_of_a_run_is_found_among_its_other_tasks(store: Store, state: TaskState):
    queue, other = await a_queue(store, TaskKind.WORKFLOW), await a_queue(store, TaskKind.ACTIVITY)
    await enqueue(store, a_task(other, "r1-1"), a_task(queue, "r1-2", state=state))

    async def decider(tx: Tx, run_id: str = "r1") -> str | None:
        task = await tx.tasks.lock_workflow_task(RunId(run_id))
        return task.task_id if task else None

    assert await store.transact(decider, key="r1") == "r1-2"
    assert await store.transact(lambda tx: decider(tx, "r2"), key="r2") is None


async def test_a_run_goes_on_with_its_next_workflow_task_when_the_last_one_ends(store: Store):
    queue = await a_queue(store, TaskKind.WORKFLOW)
    await enqueue(store, a_task(queue, "r1-1"))
    [granted] = await claim(store, queue.queue_id, 1)

    def write(tx: Tx) -> None:
        tx.tasks.insert(a_task(queue, "r1-2"), standing_of(granted))
        tx.tasks.save(released(granted, TaskState.DONE), TaskState.LEASED)

    await record(store, write, key="r1")
    assert (await stored(store, "r1-1")).state is TaskState.DONE
    assert ids(await claim(store, queue.queue_id, 5)) == ["r1-2"]


async def test_a_run_never_has_two_live_workflow_tasks(store: Store):
    queue = await a_queue(store, TaskKind.WORKFLOW)
    await enqueue(store, a_task(queue, "r1-1"))
    [refusal] = await asyncio.gather(enqueue(store, a_task(queue, "r1-2")), return_exceptions=True)
    assert isinstance(refusal, Exception)
    assert await look(store, lambda tx: tx.tasks.get(TaskId("r1-2"))) is None
    assert ids(await claim(store, queue.queue_id, 5)) == ["r1-1"]


async def test_a_repeated_poll_finds_what_it_already_holds(store: Store):
    queue = await a_queue(store)
    await enqueue(store, *(a_task(queue, f"r1-{n}") for n in range(3)))
    granted = await claim(store, queue.queue_id, 2)
    done = released(granted[0], TaskState.DONE)
    await record(store, lambda tx: tx.tasks.save(done, TaskState.LEASED))
    polls = [("worker-1", "poll-2"), ("worker-1", "poll-1"), ("worker-2", "poll-1")]
    found = await look(store, lambda tx: tx.tasks.redelivered("default", polls))
    assert [[*tasks] for tasks in found] == [[], granted[1:], []]
    assert await look(store, lambda tx: tx.tasks.redelivered("other", polls[1:2])) == [[]]


async def test_the_leases_of_a_worker_and_of_a_queue_are_found(store: Store):
    queue, other = await a_queue(store), await a_queue(store, name="refunds")
    await enqueue(store, a_task(queue, "r1-1"), a_task(queue, "r1-2"), a_task(queue, "r1-3"))
    await enqueue(store, a_task(other, "r2-1"))
    await claim(store, queue.queue_id, 2)
    await claim(store, other.queue_id, 2)
    assert await look(store, lambda tx: tx.tasks.leased_by("default", "worker-1")) == ["r1-1", "r1-2", "r2-1"]
    assert await look(store, lambda tx: tx.tasks.leased_by("default", "worker-2")) == []
    assert sorted(ids(await look(store, lambda tx: tx.tasks.leases_on(queue.queue_id, 9)))) == [
        "r1-1",
        "r1-2",
    ]
    assert len(await look(store, lambda tx: tx.tasks.leases_on(queue.queue_id, 1))) == 1


async def test_expired_leases_come_in_the_order_in_which_they_ended(store: Store):
    queue = await a_queue(store)
    ends = {"r1-1": NOW_MS, "r1-2": NOW_MS - 5, "r1-3": NOW_MS + 1, "r1-4": NOW_MS - 1}
    await enqueue(store, *(a_task(queue, name) for name in ends))
    granted = await claim(store, queue.queue_id, 4)

    def renew(tx: Tx) -> None:
        for task in granted:
            tx.tasks.save(replace(task, lease_expires_at_ms=ends[task.task_id]), TaskState.LEASED)

    await record(store, renew)
    assert await look(store, lambda tx: tx.tasks.expired(NOW_MS, 10)) == ["r1-2", "r1-4", "r1-1"]
    assert await look(store, lambda tx: tx.tasks.expired(NOW_MS, 1)) == ["r1-2"]
    assert ids(await look(store, lambda tx: tx.tasks.leases_on(queue.queue_id, 2))) == ["r1-2", "r1-4"]


async def test_delayed_tasks_come_due_in_the_order_of_their_moments(store: Store):
    queue = await a_queue(store)
    moments = {"r1-1": NOW_MS, "r1-2": NOW_MS - 5, "r1-3": NOW_MS + 1}
    assert await look(store, lambda tx: tx.tasks.next_due_at_ms()) is None
    await enqueue(
        store,
        a_task(queue, "r1-9"),
        *(a_task(queue, name, state=TaskState.DELAYED, available_at_ms=at) for name, at in moments.items()),
    )
    assert await look(store, lambda tx: tx.tasks.due(NOW_MS, 10)) == ["r1-2", "r1-1"]
    assert await look(store, lambda tx: tx.tasks.due(NOW_MS, 1)) == ["r1-2"]
    assert await look(store, lambda tx: tx.tasks.next_due_at_ms()) == NOW_MS - 5


@pytest.mark.parametrize(
    ("worker_filter", "expected"),
    [
        (ANYTHING, True),
        (WorkerFilter(("Charge", "Ship"), None), True),
        (WorkerFilter(("Ship",), None), False),
        (WorkerFilter(("Charg",), None), False),
    ],
)
async def test_a_waiting_task_is_seen_by_those_who_know_its_type(
    store: Store, worker_filter: WorkerFilter, expected: bool
):
    queue = await a_queue(store)
    assert not await is_seen(store, queue, ANYTHING)
    await enqueue(
        store, a_task(queue, type="Charge"), a_task(queue, "r1-2", type="X", state=TaskState.DELAYED)
    )
    assert await is_seen(store, queue, worker_filter) is expected


async def test_a_task_that_asks_for_a_build_is_seen_by_that_build_only(store: Store):
    queue = await a_queue(store)
    await enqueue(store, a_task(queue, compatibility="build-1"))
    assert not await is_seen(store, queue, WorkerFilter((), None))
    assert await is_seen(store, queue, WorkerFilter((), "build-1"))
    assert not await is_seen(store, queue, WorkerFilter((), "build-2"))
