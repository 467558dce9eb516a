"""The guarantees of transactions: atomic, in order by key, answered after the commit."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from penstock.core.model import Queue, RunId, Task, TaskId, TaskState
from penstock.errors import Conflict, PenstockError, Reason, Unavailable
from penstock.ports.store import Store, Transaction, TransactionClass, Tx
from tests.stores.store_operations import a_queue, claim, enqueue, ids, look, record
from tests.support.builders import (
    NOW_MS,
    a_cohort,
    a_namespace,
    a_run,
    a_task,
    a_timer,
    a_worker,
    an_activity,
    an_event,
    an_event_in_waiting,
    an_instance,
    released,
    standing_of,
)

R1 = RunId("r1")


def refusal() -> PenstockError:
    return Conflict(Reason.RUN_NOT_ACTIVE, "not now")


def write_everything(tx: Tx, queue: Queue, run_id: str = "r1") -> None:
    task = a_task(queue, f"{run_id}-1")
    tx.runs.insert(a_run(run_id, workflow_id=f"w-{run_id}"))
    tx.histories.append([an_event(run_id, 1), an_event(run_id, 2)])
    tx.histories.buffer(RunId(run_id), 1, an_event_in_waiting())
    tx.activities.insert(an_activity(f"{run_id}-a", run_id))
    tx.timers.insert(a_timer(f"{run_id}-t", run_id))
    tx.tasks.insert(task, standing_of(task))
    tx.workers.save(a_worker(f"worker-{run_id}"))
    tx.cohorts.save(a_cohort(f"build-{run_id}"))


async def what_is_there(store: Store, queue: Queue, run_id: str = "r1") -> list[bool]:
    async def operation(tx: Tx) -> list[bool]:
        found = (
            await tx.runs.get(RunId(run_id)),
            await tx.histories.page(RunId(run_id), 0, 9),
            await tx.histories.buffered(RunId(run_id)),
            await tx.activities.open_of(RunId(run_id)),
            await tx.timers.open_of(RunId(run_id)),
            await tx.tasks.get(TaskId(f"{run_id}-1")),
            await tx.workers.get("default", f"worker-{run_id}"),
            await tx.cohorts.get("default", "orders", f"build-{run_id}"),
        )
        return [bool(each) for each in found]

    return await store.read(operation)


async def test_everything_an_operation_recorded_is_there_when_it_is_answered(store: Store):
    queue = await a_queue(store)
    await record(store, lambda tx: write_everything(tx, queue))
    assert all(await what_is_there(store, queue))


async def test_the_answer_of_an_operation_reaches_its_caller(store: Store):
    async def operation(tx: Tx) -> tuple[str, int]:
        await tx.runs.get(R1)
        return "answer", tx.now_ms

    answer, now_ms = await store.transact(operation, key="r1")
    assert answer == "answer"
    assert now_ms > 0


async def test_time_stands_still_inside_a_transaction(store: Store):
    async def operation(tx: Tx) -> set[int]:
        seen = {tx.now_ms}
        for n in range(3):
            await tx.runs.get(RunId(f"r{n}"))
            seen.add(tx.now_ms)
        return seen

    assert len(await store.transact(operation, key="r1")) == 1
    assert len(await store.read(operation)) == 1


async def test_an_operation_that_refuses_records_nothing(store: Store):
    queue = await a_queue(store)

    async def operation(tx: Tx) -> None:
        await tx.runs.lock(R1)
        write_everything(tx, queue)
        raise refusal()

    with pytest.raises(Conflict) as refused:
        await store.transact(operation, key="r1")
    assert refused.value.reason is Reason.RUN_NOT_ACTIVE
    assert not any(await what_is_there(store, queue))
    assert await claim(store, queue.queue_id, 1) == []
    assert (await look(store, lambda tx: tx.queues.stats(queue.queue_id, tx.now_ms))).added_last_minute == 0


async def test_what_an_operation_reserved_is_free_again_when_it_fails(store: Store):
    async def operation(tx: Tx) -> None:
        await tx.runs.reserve(an_instance())
        await tx.namespaces.reserve(a_namespace("shop"))
        await tx.nonces.register("key", "nonce", NOW_MS)
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        await store.transact(operation, key="r1")
    assert await look(store, lambda tx: tx.runs.instance("default", "order-1")) is None
    assert await look(store, lambda tx: tx.namespaces.list()) == []
    assert await store.transact(lambda tx: tx.nonces.register("key", "nonce", NOW_MS), key="n")


async def test_an_operation_that_breaks_records_nothing_and_says_what_broke(store: Store):
    queue = await a_queue(store)

    async def operation(tx: Tx) -> None:
        write_everything(tx, queue)
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        await store.transact(operation, key="r1")
    assert not any(await what_is_there(store, queue))


async def test_a_second_event_with_one_sequence_takes_its_whole_operation_back(store: Store):
    queue = await a_queue(store)
    await record(store, lambda tx: tx.histories.append([an_event("r0", 1)]))

    def write(tx: Tx) -> None:
        write_everything(tx, queue)
        tx.histories.append([an_event("r0", 1, "Forged")])

    [outcome] = await asyncio.gather(record(store, write), return_exceptions=True)
    assert isinstance(outcome, Exception)
    assert not any(await what_is_there(store, queue))
    [event] = await look(store, lambda tx: tx.histories.page(RunId("r0"), 0, 9))
    assert event.type == "ActivityScheduled"


async def test_an_operation_does_not_see_what_it_recorded_but_the_next_one_does(store: Store):
    async def operation(tx: Tx) -> bool:
        tx.runs.insert(a_run())
        return await tx.runs.get(R1) is None

    assert await store.transact(operation, key="r1")
    assert await look(store, lambda tx: tx.runs.get(R1)) == a_run()


async def test_neighbours_of_an_operation_that_refuses_are_committed(store: Store):
    queue = await a_queue(store)

    async def operation(tx: Tx, n: int) -> int:
        await tx.runs.lock(RunId(f"r{n}"))
        if n % 5 == 0:
            raise refusal()
        write_everything(tx, queue, f"r{n}")
        return n

    outcomes = await asyncio.gather(
        *(store.transact(lambda tx, n=n: operation(tx, n), key=f"r{n}") for n in range(20)),  # type: ignore[misc]
        return_exceptions=True,
    )
    for n, outcome in enumerate(outcomes):
        there = await what_is_there(store, queue, f"r{n}")
        if n % 5 == 0:
            assert isinstance(outcome, Conflict)
            assert not any(there)
        else:
            assert outcome == n
            assert all(there)


async def test_neighbours_of_an_operation_that_breaks_an_invariant_are_committed(store: Store):
    queue = await a_queue(store)
    await record(store, lambda tx: tx.histories.append([an_event("r0", 1)]))

    def write(tx: Tx, n: int) -> None:
        write_everything(tx, queue, f"n{n}")
        if n == 5:
            tx.histories.append([an_event("r0", 1)])

    outcomes = await asyncio.gather(
        *(record(store, lambda tx, n=n: write(tx, n), key=f"n{n}") for n in range(10)),  # type: ignore[misc]
        return_exceptions=True,
    )
    assert [n for n, outcome in enumerate(outcomes) if outcome is not None] == [5]
    assert [n for n in range(10) if not any(await what_is_there(store, queue, f"n{n}"))] == [5]
    assert len(await claim(store, queue.queue_id, 20)) == 9


async def test_operations_with_one_key_run_in_the_order_in_which_they_were_handed_in(store: Store):
    await record(store, lambda tx: tx.runs.insert(a_run()))

    async def append(tx: Tx, n: int) -> int:
        run = await tx.runs.lock(R1)
        assert run is not None
        sequence = run.last_sequence + 1
        tx.histories.append([an_event("r1", sequence, f"Number{n}")])
        tx.runs.save(replace(run, last_sequence=sequence))
        return sequence

    sequences = await asyncio.gather(
        *(store.transact(lambda tx, n=n: append(tx, n), key="r1") for n in range(30))  # type: ignore[misc]
    )
    assert sequences == list(range(1, 31))
    history = await look(store, lambda tx: tx.histories.page(R1, 0, 99))
    assert [event.type for event in history] == [f"Number{n}" for n in range(30)]


class TestSeveralAtOnce:
    """A batch of one caller."""

    async def test_each_has_an_outcome_of_its_own_in_the_order_in_which_they_were_handed_in(
        self, store: Store
    ) -> None:
        queue = await a_queue(store)

        async def write(tx: Tx, run_id: str) -> str:
            write_everything(tx, queue, run_id)
            return run_id

        async def refuse(tx: Tx) -> str:
            write_everything(tx, queue, "refused")
            raise refusal()

        async def break_down(tx: Tx) -> str:
            raise ZeroDivisionError

        first, refused, broken, last = await store.transact_all(
            [
                Transaction(lambda tx: write(tx, "first"), "first"),
                Transaction(refuse, "refused"),
                Transaction(break_down, "broken"),
                Transaction(lambda tx: write(tx, "last"), "last"),
            ]
        )
        assert (first, last) == ("first", "last")
        assert isinstance(refused, Conflict)
        assert isinstance(broken, ZeroDivisionError)
        for run_id in ("first", "last"):
            assert all(await what_is_there(store, queue, run_id))
        assert not any(await what_is_there(store, queue, "refused"))

    async def test_those_with_one_key_see_each_other_in_order(self, store: Store) -> None:
        await record(store, lambda tx: tx.runs.insert(a_run()))

        async def count(tx: Tx) -> int:
            run = await tx.runs.lock(R1)
            assert run is not None
            tx.runs.save(replace(run, task_failures=run.task_failures + 1))
            return run.task_failures

        assert await store.transact_all([Transaction(count, "r1")] * 30) == list(range(30))

    async def test_nothing_asked_is_answered_with_nothing(self, store: Store) -> None:
        assert list(await store.transact_all([])) == []

    async def test_a_caller_who_has_gone_disturbs_nobody(self, store: Store) -> None:
        async def operation(tx: Tx) -> int:
            return tx.now_ms

        going = asyncio.ensure_future(store.transact_all([Transaction(operation, f"k{n}") for n in range(5)]))
        await asyncio.sleep(0)
        going.cancel()
        assert len(await store.transact_all([Transaction(operation, f"k{n}") for n in range(5)])) == 5

    async def test_one_who_comes_when_the_store_is_closed_is_refused_for_all(self, store: Store) -> None:
        async def operation(tx: Tx) -> int:
            return tx.now_ms

        await store.close()
        with pytest.raises(Unavailable):
            await store.transact_all([Transaction(operation, "k1"), Transaction(operation, "k2")])


async def test_many_operations_on_one_run_under_different_keys_lose_no_update(store: Store):
    await record(store, lambda tx: tx.runs.insert(a_run()))

    async def append(tx: Tx) -> None:
        run = await tx.runs.lock(R1)
        assert run is not None
        tx.histories.append([an_event("r1", run.last_sequence + 1)])
        tx.runs.save(replace(run, last_sequence=run.last_sequence + 1))

    lines = (TransactionClass.WORK, TransactionClass.CLAIM)
    await asyncio.gather(*(store.transact(append, key=f"k{n}", tx_class=lines[n % 2]) for n in range(30)))
    history = await look(store, lambda tx: tx.histories.page(R1, 0, 99))
    assert [event.sequence for event in history] == list(range(1, 31))


async def test_a_lock_keeps_operations_apart_even_when_their_keys_differ(store: Store):
    await record(store, lambda tx: tx.runs.insert(a_run()))

    async def count(tx: Tx) -> None:
        run = await tx.runs.lock(R1)
        assert run is not None
        tx.runs.save(replace(run, task_failures=run.task_failures + 1))

    lines = (TransactionClass.WORK, TransactionClass.CLAIM)
    await asyncio.gather(*(store.transact(count, key=f"k{n}", tx_class=lines[n % 2]) for n in range(20)))
    run = await look(store, lambda tx: tx.runs.get(R1))
    assert run is not None
    assert run.task_failures == 20


async def test_many_operations_with_keys_of_their_own_are_all_committed(store: Store):
    queue = await a_queue(store)
    names = [f"r{n}" for n in range(200)]
    await asyncio.gather(
        *(record(store, lambda tx, name=name: write_everything(tx, queue, name), key=name) for name in names)  # type: ignore[misc]
    )
    granted = await claim(store, queue.queue_id, 500)
    assert sorted(ids(granted)) == sorted(f"{name}-1" for name in names)
    assert len({task.seq for task in granted}) == 200
    for name in names[::40]:
        assert (await what_is_there(store, queue, name))[:5] == [True] * 5


async def test_starts_and_completions_and_claims_of_one_queue_go_on_together(store: Store):
    """Every task ends once, whatever else is enqueued, claimed or completed concurrently."""
    queue = await a_queue(store)
    done: list[str] = []

    async def finish(task: Task) -> None:
        await record(store, lambda tx: tx.tasks.save(task, TaskState.LEASED), key=task.run_id)

    async def live(n: int) -> None:
        await enqueue(store, a_task(queue, f"r{n}-1", key=f"k{n % 4}"))
        for task in await claim(store, queue.queue_id, 2, key=f"claim-{n}"):
            await finish(released(task, TaskState.DONE))
            done.append(task.task_id)

    await asyncio.gather(*(live(n) for n in range(40)))
    rest = ids(await claim(store, queue.queue_id, 100))
    assert sorted(done + rest) == sorted(f"r{n}-1" for n in range(40))
    stats = await look(store, lambda tx: tx.queues.stats(queue.queue_id, 0))
    assert (stats.ready, stats.leased) == (0, len(rest))


async def test_a_caller_that_goes_away_does_not_harm_the_others(store: Store):
    queue = await a_queue(store)
    names = [f"r{n}" for n in range(10)]
    tasks = [
        asyncio.create_task(
            record(store, lambda tx, name=name: write_everything(tx, queue, name), key=name)  # type: ignore[misc]
        )
        for name in names
    ]
    await asyncio.sleep(0)
    tasks[3].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, outcome in enumerate(outcomes) if outcome is not None] in ([], [3])
    for n, name in enumerate(names):
        there = await what_is_there(store, queue, name)
        assert all(there) or (n == 3 and not any(there))


async def test_a_store_that_is_open_says_so(store: Store):
    await store.check()


async def test_a_namespace_reserved_beside_a_run_is_there_with_it(store: Store):
    async def operation(tx: Tx) -> None:
        assert await tx.namespaces.reserve(a_namespace("shop"))
        assert await tx.nonces.register("key", "nonce", 1)
        tx.runs.insert(a_run(namespace="shop"))

    await store.transact(operation, key="shop")
    assert await look(store, lambda tx: tx.namespaces.get("shop")) == a_namespace("shop")
    assert not await look(store, lambda tx: tx.namespaces.is_empty("shop"))
