"""Statistics of a namespace."""

from __future__ import annotations

from penstock.core.model import ReplayBlock, RunHost, RunStatus, TaskKind
from penstock.core.operations.run_counts import FailingType
from penstock.ports.store import Store
from tests.stores.maintenance.test_retention import a_closed_run, insert
from tests.stores.store_operations import a_queue, enqueue, look, record
from tests.support.builders import NOW_MS, a_run, a_task, an_activity, leased


async def test_open_and_closed_runs_are_counted_up_to_a_bound(store: Store):
    await insert(
        store,
        a_run("r1", workflow_id="w1", status=RunStatus.WAITING, last_sequence=5, blocked=ReplayBlock()),
        a_run("r2", workflow_id="w2", last_sequence=9, task_failures=2),
        a_run("r3", workflow_id="w3", namespace="elsewhere"),
        a_run("r4", workflow_id="w4", host=RunHost.ACTIVITY),
        a_closed_run("r5", workflow_id="w5", archived_at_ms=NOW_MS),
        a_closed_run("r6", workflow_id="w6", status=RunStatus.FAILED, closed_reason="failed"),
    )
    found = await look(store, lambda tx: tx.namespace_stats.open_runs("default", 10))
    assert dict(found.by_status) == {RunStatus.WAITING: 1, RunStatus.PENDING: 1}
    assert (found.events, found.events_most, found.blocked, found.failing) == (14, 9, 1, 1)
    closed = await look(store, lambda tx: tx.namespace_stats.closed_runs("default", 10))
    assert dict(closed.by_status) == {RunStatus.COMPLETED: 1, RunStatus.FAILED: 1}
    assert closed.archived == 1
    assert (await look(store, lambda tx: tx.namespace_stats.open_runs("default", 1))).count == 1
    assert (await look(store, lambda tx: tx.namespace_stats.open_runs("nowhere", 10))).events_most == 0


async def test_types_that_fail_again_and_again_come_with_the_worst_first(store: Store):
    await insert(
        store,
        a_run("r1", workflow_id="w1", workflow_type="Order", task_failures=2),
        a_run("r2", workflow_id="w2", workflow_type="Order", task_failures=7),
        a_run("r3", workflow_id="w3", workflow_type="Refund", task_failures=9),
        a_run("r4", workflow_id="w4", workflow_type="Refund"),
        a_closed_run("r5", workflow_id="w5", task_failures=3),
    )
    found = await look(store, lambda tx: tx.namespace_stats.failing("default", 10))
    assert [*found] == [FailingType("Refund", 9, 1), FailingType("Order", 7, 2)]


async def test_runs_without_any_task_are_found_unless_something_is_open(store: Store):
    await insert(
        store,
        a_run("r1", workflow_id="w1"),
        a_run("r2", workflow_id="w2", open_activities=1),
        a_run("r3", workflow_id="w3", open_timers=1, owed=1, started_at_ms=NOW_MS + 1),
        a_run("r4", workflow_id="w4"),
        a_closed_run("r5", workflow_id="w5"),
    )
    queue = await a_queue(store, TaskKind.WORKFLOW)
    await enqueue(store, a_task(queue, "r4-1"))
    assert await look(store, lambda tx: tx.namespace_stats.without_task("default", 10, 10)) == ["r1", "r3"]
    assert await look(store, lambda tx: tx.namespace_stats.without_task("default", 10, 1)) == ["r1"]
    assert await look(store, lambda tx: tx.namespace_stats.without_task("elsewhere", 10, 10)) == []


async def test_the_live_tasks_of_a_run_and_leases_that_have_ended(store: Store):
    queue = await a_queue(store, TaskKind.WORKFLOW)
    other = await a_queue(store, TaskKind.ACTIVITY)
    waiting, held = a_task(queue, "r1-1"), a_task(other, "r1-2")
    await enqueue(store, waiting, held)
    await record(store, lambda tx: tx.tasks.lease(leased(held, lease_expires_at_ms=NOW_MS)))
    found = await look(store, lambda tx: tx.namespace_stats.live_tasks(waiting.run_id, 10))
    assert [task.task_id for task in found] == ["r1-1", "r1-2"]
    late = await look(store, lambda tx: tx.namespace_stats.overdue_tasks("default", NOW_MS, 10))
    assert [task.task_id for task in late] == ["r1-2"]
    assert not await look(store, lambda tx: tx.namespace_stats.overdue_tasks("default", NOW_MS - 1, 10))
    assert not await look(store, lambda tx: tx.namespace_stats.overdue_tasks("elsewhere", NOW_MS, 10))


async def test_activities_beyond_a_clock_are_found_in_their_own_namespace(store: Store):
    await insert(store, a_run("r1", workflow_id="w1"), a_run("r2", workflow_id="w2", namespace="elsewhere"))

    def write(tx: object) -> None:
        for run_id, at_ms in (("r1", NOW_MS), ("r2", NOW_MS - 1)):
            tx.activities.insert(an_activity(f"{run_id}-a1", run_id, deadline_at_ms=at_ms))  # type: ignore[attr-defined]

    await record(store, write)
    assert await look(store, lambda tx: tx.namespace_stats.overdue_activities("default", NOW_MS, 10)) == [
        "r1-a1"
    ]
    assert (
        await look(store, lambda tx: tx.namespace_stats.overdue_activities("default", NOW_MS - 1, 10)) == []
    )
