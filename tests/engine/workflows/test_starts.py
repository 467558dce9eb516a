"""Starting: one workflow id, one run, whatever is repeated."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.model import PriorityOverride, RunHost, RunStatus, TaskPriority, TaskState
from penstock.engine.workers import cohorts
from penstock.engine.workflows import run_close, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.starts import DuplicatePolicy, StartOutcome
from penstock.errors import Conflict, Reason
from penstock.wire.matching.tasks import activity_task, workflow_task
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, a_start, charge
from tests.support.builders import NOW_MS


async def test_a_start_records_the_run_its_first_event_and_its_first_task_together(scene: Scene):
    run = await scene.start(business_key="b-7", priority=TaskPriority(1, "tenant", 2500))
    assert (run.status, run.run_number, run.host) == (RunStatus.PENDING, 1, RunHost.WORKFLOW)
    assert scene.run(run.run_id) == run
    [task] = scene.live(run.run_id)
    assert (task.state, task.kind, task.type) == (TaskState.READY, WORKFLOW, "Order")
    assert (task.level, task.key) == (1, "tenant")
    [event] = await scene.events(run.run_id)
    assert event.type == "WorkflowStarted"
    payload = await scene.payload(run.run_id, 0)
    assert (payload["workflow_id"], payload["workflow_run_id"], payload["business_key"]) == (
        "order-1",
        run.run_id,
        "b-7",
    )


async def test_a_history_records_whose_work_it_is_and_how_urgent_where_that_is_not_the_usual(scene: Scene):
    named = ("priority", "priority_key", "fairness_key", "fairness_weight")
    usual = await scene.start("order-1")
    payload = await scene.payload(usual.run_id, 0)
    assert not payload.keys() & set(named)
    urgent = await scene.start("order-2", priority=TaskPriority(1, "tenant", 2500))
    payload = await scene.payload(urgent.run_id, 0)
    assert [payload[name] for name in named] == [1, 1, "tenant", 2.5]


async def test_tasks_carry_the_weight_of_their_work(scene: Scene):
    await scene.start(priority=TaskPriority(3, "tenant", 2500))
    leased = await scene.take(WORKFLOW)
    assert workflow_task(leased.task, leased.run, leased.events)["fairness_weight"] == 2.5
    own = replace(charge(), priority=PriorityOverride(weight_milli=500))
    await scene.complete(
        leased, charge(), own, replace(charge(), priority=PriorityOverride(weight_milli=2500))
    )
    reported = {}
    for _ in range(3):
        task = await scene.take(ACTIVITY)
        assert task.activity is not None
        reported[task.activity.step] = activity_task(task.task, task.run, task.activity)["fairness_weight"]
    assert reported == {1: 2.5, 2: 0.5, 3: 2.5}


async def test_a_standalone_activity_carries_its_weight(scene: Scene):
    await scene.start_activity(priority=TaskPriority(3, "tenant", 4000))
    task = await scene.take(ACTIVITY)
    assert task.activity is not None
    assert activity_task(task.task, task.run, task.activity)["fairness_weight"] == 4.0


async def test_a_workflow_without_a_name_is_named_after_its_run(scene: Scene):
    run = await scene.start(None)
    assert run.workflow_id == f"wf-{run.run_id}"


@pytest.mark.parametrize("policy", DuplicatePolicy)
async def test_an_id_in_use_is_given_away_once(scene: Scene, policy: DuplicatePolicy):
    first = await starts.start_workflow(scene.ctx, a_start())
    if policy is DuplicatePolicy.USE_EXISTING:
        again = await starts.start_workflow(scene.ctx, a_start(duplicate_policy=policy))
        assert (again.run, again.outcome) == (first.run, StartOutcome.RETURNED_EXISTING_ACTIVE)
    else:
        with pytest.raises(Conflict) as refused:
            await starts.start_workflow(scene.ctx, a_start(duplicate_policy=policy))
        assert refused.value.reason is Reason.INSTANCE_ALREADY_STARTED
        assert refused.value.details["run_id"] == first.run.run_id
        assert refused.value.details["outcome"] == "rejected_duplicate"
    assert len(scene.tables.runs) == len(scene.tables.tasks) == 1


async def test_an_existing_run_is_used_only_while_it_is_open(scene: Scene):
    await scene.start()
    await scene.decide(DONE)
    with pytest.raises(Conflict) as refused:
        await scene.start(duplicate_policy=DuplicatePolicy.USE_EXISTING)
    assert refused.value.details["status"] == "completed"


async def test_an_id_is_free_in_another_namespace(scene: Scene):
    one = await scene.start()
    other = await scene.start(namespace="elsewhere")
    assert one.run_id != other.run_id


async def test_a_start_repeated_with_its_key_gets_its_run_even_after_that_has_closed(scene: Scene):
    first = await starts.start_workflow(scene.ctx, a_start(start_key="k"))
    assert not first.deduplicated
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    again = await starts.start_workflow(scene.ctx, a_start(start_key="k"))
    assert (again.run.run_id, again.outcome, again.deduplicated) == (
        first.run.run_id,
        StartOutcome.STARTED_NEW,
        True,
    )
    with pytest.raises(Conflict):
        await starts.start_workflow(scene.ctx, a_start(start_key="another"))


async def test_a_run_is_pinned_to_the_build_it_asks_for(scene: Scene):
    await cohorts.promote(scene.ctx, "default", "orders", "build-2")
    run = await scene.start(build_id="build-1")
    assert run.compatibility == "build-1"


async def test_a_run_that_asks_for_no_build_is_pinned_to_the_promoted_one_with_all_its_tasks(scene: Scene):
    await cohorts.promote(scene.ctx, "default", "orders", "build-2")
    run = await scene.start()
    assert run.compatibility == "build-2"
    await scene.register("old", build_id="build-1")
    await scene.register("new", build_id="build-2")
    assert await scene.claim(WORKFLOW, "old") is None
    await scene.complete(await scene.take(WORKFLOW, "new"), charge())
    assert await scene.claim(ACTIVITY, "old") is None
    assert await scene.claim(ACTIVITY, "new") is not None


async def test_without_a_promotion_any_worker_may_take_a_run(scene: Scene):
    await cohorts.promote(scene.ctx, "default", "mail", "build-2")
    run = await scene.start()
    assert run.compatibility is None
    await scene.register("w1", build_id="build-9")
    assert await scene.claim(WORKFLOW) is not None


async def test_deadlines_follow_from_the_timeouts_and_the_first_counts(scene: Scene):
    run = await scene.start(execution_timeout_s=60, run_timeout_s=20)
    assert run.execution_deadline_at_ms == NOW_MS + 60_000
    assert run.run_deadline_at_ms == NOW_MS + 20_000
    assert run.deadline_at_ms == NOW_MS + 20_000


async def test_a_standalone_activity_has_a_host_run_with_one_step_and_no_workflow_task(scene: Scene):
    run = await scene.start_activity()
    assert (run.host, run.last_step, run.open_activities) == (RunHost.ACTIVITY, 1, 1)
    assert await scene.types(run.run_id) == ["WorkflowStarted", "ActivityScheduled"]
    [task] = scene.live(run.run_id)
    assert (task.kind, task.state) == (ACTIVITY, TaskState.READY)


async def test_an_activity_without_a_name_is_named_after_its_run(scene: Scene):
    run = await scene.start_activity(None)
    assert run.workflow_id == f"act-{run.run_id}"


async def test_an_activity_repeated_with_its_key_is_started_once(scene: Scene):
    one = await scene.start_activity(start_key="k")
    two = await scene.start_activity(start_key="k")
    assert one.run_id == two.run_id
    assert len(scene.tables.activities) == 1


@pytest.mark.parametrize("again", [{"start_key": "k"}, {"duplicate_policy": DuplicatePolicy.USE_EXISTING}])
async def test_a_workflow_is_never_taken_for_an_activity_nor_the_other_way_round(
    scene: Scene, again: dict[str, Any]
):
    await scene.start("one", start_key="k")
    await scene.decide(charge())
    await scene.start_activity("two", start_key="k")
    with pytest.raises(Conflict):
        await scene.start_activity("one", **again)
    with pytest.raises(Conflict):
        await scene.start("two", **again)


async def test_a_refused_start_leaves_nothing_behind(scene: Scene):
    await scene.start()
    before = (dict(scene.tables.runs), dict(scene.tables.tasks), dict(scene.tables.events))
    with pytest.raises(Conflict):
        await scene.start()
    assert before == (scene.tables.runs, scene.tables.tasks, scene.tables.events)
