"""Child workflows: started with their parent's decision, reported when they end, subject to their close policy."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.history.commands import ContinueAsNew, FailWorkflow, StartChild, StartTimer
from penstock.core.model import ChildState, ClosePolicy, OutboxKind, Run, RunStatus
from penstock.core.scheduling.polls import Leased
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import InvalidInput
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, a_scene, charge, tries
from tests.support.builders import NOW_MS


async def deliver(scene: Scene) -> None:
    """Relay the outbox until it is empty."""
    while await pending_outbox(scene.ctx).sweep():
        pass


async def a_family(scene: Scene, **child: Any) -> tuple[Run, Leased]:
    """A parent that waits, and the first task of its child."""
    parent = await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING, **child))
    return parent, await scene.take(WORKFLOW)


def child_of(scene: Scene, parent: Run, step: int = 1) -> Run:
    """The newest run of a child."""
    row = scene.tables.children[parent.run_id, step]
    return scene.run(scene.tables.instances["default", row.workflow_id].run_id)


# ── Ends ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_parent_receives_the_result_and_continues(scene: Scene):
    parent, task = await a_family(scene)
    assert await scene.claim(WORKFLOW) is None
    await scene.complete(task, DONE)
    await deliver(scene)
    payload = await scene.payload(parent.run_id, -1)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunCompleted"
    assert (payload["result"], payload["sequence"], payload["child_workflow_run_id"]) == (
        "AQ==",
        1,
        task.run.run_id,
    )
    assert scene.run(parent.run_id).open_children == 0
    await scene.decide(DONE)


async def test_a_parent_receives_a_failure_with_all_its_details(scene: Scene):
    parent, task = await a_family(scene)
    await scene.complete(
        task, FailWorkflow("no stock", {"exception_type": "SoldOut", "exception_class": "E"})
    )
    await deliver(scene)
    payload = await scene.payload(parent.run_id, -1)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunFailed"
    assert (payload["message"], payload["exception_type"], payload["exception_class"]) == (
        "no stock",
        "SoldOut",
        "E",
    )
    assert payload["failure_category"] == "child_workflow"


@pytest.mark.parametrize(
    ("end", "closing_event"),
    [(EndMode.CANCEL, "ChildRunCancelled"), (EndMode.TERMINATE, "ChildRunTerminated")],
)
async def test_a_parent_receives_how_its_child_was_ended(scene: Scene, end: EndMode, closing_event: str):
    parent, task = await a_family(scene)
    await run_close.end_run(scene.ctx, "default", task.run.workflow_id, end, "by hand")
    await deliver(scene)
    assert (await scene.types(parent.run_id))[-1] == closing_event
    assert (await scene.payload(parent.run_id, -1))["message"] == "by hand"
    await scene.decide(DONE)


async def test_a_child_that_timed_out_has_failed(scene: Scene):
    parent, task = await a_family(scene, run_timeout_s=5)
    scene.clock.advance(5_000)
    await run_close.expire_run(scene.ctx, task.run.run_id)
    await deliver(scene)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunFailed"
    assert (await scene.payload(parent.run_id, -1))["timeout_kind"] == "run_timeout"


async def test_news_of_a_child_waits_while_its_parent_decides(scene: Scene):
    parent = await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING), charge())
    task = await scene.take(WORKFLOW)
    await scene.finish(await scene.take(ACTIVITY))
    deciding = await scene.take(WORKFLOW)
    assert deciding.run.run_id == parent.run_id
    await scene.complete(task, DONE)
    await deliver(scene)
    assert (await scene.types(parent.run_id))[-1] == "ActivityCompleted"
    await scene.complete(deciding, StartTimer(1))
    assert (await scene.types(parent.run_id))[-2:] == ["TimerScheduled", "ChildRunCompleted"]
    await scene.decide(DONE)


async def test_a_child_that_continues_as_new_is_reported_at_its_end(scene: Scene):
    parent, task = await a_family(scene)
    await scene.complete(task, ContinueAsNew(NOTHING))
    await deliver(scene)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunStarted"
    again = await scene.take(WORKFLOW)
    assert again.run.run_number == 2
    await scene.complete(again, DONE)
    await deliver(scene)
    payload = await scene.payload(parent.run_id, -1)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunCompleted"
    assert payload["child_workflow_run_id"] == task.run.run_id, "it is known by its first run"
    assert payload["child_closing_run_id"] == again.run.run_id


async def test_a_child_whose_id_is_in_use_fails_at_once_and_its_parent_looks(scene: Scene):
    await scene.start("ship-1")
    leased = await scene.take(WORKFLOW)
    await scene.complete(leased, StartTimer(60))
    parent = await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING, "ship-1"))
    payload = await scene.payload(parent.run_id, -1)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunFailed"
    assert payload["exception_type"] == "WorkflowAlreadyStarted"
    assert scene.run(parent.run_id).open_children == 0
    await scene.decide(DONE)


async def test_a_child_stands_in_the_queue_that_it_is_given(scene: Scene):
    await scene.start()
    await scene.decide(StartChild("Ship", "mail", NOTHING))
    assert await scene.claim(WORKFLOW) is None
    assert await scene.claim(WORKFLOW, "w2", task_queue="mail") is not None


async def test_a_run_holds_so_many_children():
    scene = a_scene(max_pending_children="1")
    await scene.start()
    leased = await scene.take(WORKFLOW)
    two = [StartChild("Ship", None, NOTHING)] * 2
    with pytest.raises(InvalidInput):
        await scene.complete(leased, *two)
    assert len(scene.tables.runs) == 1
    await scene.complete(leased, two[0])


# ── Trying again ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_child_is_tried_again_and_its_parent_receives_the_last_failure_only(scene: Scene):
    parent, task = await a_family(scene, retry=tries(3, 1, 5))
    for rest_s in (1, 5):
        await scene.complete(task, FailWorkflow("no stock"))
        await deliver(scene)
        assert await scene.claim(WORKFLOW) is None, "it backs off"
        await scene.advance(rest_s * 1_000)
        task = await scene.take(WORKFLOW)
    assert task.run.run_number == 3
    await scene.complete(task, FailWorkflow("no stock"))
    await deliver(scene)
    assert (await scene.types(parent.run_id))[2:] == [
        "ChildRunStarted",
        "ChildRunStarted",
        "ChildRunStarted",
        "ChildRunFailed",
    ]
    payload = [await scene.payload(parent.run_id, place) for place in range(2, 6)]
    assert {each["child_workflow_run_id"] for each in payload} == {payload[0]["child_workflow_run_id"]}
    assert [each.get("retry_attempt") for each in payload] == [1, 2, 3, None]


async def test_a_success_at_a_later_attempt_is_a_success(scene: Scene):
    parent, task = await a_family(scene, retry=tries(2))
    await scene.complete(task, FailWorkflow("no stock"))
    await scene.complete(await scene.take(WORKFLOW), DONE)
    await deliver(scene)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunCompleted"


@pytest.mark.parametrize("extra", [{"non_retryable": True}, {"exception_type": "SoldOut"}])
async def test_some_failures_of_a_child_are_final(scene: Scene, extra: dict[str, Any]):
    parent, task = await a_family(scene, retry=tries(5, never=("SoldOut",)))
    await scene.complete(task, FailWorkflow("no stock", extra))
    await deliver(scene)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunFailed"


async def test_a_child_that_somebody_ended_is_not_tried_again(scene: Scene):
    parent, task = await a_family(scene, retry=tries(5))
    await run_close.end_run(scene.ctx, "default", task.run.workflow_id, EndMode.CANCEL, None)
    await deliver(scene)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunCancelled"
    assert child_of(scene, parent).run_number == 1


async def test_the_time_of_an_execution_is_for_all_attempts(scene: Scene):
    parent, task = await a_family(scene, retry=tries(9, 4), execution_timeout_s=10)
    for _ in range(2):
        await scene.complete(task, FailWorkflow("no stock"))
        await scene.advance(4_000)
        task = await scene.take(WORKFLOW)
        assert task.run.execution_deadline_at_ms == NOW_MS + 10_000
    await scene.complete(task, FailWorkflow("no stock"))
    await deliver(scene)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunFailed", "no time is left for another rest"


async def test_the_id_of_a_child_names_its_newest_attempt(scene: Scene):
    parent, task = await a_family(scene, retry=tries(2))
    await scene.complete(task, FailWorkflow("no stock"))
    newest = child_of(scene, parent)
    assert (newest.run_number, newest.lineage.attempt) == (2, 2)
    assert newest.lineage.retried_from == task.run.run_id


# ── When the parent closes ──────────────────────────────────────────────────────────────────────────────

POLICIES = [
    (ClosePolicy.ABANDON, RunStatus.PENDING),
    (ClosePolicy.REQUEST_CANCEL, RunStatus.CANCELLED),
    (ClosePolicy.REQUEST_CANCELLATION, RunStatus.CANCELLED),
    (ClosePolicy.TERMINATE, RunStatus.TERMINATED),
]


@pytest.mark.parametrize(("policy", "status"), POLICIES)
async def test_a_child_is_treated_as_its_policy_says_when_its_parent_is_ended(
    scene: Scene, policy: ClosePolicy, status: RunStatus
):
    parent, _ = await a_family(scene, policy=policy)
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None)
    await deliver(scene)
    child = child_of(scene, parent)
    assert child.status is status
    if not child.is_open:
        assert "order-1" in (await scene.payload(child.run_id, -1))["reason"]
    assert scene.tables.children[parent.run_id, 1].state is ChildState.CLOSED


@pytest.mark.parametrize(("policy", "status"), POLICIES)
async def test_and_when_its_parent_comes_to_its_end_by_itself(
    scene: Scene, policy: ClosePolicy, status: RunStatus
):
    parent = await scene.start()
    await scene.decide(StartChild("Ship", "mail", NOTHING, policy=policy), StartTimer(0))
    await scene.advance(0)
    await scene.decide(DONE)
    await deliver(scene)
    assert child_of(scene, parent).status is status


@pytest.mark.parametrize(("policy", "status"), POLICIES)
async def test_and_when_its_parent_ends_in_the_breath_that_starts_it(
    scene: Scene, policy: ClosePolicy, status: RunStatus
):
    parent = await scene.start()
    await scene.decide(StartChild("Ship", "mail", NOTHING, policy=policy), DONE)
    await deliver(scene)
    assert child_of(scene, parent).status is status


async def test_an_abandoned_child_ends_by_itself_and_its_outbox_message_is_discarded(scene: Scene):
    parent, task = await a_family(scene)
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    before = await scene.types(parent.run_id)
    await scene.complete(task, DONE)
    await deliver(scene)
    assert await scene.types(parent.run_id) == before
    assert scene.tables.outbox == {}


async def test_the_newest_run_of_a_child_is_the_one_that_is_cancelled(scene: Scene):
    parent, task = await a_family(scene, policy=ClosePolicy.REQUEST_CANCEL)
    await scene.complete(task, ContinueAsNew(NOTHING))
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    await deliver(scene)
    child = child_of(scene, parent)
    assert (child.run_number, child.status) == (2, RunStatus.CANCELLED)


async def test_a_child_in_backoff_before_its_next_attempt_is_cancelled_too(scene: Scene):
    parent, task = await a_family(scene, policy=ClosePolicy.TERMINATE, retry=tries(2, 60))
    await scene.complete(task, FailWorkflow("no stock"))
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    await deliver(scene)
    assert child_of(scene, parent).status is RunStatus.TERMINATED
    scene.clock.advance(60_000)
    await due_tasks(scene.ctx).sweep()
    assert await scene.claim(WORKFLOW) is None


async def test_grandchildren_end_with_their_parents(scene: Scene):
    parent, task = await a_family(scene, policy=ClosePolicy.TERMINATE)
    await scene.complete(task, StartChild("Label", None, NOTHING, policy=ClosePolicy.REQUEST_CANCEL))
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    await deliver(scene)
    child = child_of(scene, parent)
    assert child.status is RunStatus.TERMINATED
    assert child_of(scene, child).status is RunStatus.CANCELLED


async def test_a_parent_that_continues_as_new_leaves_its_children_behind(scene: Scene):
    parent = await scene.start()
    await scene.decide(
        StartChild("Ship", "mail", NOTHING, policy=ClosePolicy.REQUEST_CANCEL),
        StartChild("Ship", "mail", NOTHING),
        StartTimer(0),
    )
    await scene.advance(0)
    await scene.decide(ContinueAsNew(NOTHING))
    await deliver(scene)
    assert child_of(scene, parent, 1).status is RunStatus.CANCELLED
    assert child_of(scene, parent, 2).is_open
    newest = scene.tables.instances["default", "order-1"].run_id
    assert await scene.types(newest) == ["WorkflowStarted"], "it receives none of them"


async def test_a_workflow_that_took_the_id_of_a_child_is_not_ended_in_its_place(scene: Scene):
    """An outbox message names the parent of the child it is for."""
    await a_family(scene, policy=ClosePolicy.TERMINATE, workflow_id="ship-1")
    stranger = await scene.start("stranger")
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    [message] = [each for each in scene.tables.outbox.values() if each.kind is OutboxKind.TERMINATE]
    scene.tables.execute("UPDATE instances SET run_id = ? WHERE workflow_id = 'ship-1'", stranger.run_id)
    assert message.workflow_id == "ship-1"
    await deliver(scene)
    assert scene.run(stranger.run_id).is_open
