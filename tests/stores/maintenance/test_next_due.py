"""The earliest deadline of each kind, up to a given time."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.messaging.streams import StreamStatus
from penstock.core.model import QueryKind, QueryState, TaskState, TimerState
from penstock.ports.store import Store, Tx
from penstock.ports.tables.next_due import Due
from penstock.ports.tables.tasks import QueryQueue
from tests.stores.messaging.test_streams import a_stream
from tests.stores.store_operations import a_queue, claim, enqueue, look, record
from tests.stores.tasks.test_query_tasks import a_query
from tests.support.builders import NOW_MS, a_letter, a_run, a_task, a_timer, an_activity


async def outlook(store: Store, at_ms: int) -> dict[Due, int]:
    return {**await look(store, lambda tx: tx.next_due.until(at_ms))}


async def test_nothing_is_due_in_an_empty_store(store: Store):
    assert await outlook(store, NOW_MS) == {}


async def test_the_first_moment_of_each_kind_is_told(store: Store):
    def write(tx: Tx) -> None:
        for number, by in enumerate((7, 3, 9)):
            tx.timers.insert(a_timer(f"t{number}", step=number, fire_at_ms=NOW_MS + 10 + by))
            tx.runs.insert(a_run(f"run-{number}", run_number=number, deadline_at_ms=NOW_MS + 20 + by))
            tx.activities.insert(an_activity(f"a{number}", step=number, deadline_at_ms=NOW_MS + 30 + by))
            tx.queries.insert(a_query(f"q{number}", expires_at_ms=NOW_MS + 40 + by))
            tx.streams.insert(
                a_stream(
                    f"s{number}",
                    status=StreamStatus.CLOSED,
                    closed_at_ms=NOW_MS + by,
                    retention_s=1,
                )
            )

    await record(store, write)
    assert await outlook(store, NOW_MS + 2) == {}
    assert await outlook(store, NOW_MS + 13) == {Due.TIMER: NOW_MS + 13}
    assert await outlook(store, NOW_MS + 100_000) == {
        Due.TIMER: NOW_MS + 13,
        Due.RUN: NOW_MS + 23,
        Due.ACTIVITY: NOW_MS + 33,
        Due.QUERY: NOW_MS + 43,
        Due.STREAM: NOW_MS + 1_003,
    }


async def test_leases_and_rests_of_tasks_are_told_apart_and_ready_ones_are_not_told(store: Store):
    queue = await a_queue(store)
    rests = a_task(queue, "r2-1", state=TaskState.DELAYED, available_at_ms=NOW_MS + 5)
    await enqueue(store, a_task(queue, "r1-1"))
    assert await outlook(store, NOW_MS + 100_000) == {}
    await enqueue(store, rests)
    [granted] = await claim(store, queue.queue_id, 1)
    assert await outlook(store, NOW_MS + 10_000_000) == {
        Due.LEASE: granted.lease_expires_at_ms,
        Due.TASK: NOW_MS + 5,
    }


async def test_what_has_ended_is_not_due(store: Store):
    timer = a_timer(fire_at_ms=NOW_MS)
    await record(store, lambda tx: tx.timers.insert(timer))
    await record(store, lambda tx: tx.timers.save(replace(timer, state=TimerState.FIRED)))
    assert await outlook(store, NOW_MS) == {}


async def test_a_question_is_due_when_its_lease_ends_if_that_is_first(store: Store):
    taken = a_query(state=QueryState.LEASED, lease_owner="w1", lease_expires_at_ms=NOW_MS + 5, attempt=1)
    await record(store, lambda tx: tx.queries.insert(taken))
    assert await outlook(store, NOW_MS + 100_000) == {Due.QUERY: NOW_MS + 5}


async def test_a_letter_is_due_whatever_the_time(store: Store):
    await record(store, lambda tx: tx.outbox.insert(a_letter()))
    assert await outlook(store, 0) == {Due.OUTBOX: 0}


async def test_queues_on_which_something_is_ready_are_told_from_the_others(store: Store):
    ready, resting, empty = [await a_queue(store, name=name) for name in ("ready", "resting", "empty")]
    await enqueue(store, a_task(ready, "r1-1"))
    await enqueue(store, a_task(resting, "r2-1", state=TaskState.DELAYED, available_at_ms=NOW_MS + 5))
    asked = [each.queue_id for each in (empty, ready, resting)]
    assert await look(store, lambda tx: tx.tasks.ready_on(asked)) == [ready.queue_id]
    await claim(store, ready.queue_id, 1)
    assert not await look(store, lambda tx: tx.tasks.ready_on(asked))
    assert not await look(store, lambda tx: tx.tasks.ready_on([]))


async def test_lines_in_which_a_question_waits_are_told_from_the_others(store: Store):
    validation = a_query("q2", task_queue="bills", kind=QueryKind.UPDATE_VALIDATION)

    def write(tx: Tx) -> None:
        tx.queries.insert(a_query("q1"))
        tx.queries.insert(validation)
        tx.queries.insert(a_query("q3", task_queue="gone", expires_at_ms=NOW_MS))

    await record(store, write)
    names = ("orders", "bills", "gone")
    lines: list[QueryQueue] = [(kind, "default", name) for kind in QueryKind for name in names]
    assert await look(store, lambda tx: tx.queries.pending_on(lines, NOW_MS)) == [
        (QueryKind.QUERY, "default", "orders"),
        (QueryKind.UPDATE_VALIDATION, "default", "bills"),
    ]
