"""Claims: which poll gets which task, and what a poll without a task gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.model import ActivityStatus, TaskPriority, TaskState
from penstock.core.scheduling.dispatch import HoldReason, WorkerFilter
from penstock.core.scheduling.polls import Held, Refused, Retry, RetryReason
from penstock.engine.matching.claim import claim
from penstock.engine.matching.undelivered import hand_back
from penstock.engine.workers import cohorts
from penstock.errors import Reason
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, a_poll, charge, of, tries
from tests.support.builders import NOW_MS
from tests.support.claims import leased_of


async def test_a_claim_leases_the_task_with_the_run_and_its_history(scene: Scene):
    run = await scene.start()
    leased = await scene.take(WORKFLOW, poll_request_id="p1")
    assert leased.run.run_id == run.run_id
    assert [event.type for event in leased.events] == ["WorkflowStarted"]
    stored = scene.task(leased.task.task_id)
    assert (stored.state, stored.attempt, stored.lease_owner) == (TaskState.LEASED, 1, "w1")
    assert stored.lease_expires_at_ms == NOW_MS + scene.ctx.settings.leases.workflow_lease_ms
    assert stored.poll_request_id == "p1"


async def test_a_claimed_activity_is_running_in_its_attempt_with_its_deadline(scene: Scene):
    await scene.start()
    await scene.decide(charge(start_to_close_ms=9_000, schedule_to_close_ms=20_000))
    scene.clock.advance(500)
    leased = await scene.take(ACTIVITY)
    activity = scene.activity(leased)
    assert leased.activity == activity
    assert (activity.status, activity.attempt, activity.started_at_ms) == (
        ActivityStatus.RUNNING,
        1,
        NOW_MS + 500,
    )
    assert activity.deadline_at_ms == NOW_MS + 9_500
    assert leased.task.lease_expires_at_ms == NOW_MS + 500 + scene.ctx.settings.leases.activity_lease_ms
    assert leased.task.lease_token == "1.secret0002"


async def test_an_empty_queue_holds(scene: Scene):
    await scene.register()
    [verdict] = await scene.ask(a_poll(WORKFLOW))
    assert isinstance(verdict, Held)
    assert verdict.hold.reason is HoldReason.EMPTY


async def test_a_history_longer_than_the_page_is_cut_at_the_page(scene: Scene):
    await scene.start()
    await scene.decide(*[charge()] * 5)
    await scene.finish(await scene.take(ACTIVITY))
    leased = await scene.take(WORKFLOW, history_page=3)
    assert [event.sequence for event in leased.events] == [1, 2, 3]
    assert leased.run.last_sequence == 7


# ── Sharing ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_polls_are_served_in_order_of_arrival_one_task_each(scene: Scene):
    await scene.register()
    for number in range(2):
        await scene.start(f"order-{number}")
    verdicts = await scene.ask(*(a_poll(WORKFLOW) for _ in range(3)))
    assert [[leased.run.workflow_id for leased in leased_of(each)] for each in verdicts] == [
        ["order-0"],
        ["order-1"],
        [],
    ]


async def test_a_poll_with_more_room_gets_more_once_everybody_has_one(scene: Scene):
    await scene.register()
    for number in range(5):
        await scene.start(f"order-{number}")
    verdicts = await scene.ask(a_poll(WORKFLOW, tasks_max=4), a_poll(WORKFLOW), a_poll(WORKFLOW, tasks_max=2))
    assert [len(leased_of(each)) for each in verdicts] == [2, 1, 2]


async def test_no_task_is_leased_twice(scene: Scene):
    await scene.start()
    assert await scene.claim(WORKFLOW) is not None
    assert await scene.claim(WORKFLOW, "w2") is None


async def test_lower_levels_first_then_keys_by_their_weight(scene: Scene):
    await scene.register()
    for number in range(8):
        await scene.start(f"a{number}", priority=TaskPriority(3, "a", 3000))
        await scene.start(f"b{number}", priority=TaskPriority(3, "b", 1000))
    await scene.start("urgent", priority=TaskPriority(0, "z"))
    served = [(await scene.take(WORKFLOW)).run for _ in range(9)]
    assert served[0].workflow_id == "urgent"
    assert [run.key for run in served[1:]].count("a") == 6
    of_a = [run.workflow_id for run in served if run.key == "a"]
    assert of_a == [f"a{number}" for number in range(6)], "first come, first served inside a key"


async def test_dispatches_are_counted_where_operators_look(scene: Scene):
    await scene.register()
    for number in range(3):
        await scene.start(f"order-{number}")
    await scene.take(WORKFLOW)
    queue = await scene.queue(WORKFLOW)
    stats = await scene.read(lambda tx: tx.queues.stats(queue.queue_id, NOW_MS))
    assert (stats.ready, stats.leased, stats.added_last_minute, stats.dispatched_last_minute) == (2, 1, 3, 1)


# ── Fit ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_gets_only_the_types_it_names(scene: Scene):
    await scene.register("mailer", workflow_types=("Mail",))
    await scene.register("all")
    await scene.start("order-1")
    assert await scene.claim(WORKFLOW, "mailer") is None
    mail = await scene.start("mail-1", workflow_type="Mail")
    assert (await scene.take(WORKFLOW, "mailer")).run.run_id == mail.run_id
    assert (await scene.take(WORKFLOW, "all")).run.workflow_id == "order-1"


async def test_a_poll_whose_worker_fits_otherwise_gets_its_filter_and_takes_nothing(scene: Scene):
    await scene.register("orders", workflow_types=("Order",))
    await scene.register("mail", workflow_types=("Mail",))
    await scene.start("order-1")
    await scene.start("mail-1", workflow_type="Mail")
    queue = await scene.queue(WORKFLOW)
    asked = [a_poll(WORKFLOW, "orders"), a_poll(WORKFLOW, "mail")]
    first, second = await claim(scene.ctx, queue.queue_id, asked, WorkerFilter(("Order",), None))
    assert [leased.run.workflow_id for leased in leased_of(first)] == ["order-1"]
    assert second == Retry(RetryReason.OTHER_FILTER, WorkerFilter(("Mail",), None))


# ── Refusals ────────────────────────────────────────────────────────────────────────────────────────────


async def drained(scene: Scene) -> None:
    await scene.register(build_id="one")
    await cohorts.drain(scene.ctx, "default", "orders", "one")


@pytest.mark.parametrize(
    ("prepare", "changes", "reason"),
    [
        (None, {}, Reason.WORKER_NOT_REGISTERED),
        (lambda scene: scene.register(task_queue="mail"), {}, Reason.TASK_QUEUE_MISMATCH),
        (lambda scene: scene.register(build_id="one"), {"build_id": "two"}, Reason.BUILD_ID_MISMATCH),
        (drained, {}, Reason.WORKER_DRAINING),
    ],
)
async def test_a_worker_that_may_not_poll_is_refused_and_the_task_stays(
    scene: Scene, prepare: Callable[[Scene], Any] | None, changes: dict[str, Any], reason: Reason
):
    run = await scene.start()
    if prepare is not None:
        await prepare(scene)
    [verdict] = await scene.ask(a_poll(WORKFLOW, **changes))
    assert isinstance(verdict, Refused)
    assert verdict.error.reason is reason
    assert [task.state for task in scene.live(run.run_id)] == [TaskState.READY]


async def test_one_refused_poll_does_not_hinder_its_neighbours(scene: Scene):
    await scene.register("good")
    await scene.start()
    refused, served = await scene.ask(a_poll(WORKFLOW, "unknown"), a_poll(WORKFLOW, "good"))
    assert isinstance(refused, Refused)
    assert len(leased_of(served)) == 1


async def test_a_poll_is_a_sign_of_life(scene: Scene):
    await scene.register()
    scene.clock.advance(scene.ctx.settings.polls.worker_stale_after_ms)
    await scene.ask(a_poll(WORKFLOW))
    assert scene.tables.workers["default", "w1"].heartbeat_at_ms == scene.clock.now_ms()


# ── Repeated polls ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [WORKFLOW, ACTIVITY])
async def test_a_poll_repeated_because_its_answer_was_lost_gets_the_same_task(scene: Scene, kind: Any):
    await scene.start("order-1")
    if kind is ACTIVITY:
        await scene.decide(charge(), charge())
    else:
        await scene.start("order-2")
    first = await scene.take(kind, poll_request_id="p1")
    again = await scene.take(kind, poll_request_id="p1")
    assert again.task.lease_token == first.task.lease_token
    assert again.task.lease_expires_at_ms == first.task.lease_expires_at_ms
    assert again.activity == first.activity
    assert (await scene.take(kind, poll_request_id="p2")).task.task_id != first.task.task_id


async def test_a_poll_of_several_tasks_is_repeated_as_a_whole(scene: Scene):
    await scene.register()
    for number in range(4):
        await scene.start(f"order-{number}")
    asked = a_poll(WORKFLOW, poll_request_id="p1", tasks_max=3)
    [first] = await scene.ask(asked)
    [again] = await scene.ask(asked)
    assert [each.task.lease_token for each in leased_of(again)] == [
        each.task.lease_token for each in leased_of(first)
    ]


async def test_another_worker_with_the_same_request_id_gets_nothing_of_it(scene: Scene):
    await scene.start()
    await scene.take(WORKFLOW, poll_request_id="p1")
    assert await scene.claim(WORKFLOW, "w2", poll_request_id="p1") is None


async def test_a_repeated_poll_gets_no_lapsed_lease(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW, poll_request_id="p1")
    scene.clock.set(leased.task.lease_expires_at_ms or 0)
    assert await scene.claim(WORKFLOW, poll_request_id="p1") is None


async def test_a_poll_repeated_after_its_task_was_done_looks_anew(scene: Scene):
    await scene.start("order-1")
    await scene.start("order-2")
    first = await scene.take(WORKFLOW, poll_request_id="p1")
    await scene.complete(first, DONE)
    assert (await scene.take(WORKFLOW, poll_request_id="p1")).run.workflow_id == "order-2"


# ── Handing back ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_workflow_task_handed_back_waits_again_and_its_next_lease_has_a_new_attempt(scene: Scene):
    run = await scene.start()
    leased = await scene.take(WORKFLOW)
    await hand_back(scene.ctx, leased)
    [task] = scene.live(run.run_id)
    assert (task.state, task.lease_token) == (TaskState.READY, None)
    assert (await scene.take(WORKFLOW, "w1")).task.attempt == 2


async def test_a_lease_that_was_delivered_again_is_not_undone_by_the_delivery_that_failed(scene: Scene):
    await scene.start()
    lost = await scene.take(WORKFLOW, poll_request_id="p1")
    kept = await scene.take(WORKFLOW, poll_request_id="p1")
    await hand_back(scene.ctx, lost)
    await scene.complete(kept, DONE)


async def test_an_activity_handed_back_has_not_started(scene: Scene):
    await scene.start()
    await scene.decide(charge(tries(2), schedule_to_start_ms=5_000, start_to_close_ms=1_000))
    leased = await scene.take(ACTIVITY)
    await hand_back(scene.ctx, leased)
    activity = scene.activity(leased)
    assert (activity.status, activity.attempt, activity.started_at_ms) == (ActivityStatus.PENDING, 0, None)
    assert activity.deadline_at_ms == NOW_MS + 5_000
    again = await scene.take(ACTIVITY)
    assert again.task.attempt == 1
    assert again.task.lease_token != leased.task.lease_token


async def test_a_lease_that_somebody_else_holds_by_now_is_not_handed_back(scene: Scene):
    await scene.start()
    first = await scene.take(WORKFLOW)
    await hand_back(scene.ctx, first)
    second = await scene.take(WORKFLOW, "w2")
    await hand_back(scene.ctx, first)
    assert scene.task(second.task.task_id) == second.task


async def test_a_task_done_or_cancelled_meanwhile_is_not_handed_back(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    await scene.complete(leased, DONE)
    await hand_back(scene.ctx, leased)
    assert scene.task(leased.task.task_id).state is TaskState.DONE


async def test_what_happened_while_a_workflow_task_was_away_is_in_the_history_when_it_is_back(scene: Scene):
    """Else a later event would be written before an earlier one, and the next worker would miss both."""
    run = await scene.start()
    await scene.decide(charge(), charge(), charge())
    first, second, third = [await scene.take(ACTIVITY) for _ in range(3)]
    await scene.finish(first)
    away = await scene.take(WORKFLOW)
    await scene.finish(second)
    await hand_back(scene.ctx, away)
    await scene.finish(third)
    reported = [(await scene.payload(run.run_id, place)).get("sequence") for place in (-3, -2, -1)]
    assert reported == [1, 2, 3]
    assert scene.run(run.run_id).buffered == 0
    again = await scene.take(WORKFLOW)
    assert len(again.events) == again.run.last_sequence == 7


async def test_the_report_of_a_lease_is_known_by_its_attempt(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    assert of(leased).token == "1"
