"""Reading runs, histories and queues."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.model import RunHost, TaskState
from penstock.engine.visibility import run_reader, task_queues
from penstock.errors import NotFound, Reason
from penstock.ports.tables.runs import RunFilter
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, charge
from tests.support.builders import NOW_MS

WORKFLOWS = RunFilter("default", RunHost.WORKFLOW)


# ── Describe ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_workflow_is_described_by_its_current_run(scene: Scene):
    run = await scene.start()
    view = await run_reader.describe(scene.ctx, "default", "order-1")
    assert (view.run, view.run_count, view.is_current, view.status) == (run, 1, True, "pending")
    assert view.live is not None
    assert view.live.state is TaskState.READY
    assert await run_reader.describe(scene.ctx, "default", "order-1", run.run_id) == view
    assert list((await run_reader.runs_of(scene.ctx, "default", "order-1", None, 10)).runs) == [run]


async def test_a_run_is_running_while_its_workflow_task_is_leased(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    assert (await run_reader.describe(scene.ctx, "default", "order-1")).status == "running"
    await scene.complete(leased, charge())
    assert (await run_reader.describe(scene.ctx, "default", "order-1")).status == "waiting"


async def test_a_run_waits_while_only_its_activity_is_leased(scene: Scene):
    await scene.start()
    await scene.decide(charge())
    await scene.take(ACTIVITY)
    view = await run_reader.describe(scene.ctx, "default", "order-1")
    assert (view.status, view.live) == ("waiting", None)


async def test_a_closed_run_is_what_it_ended_as(scene: Scene):
    await scene.start()
    await scene.decide(DONE)
    view = await run_reader.describe(scene.ctx, "default", "order-1")
    assert (view.status, view.live) == ("completed", None)


async def test_what_is_not_there_is_not_found(scene: Scene):
    run = await scene.start()
    await scene.start_activity("charge-1")
    other = await scene.start("order-2")
    for namespace, name, run_id, reason in (
        ("default", "nobody", None, Reason.INSTANCE_NOT_FOUND),
        ("elsewhere", "order-1", None, Reason.INSTANCE_NOT_FOUND),
        ("default", "order-1", "nonsense", Reason.RUN_NOT_FOUND),
        ("default", "order-1", other.run_id, Reason.RUN_NOT_FOUND),
        ("default", "charge-1", None, Reason.INSTANCE_NOT_FOUND),
    ):
        with pytest.raises(NotFound) as refused:
            await run_reader.describe(scene.ctx, namespace, name, run_id)
        assert refused.value.reason is reason
    with pytest.raises(NotFound):
        await run_reader.runs_of(scene.ctx, "default", "nobody", None, 10)
    with pytest.raises(NotFound) as refused:
        await run_reader.describe_activity(scene.ctx, "default", run.workflow_id)
    assert refused.value.reason is Reason.ACTIVITY_NOT_FOUND


async def test_a_standalone_activity_is_described_with_its_host(scene: Scene):
    run = await scene.start_activity("charge-1")
    view = await run_reader.describe_activity(scene.ctx, "default", "charge-1")
    assert view.run == run
    assert view.activity.activity_type == "Charge"


# ── Lists ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_history_is_read_in_pages(scene: Scene):
    run = await scene.start()
    await scene.decide(*[charge()] * 4)
    first = await run_reader.history(scene.ctx, "default", "order-1", run.run_id, 0, 3)
    assert ([event.sequence for event in first.events], first.more) == ([1, 2, 3], True)
    second = await run_reader.history(scene.ctx, "default", "order-1", run.run_id, 3, 3)
    assert ([event.sequence for event in second.events], second.more) == ([4, 5], False)
    beyond = await run_reader.history(scene.ctx, "default", "order-1", run.run_id, 5, 3)
    assert (list(beyond.events), beyond.more) == ([], False)
    task_page = await run_reader.task_history(scene.ctx, run.run_id, 3, 3)
    assert [event.sequence for event in task_page.events] == [4, 5]


async def test_a_history_is_shown_only_under_its_own_name(scene: Scene):
    run = await scene.start()
    for namespace, name in (("elsewhere", "order-1"), ("default", "order-2")):
        with pytest.raises(NotFound):
            await run_reader.history(scene.ctx, namespace, name, run.run_id, 0, 10)


async def test_a_history_long_poll_returns_when_the_history_grows(scene: Scene):
    run = await scene.start()
    leased = await scene.take(WORKFLOW)
    waiting = asyncio.create_task(
        run_reader.history(scene.ctx, "default", "order-1", run.run_id, 1, 10, wait_ms=60_000)
    )
    while not scene.wakeups._listeners:
        await asyncio.sleep(0)
    assert not waiting.done()
    await scene.complete(leased, DONE)
    page = await waiting
    assert [event.type for event in page.events] == ["WorkflowCompleted"]
    assert scene.wakeups._listeners == {}, "no listener is left"


async def test_nobody_waits_for_what_is_there_or_for_a_run_that_has_closed(scene: Scene):
    run = await scene.start()
    page = await run_reader.history(scene.ctx, "default", "order-1", run.run_id, 0, 10, wait_ms=60_000)
    assert len(page.events) == 1
    await scene.decide(DONE)
    page = await run_reader.history(scene.ctx, "default", "order-1", run.run_id, 2, 10, wait_ms=60_000)
    assert list(page.events) == []


async def test_a_wait_that_is_over_shows_an_empty_page(scene: Scene):
    run = await scene.start()
    page = await run_reader.history(scene.ctx, "default", "order-1", run.run_id, 1, 10, wait_ms=1)
    assert list(page.events) == []
    assert page.run == run


# ── Queues ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_queues_are_shown_with_exact_counts_workers_and_leases(scene: Scene):
    await scene.start("order-1")
    await scene.start("order-2")
    leased = await scene.take(WORKFLOW)
    await scene.register("idle", task_queue="mail")
    shown = {view.name: view for view in await task_queues.list_queues(scene.ctx, "default")}
    assert set(shown) == {"orders", "mail"}
    assert (shown["orders"].stats[WORKFLOW].ready, shown["orders"].stats[WORKFLOW].leased) == (1, 1)
    assert [worker.worker_id for worker in shown["mail"].workers] == ["idle"]
    view = await task_queues.describe(scene.ctx, "default", "orders")
    assert [task.task_id for task in view.leases] == [leased.task.task_id]
    assert view.runs is not None
    assert {run.workflow_id for run in view.runs.values()} == {"order-1", "order-2"}
    assert view.now_ms == NOW_MS


async def test_an_unused_queue_is_empty_and_no_error(scene: Scene):
    view = await task_queues.describe(scene.ctx, "default", "nobody")
    assert (dict(view.stats), list(view.workers), list(view.leases)) == ({}, [], [])
