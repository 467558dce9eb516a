"""A paused run: nothing of it is dispatched, everything that happens to it is recorded, and it goes on when resumed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.history.commands import ContinueAsNew, StartTimer
from penstock.core.history.events import EventType
from penstock.core.limits.policies import LimitSetting
from penstock.core.pauses import is_held
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.limits import policies
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.maintenance.sweepers.overdue_activities import overdue_activities
from penstock.engine.messaging import signals
from penstock.engine.messaging.signals import Signal
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_close, run_pause, run_repair
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.run_pause import PauseOutcome
from penstock.engine.workflows.run_repair import RepairOutcome
from penstock.errors import Conflict, NotFound, Reason
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, a_scene, charge, tries

RUN = Address("default", "order-1")


async def pause(scene: Scene) -> PauseOutcome:
    return (await run_pause.pause(scene.ctx, RUN, "stock is counted")).outcome


async def resume(scene: Scene) -> PauseOutcome:
    return (await run_pause.resume(scene.ctx, RUN, None)).outcome


async def signal(scene: Scene, name: str = "go") -> None:
    await signals.send(scene.ctx, Signal(RUN, name, NOTHING))


async def test_a_ready_workflow_task_waits_until_the_run_is_resumed(scene: Scene):
    await scene.start()
    assert await pause(scene) is PauseOutcome.PAUSED
    assert await pause(scene) is PauseOutcome.ALREADY_PAUSED
    await scene.advance(10**9)
    assert await scene.claim(WORKFLOW) is None
    assert await resume(scene) is PauseOutcome.RESUMED
    assert await resume(scene) is PauseOutcome.NOT_PAUSED
    await scene.decide(DONE)


async def test_an_activity_that_a_paused_run_schedules_keeps_its_delay(scene: Scene):
    await scene.start()
    running = await scene.take(WORKFLOW)
    await pause(scene)
    await scene.complete(running, replace(charge(), delay_ms=60_000), concurrent=True)
    await resume(scene)
    await scene.advance(59_000)
    assert await scene.claim(ACTIVITY) is None
    await scene.advance(1_000)
    assert await scene.claim(ACTIVITY) is not None


async def test_a_change_of_the_retry_budget_releases_nothing_of_a_paused_run(scene: Scene):
    await scene.start()
    await scene.decide(charge(), concurrent=True)
    await pause(scene)
    budget = PolicyUpdate({LimitSetting.RETRY_RATE: SettingChange(1_000_000)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, budget, "operator")
    await scene.advance(1_000)
    assert await scene.claim(ACTIVITY) is None
    await resume(scene)
    assert await scene.claim(ACTIVITY) is not None


async def test_signals_timers_and_results_are_recorded_meanwhile(scene: Scene):
    run = await scene.start()
    await scene.decide(charge(), StartTimer(1), concurrent=True)
    running = await scene.take(ACTIVITY)
    await pause(scene)
    await signal(scene)
    await scene.advance(2_000)
    await scene.finish(running)
    types = (await scene.types(run.run_id))[-3:]
    assert types == [EventType.SIGNAL_RECEIVED, EventType.TIMER_FIRED, EventType.ACTIVITY_COMPLETED]
    assert await scene.claim(WORKFLOW) is None
    await resume(scene)
    await scene.decide(DONE, concurrent=True)
    assert not scene.run(run.run_id).is_open


async def test_what_a_worker_runs_goes_on_and_what_follows_it_waits(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    await pause(scene)
    await scene.complete(leased, charge())
    assert await scene.claim(ACTIVITY) is None, "an activity that was not started is held"
    await resume(scene)
    await scene.finish(await scene.take(ACTIVITY))
    await scene.decide(DONE)


async def test_a_retry_waits_for_the_resume_and_for_its_backoff(scene: Scene):
    await scene.start()
    await scene.decide(charge(tries(3, 60)))
    await scene.fail_activity(await scene.take(ACTIVITY))
    await pause(scene)
    await scene.advance(10_000)
    await resume(scene)
    assert await scene.claim(ACTIVITY) is None, "of its backoff 50 s are left"
    await scene.advance(50_000)
    again = await scene.take(ACTIVITY)
    await pause(scene)
    await scene.fail_activity(again, AttemptFailure("boom", next_ms=0))
    assert await scene.claim(ACTIVITY) is None
    await resume(scene)
    await scene.finish(await scene.take(ACTIVITY))


async def test_a_start_delay_is_kept(scene: Scene):
    await scene.start(delay_ms=60_000)
    await pause(scene)
    await scene.advance(1_000)
    await resume(scene)
    assert await scene.claim(WORKFLOW) is None
    await scene.advance(59_000)
    await scene.decide(DONE)


async def test_the_start_timeout_of_a_held_activity_does_not_count(scene: Scene):
    await scene.start()
    await scene.decide(charge(schedule_to_start_ms=5_000))
    await pause(scene)
    await scene.advance(60_000)
    await overdue_activities(scene.ctx).sweep()
    await resume(scene)
    await scene.finish(await scene.take(ACTIVITY))


async def test_a_lost_lease_of_a_paused_run_makes_nothing_ready(scene: Scene):
    await scene.start()
    await scene.take(WORKFLOW)
    await pause(scene)
    await scene.advance(10**7)
    await expired_leases(scene.ctx).sweep()
    assert await scene.claim(WORKFLOW, "w2") is None
    assert (await run_repair.repair(scene.ctx, RUN)).outcome is RepairOutcome.NOT_NEEDED
    await resume(scene)
    assert await scene.claim(WORKFLOW, "w2") is not None


async def test_the_run_that_continues_a_paused_one_is_paused(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    await pause(scene)
    await scene.complete(leased, ContinueAsNew(NOTHING))
    assert await scene.claim(WORKFLOW) is None
    await resume(scene)
    await scene.decide(DONE)


async def test_a_paused_run_can_be_terminated(scene: Scene):
    run = await scene.start()
    await pause(scene)
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None)
    assert not scene.run(run.run_id).is_open
    assert scene.run(run.run_id).waits.paused is None
    with pytest.raises(Conflict) as refused:
        await pause(scene)
    assert refused.value.reason is Reason.RUN_NOT_ACTIVE


async def test_a_standalone_activity_is_no_run_to_pause(scene: Scene):
    await scene.start_activity("order-1")
    with pytest.raises(NotFound):
        await pause(scene)


async def decide(scene: Scene, paused: bool) -> None:
    leased = await scene.claim(WORKFLOW)
    assert leased is None or not paused
    if leased is not None:
        await scene.complete(leased, charge(tries(9, 1)), StartTimer(1), concurrent=True)


async def fail_task(scene: Scene, paused: bool) -> None:
    leased = await scene.claim(WORKFLOW)
    assert leased is None or not paused
    if leased is not None:
        await scene.fail(leased)


async def fail_attempt(scene: Scene, paused: bool) -> None:
    leased = await scene.claim(ACTIVITY)
    assert leased is None or not paused
    if leased is not None:
        await scene.fail_activity(leased)


ACTS: dict[str, Callable[[Scene, bool], Awaitable[object]]] = {
    "pause": lambda scene, _: pause(scene),
    "resume": lambda scene, _: resume(scene),
    "signal": lambda scene, _: signal(scene),
    "tick": lambda scene, _: scene.advance(2_000),
    "decide": decide,
    "fail a task": fail_task,
    "fail an attempt": fail_attempt,
}


@settings(max_examples=30, deadline=None)
@given(acts=st.lists(st.sampled_from(sorted(ACTS)), max_size=14))
async def test_nothing_of_a_paused_run_is_dispatched_and_it_ends_when_resumed(acts: list[str]):
    """Holds `no-lost-ready-task` over pauses: what is held is due again with the resume."""
    scene = a_scene()
    run_id = (await scene.start()).run_id
    for act in acts:
        await ACTS[act](scene, scene.run(run_id).waits.paused is not None)
    await resume(scene)
    assert not [task for task in scene.tables.tasks.values() if task.is_live and is_held(task)]
    await signal(scene)
    await scene.advance(120_000)
    await scene.decide(concurrent=True)
    await signal(scene)
    await scene.decide(DONE, concurrent=True)
    assert not scene.run(run_id).is_open
