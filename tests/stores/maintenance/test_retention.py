"""Retention: which runs are expired, how they are deleted, and the rows they leave."""

from __future__ import annotations

from typing import Any

from penstock.core.messaging.messages import Message, MessageStream
from penstock.core.messaging.streams import StreamItem, StreamOrigin, WorkflowStream
from penstock.core.model import Blob, Run, RunId, RunStatus, TaskKind, TaskState, TimerState
from penstock.core.operations.run_counts import PurgedRows
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import a_queue, enqueue, look, record
from tests.support.builders import (
    NOW_MS,
    a_child,
    a_request,
    a_run,
    a_task,
    a_timer,
    an_activity,
    an_event,
    an_event_in_waiting,
    an_instance,
    an_update,
)

KINDS = 12
"""Some of each kind of row that a run may have."""


def a_closed_run(run_id: str = "r1", closed_at_ms: int = NOW_MS, **changes: Any) -> Run:
    return a_run(
        run_id,
        **{"status": RunStatus.COMPLETED, "closed_reason": "completed", "closed_at_ms": closed_at_ms}
        | changes,
    )


async def insert(store: Store, *runs: Run) -> None:
    for run in runs:

        async def operation(tx: Tx, run: Run = run) -> None:
            await tx.runs.reserve(an_instance(run.workflow_id, run.run_id, run.namespace))
            tx.runs.insert(run)

        await store.transact(operation, key=run.run_id)


async def expired(store: Store, before_ms: int, limit: int = 10, namespace: str = "default") -> list[str]:
    return [*await look(store, lambda tx: tx.retention.expired(namespace, before_ms, limit))]


async def unlink(store: Store, run_id: str, most: int = 100) -> bool:
    async def operation(tx: Tx) -> bool:
        return await tx.retention.unlink(RunId(run_id), most)

    return await store.transact(operation, key=run_id)


async def clear(store: Store, run_id: str, most: int = 100) -> PurgedRows:
    async def operation(tx: Tx) -> PurgedRows:
        return await tx.retention.clear(RunId(run_id), most)

    return await store.transact(operation, key=f"remains:{run_id}")


async def test_the_longest_closed_runs_come_first_and_open_ones_never(store: Store):
    await insert(
        store,
        a_closed_run("r1", NOW_MS - 10, workflow_id="w1"),
        a_closed_run("r2", NOW_MS - 30, workflow_id="w2"),
        a_closed_run("r3", NOW_MS - 20, workflow_id="w3", namespace="elsewhere"),
        a_run("r4", workflow_id="w4"),
        a_closed_run("r5", NOW_MS, workflow_id="w5"),
    )
    assert await expired(store, NOW_MS) == ["r2", "r1"]
    assert await expired(store, NOW_MS, limit=1) == ["r2"]
    assert await expired(store, NOW_MS - 30) == []
    assert await expired(store, NOW_MS, namespace="elsewhere") == ["r3"]


async def test_a_run_is_forgotten_with_its_workflow_id_and_leaves_a_note(store: Store):
    run = a_closed_run()
    await insert(store, run)
    await record(store, lambda tx: tx.retention.forget(run))
    assert await look(store, lambda tx: tx.runs.get(run.run_id)) is None
    assert await look(store, lambda tx: tx.runs.instance("default", "order-1")) is None
    assert await look(store, lambda tx: tx.retention.remains(10)) == ["r1"]
    await record(store, lambda tx: tx.retention.bury(run.run_id))
    assert await look(store, lambda tx: tx.retention.remains(10)) == []


async def test_a_workflow_id_that_names_another_run_stays(store: Store):
    older, current = a_closed_run("r1"), a_run("r2", run_number=2)
    await insert(store, current, older)
    assert await look(store, lambda tx: tx.retention.newest_other(current)) == "r1"
    await record(store, lambda tx: tx.retention.forget(older))
    instance = await look(store, lambda tx: tx.runs.instance("default", "order-1"))
    assert instance is not None
    assert instance.run_id == "r2"
    assert await look(store, lambda tx: tx.retention.newest_other(current)) is None


def a_message_of(run_id: str) -> Message:
    return Message(
        "default", f"workflow-of-{run_id}", "inbox", 1, RunId(run_id), "m1", "f00d", Blob("AA=="), NOW_MS
    )


def an_item_of(run_id: str) -> StreamItem:
    named = RunId(run_id)
    return StreamItem(
        named, "out", 0, Blob("AA=="), None, "k1", None, None, StreamOrigin.WORKFLOW, None, NOW_MS
    )


async def fill(store: Store, run_id: str, events: int = 3) -> None:
    queue = await a_queue(store, TaskKind.WORKFLOW)
    done = a_task(queue, f"{run_id}-1", state=TaskState.DONE)
    await enqueue(store, done)

    def write(tx: Tx) -> None:
        tx.histories.append([an_event(run_id, number) for number in range(1, events + 1)])
        tx.histories.buffer(RunId(run_id), 1, an_event_in_waiting())
        tx.activities.insert(an_activity(f"{run_id}-a1", run_id))
        tx.timers.insert(a_timer(f"{run_id}-t1", run_id, state=TimerState.FIRED))
        tx.children.insert(a_child(run_id))
        tx.updates.insert(an_update(f"{run_id}-u1", run_id))
        tx.requests.insert(a_request(f"request-of-{run_id}", run_id=RunId(run_id)))
        stream = MessageStream("default", f"workflow-of-{run_id}", "inbox", RunId(run_id), last_position=1)
        tx.messages.save(stream)
        tx.messages.insert(a_message_of(run_id))
        tx.streams.insert(WorkflowStream(RunId(run_id), "out", NOW_MS))
        tx.streams.append([an_item_of(run_id)])

    await record(store, write, key=run_id)


async def what_is_left(store: Store, run_id: str) -> list[bool]:
    named = RunId(run_id)
    return [
        bool(await look(store, lambda tx: tx.histories.page(named, 0, 10))),
        bool(await look(store, lambda tx: tx.histories.buffered(named))),
        await look(store, lambda tx: tx.tasks.get(f"{run_id}-1")) is not None,  # type: ignore[arg-type]
        await look(store, lambda tx: tx.activities.get(f"{run_id}-a1")) is not None,  # type: ignore[arg-type]
        await look(store, lambda tx: tx.timers.get(f"{run_id}-t1")) is not None,
        bool(await look(store, lambda tx: tx.children.all_of(named))),
        bool(await look(store, lambda tx: tx.updates.all_of(named))),
        bool(await look(store, lambda tx: tx.requests.all_of(named))),
        bool(await look(store, lambda tx: tx.messages.streams_of(named))),
        await look(store, lambda tx: tx.messages.find("default", f"workflow-of-{run_id}", "inbox", "m1"))
        is not None,
        bool(await look(store, lambda tx: tx.streams.of_run(named))),
        bool(await look(store, lambda tx: tx.streams.page(named, "out", 0, 10))),
    ]


async def test_everything_that_a_run_had_is_cleared_and_nothing_of_another_run(store: Store):
    for run in (a_closed_run("r1", workflow_id="w1"), a_closed_run("r10", workflow_id="w10")):
        await insert(store, run)
        await fill(store, run.run_id)
    gone = a_closed_run("r1", workflow_id="w1")
    assert await unlink(store, "r1") is False
    await record(store, lambda tx: tx.retention.forget(gone))
    cleared = await clear(store, "r1")
    assert (cleared.events, cleared.tasks, cleared.activities, cleared.timers) == (3, 1, 1, 1)
    assert cleared.full is False
    assert await what_is_left(store, "r1") == [False] * KINDS
    assert await what_is_left(store, "r10") == [True] * KINDS


async def test_many_rows_are_cleared_in_portions(store: Store):
    run = a_closed_run()
    await insert(store, run)
    await fill(store, "r1", events=25)
    assert await unlink(store, "r1", most=1) is True
    assert await unlink(store, "r1", most=1) is False
    await record(store, lambda tx: tx.retention.forget(run))
    portions = [await clear(store, "r1", most=10) for _ in range(3)]
    assert [each.events for each in portions] == [10, 10, 5]
    assert [each.full for each in portions] == [True, True, False]
    assert await what_is_left(store, "r1") == [False] * KINDS


async def test_what_was_forgotten_is_forgotten_after_a_restart(store: Store, reopened: Any):
    run = a_closed_run()
    await insert(store, run)
    await record(store, lambda tx: tx.retention.forget(run))
    again = await reopened()
    assert await look(again, lambda tx: tx.retention.remains(10)) == ["r1"]
    assert await look(again, lambda tx: tx.runs.get(run.run_id)) is None
