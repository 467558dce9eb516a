"""The retry budget: due retries take its slots one after the other; first attempts are not limited."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.limits.policies import LimitSetting
from penstock.core.model import ActivityStatus, TaskState
from penstock.core.scheduling.polls import Leased
from penstock.core.why.values import ConstraintKind, RemedyKind
from penstock.engine.limits import policies
from penstock.engine.limits.policies import UNSET, PolicyUpdate, SettingChange
from penstock.engine.maintenance.sweepers.overdue_activities import overdue_activities
from penstock.engine.visibility import explanations
from penstock.errors import InvalidInput, Reason
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, a_scene, charge, tries
from tests.support.builders import NOW_MS
from tests.support.effort import times

pytestmark = pytest.mark.fault("F74")
MOMENTS_MAX = 1_000


async def budget(scene: Scene, per_second: float | None) -> None:
    value = UNSET if per_second is None else round(per_second * 1_000_000)
    ask = PolicyUpdate({LimitSetting.RETRY_RATE: SettingChange(value)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, ask, "operator")


async def fail_all(scene: Scene, count: int, *backoff_s: int, **limits: int) -> list[Leased]:
    """A number of activities, each failed once at this moment."""
    failed = []
    for number in range(count):
        await scene.start_activity(f"charge-{number}", charge(tries(5, *backoff_s), None, "Charge", **limits))
        failed.append(await scene.take(ACTIVITY))
    for leased in failed:
        await scene.fail_activity(leased)
    return failed


async def moments(scene: Scene, failed: list[Leased]) -> list[int]:
    """When each retry became ready, advancing the clock from one due time to the next."""
    found: list[int] = []
    for _ in range(MOMENTS_MAX):
        tasks = [scene.task(leased.task.task_id) for leased in failed]
        resting = [task for task in tasks if task.state is TaskState.DELAYED]
        found += [scene.clock.now_ms()] * (len(tasks) - len(resting) - len(found))
        if not resting:
            return found
        next_ms = min(task.available_at_ms for task in resting)
        await scene.advance(max(0, next_ms - scene.clock.now_ms()))
    raise AssertionError("retries rest for ever")


def check(moments_ms: list[int], per_second: float) -> None:
    """In any interval at most the budget plus one."""
    interval_ms = 1_000 / per_second
    ordered = sorted(moments_ms)
    for first, start in enumerate(ordered):
        for last in range(first, len(ordered)):
            allowed = (ordered[last] - start) / interval_ms + 2
            assert last - first + 1 <= allowed + 0.01, (start, ordered[last], last - first + 1)


@pytest.mark.parametrize("backoff_s", [(), (3,)], ids=["at-once", "after-a-rest"])
async def test_retries_of_a_storm_become_ready_one_after_the_other(scene: Scene, backoff_s: tuple[int, ...]):
    await budget(scene, 10)
    failed = await fail_all(scene, 40, *backoff_s)
    found = await moments(scene, failed)
    check(found, 10)
    assert max(found) - NOW_MS <= 1_000 * sum(backoff_s) + 41 * 100 + 100, "no place is wasted"


async def test_without_a_budget_retries_start_exactly_when_their_backoff_ends(scene: Scene):
    failed = await fail_all(scene, 5, 2)
    assert await moments(scene, failed) == [NOW_MS + 2_000] * 5


async def test_first_attempts_and_workflow_tasks_are_not_concerned(scene: Scene):
    await budget(scene, 0.001)
    await fail_all(scene, 3)
    await scene.start_activity("fresh")
    assert (await scene.take(ACTIVITY)).run.workflow_id == "fresh"
    await scene.start("order-1")
    await scene.fail(await scene.take(WORKFLOW))
    await scene.advance(1_000)
    assert await scene.claim(WORKFLOW) is not None


async def test_a_workflow_line_has_no_retry_budget(scene: Scene):
    with pytest.raises(InvalidInput) as refused:
        await policies.configure(
            scene.ctx,
            "default",
            "orders",
            WORKFLOW,
            PolicyUpdate({LimitSetting.RETRY_RATE: SettingChange(1_000_000)}),
            "op",
        )
    assert refused.value.reason is Reason.RATE_LIMIT_NOT_FOR_WORKFLOW_TASKS


async def test_the_moment_inside_a_place_depends_on_the_task_and_not_on_who_asks(scene: Scene):
    found = []
    for each in (scene, a_scene()):
        await budget(each, 1)
        found.append(await moments(each, await fail_all(each, 5)))
    assert found[0] == found[1]
    assert len({moment % 1_000 for moment in found[0]}) > 1


async def test_taking_the_budget_away_lets_everything_go_and_a_new_one_deals_new_places(scene: Scene):
    await budget(scene, 0.01)
    failed = await fail_all(scene, 10)
    await scene.advance(10)
    await budget(scene, 100)
    found = await moments(scene, failed)
    assert max(found) - NOW_MS < 500
    check(found, 100)
    again = [await scene.take(ACTIVITY) for _ in failed]
    await budget(scene, 0.01)
    for leased in again:
        await scene.fail_activity(leased)
    await budget(scene, None)
    await scene.advance(0)
    assert len([await scene.take(ACTIVITY) for _ in failed]) == 10


async def test_why_reports_that_the_budget_moved_the_retry(scene: Scene):
    await budget(scene, 0.1)
    await fail_all(scene, 3)
    why = (await explanations.activity(scene.ctx, "default", "charge-2")).explanation
    found = why.binding
    assert found is not None
    assert found.kind is ConstraintKind.RETRY_BUDGET
    assert found.opens_at_ms is not None
    assert found.opens_at_ms >= NOW_MS + 20_000
    assert "attempt 1 did not succeed: boom" in why.sentence
    assert "the retry budget of 0.1 retries a second of the task queue orders moved it by" in why.sentence
    assert [remedy.act for remedy in found.frees] == [RemedyKind.WAIT, RemedyKind.UNSET]
    assert (await explanations.activity(scene.ctx, "default", "charge-2")).explanation == why


async def test_a_retry_in_backoff_is_distinguished_from_one_that_was_moved(scene: Scene):
    await budget(scene, 0.1)
    await fail_all(scene, 1, 60)
    found = (await explanations.activity(scene.ctx, "default", "charge-0")).explanation.binding
    assert found is not None
    assert found.kind is ConstraintKind.RETRY_BACKOFF


async def test_the_clock_that_waits_for_a_start_begins_at_the_place(scene: Scene):
    await budget(scene, 0.1)
    failed = await fail_all(scene, 3, schedule_to_start_ms=5_000)
    last = scene.activity(failed[-1])
    assert last.deadline_at_ms == scene.task(failed[-1].task.task_id).available_at_ms + 5_000
    scene.clock.advance(6_000)
    await overdue_activities(scene.ctx).sweep()
    assert scene.activity(failed[-1]).status is ActivityStatus.PENDING


async def test_the_clock_that_closes_does_not_wait_for_a_place(scene: Scene):
    await budget(scene, 0.1)
    failed = await fail_all(scene, 3, schedule_to_close_ms=5_000)
    scene.clock.advance(5_000)
    await overdue_activities(scene.ctx).sweep()
    assert scene.activity(failed[-1]).status is ActivityStatus.TIMED_OUT


@settings(deadline=None, max_examples=times(20), suppress_health_check=[HealthCheck.too_slow])
@given(
    per_second=st.sampled_from([0.5, 1.0, 7.0, 50.0]),
    backoffs=st.lists(st.integers(0, 4), min_size=1, max_size=20),
)
async def test_whatever_falls_due_when_the_budget_holds_and_nothing_is_lost(
    per_second: float, backoffs: list[int]
):
    scene = a_scene()
    await budget(scene, per_second)
    failed = []
    for number, backoff_s in enumerate(backoffs):
        await scene.start_activity(f"charge-{number}", charge(tries(5, backoff_s)))
        failed.append(await scene.take(ACTIVITY))
    for leased in failed:
        await scene.fail_activity(leased)
    found = await moments(scene, failed)
    assert len(found) == len(backoffs)
    check(found, per_second)
    for moment, backoff_s in zip(sorted(found), sorted(backoffs), strict=True):
        assert moment >= NOW_MS + backoff_s * 1_000
