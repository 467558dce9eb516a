"""For every kind of constraint of tasks and runs: applying a remedy removes the constraint.

Each case is set up once per remedy, the remedy is applied, and the explanation is read again. A remedy that no program
can apply is marked as manual; the test then does what an operator would do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import Command, OpenConditionWait, StartChild, StartTimer
from penstock.core.model import TaskState
from penstock.core.starts.unique_starts import Debounce, UniqueStart, UniqueUntil
from penstock.core.why.sentences import remedy_text
from penstock.core.why.values import Constraint, ConstraintKind, Remedy, RemedyKind, WaitExplanation
from penstock.engine.activities import activity_control
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.limits.policies import KeySettingsChange
from penstock.engine.messaging import signals
from penstock.engine.messaging.signals import Signal
from penstock.engine.runs.address import Address
from penstock.engine.visibility import explanations
from penstock.engine.workers import cohorts
from penstock.engine.workflows import run_pause
from penstock.errors import InvalidInput
from penstock.ports.coordination import InProcess
from penstock.settings import load
from tests.engine.activities.test_worker_deaths import CRASH, FOR_EVER, app_task
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, a_scene, charge, tries
from tests.engine.support.why_scene import (
    WORKFLOW_ID,
    cap_runs,
    enqueue,
    follow,
    limit,
    limit_key,
    limit_scope,
    why,
)

PER_SECOND = 1_000_000


async def of_activity(scene: Scene) -> WaitExplanation:
    return await why(scene, "probe")


async def of_run(scene: Scene) -> WaitExplanation:
    return (await explanations.workflow(scene.ctx, "default", WORKFLOW_ID)).explanation


Case = tuple[ConstraintKind, Callable[[], Awaitable[Scene]], Callable[[Scene], Awaitable[WaitExplanation]]]
CASES: dict[str, Case] = {}


def case(
    kind: ConstraintKind, ask: Callable[[Scene], Awaitable[WaitExplanation]] = of_activity
) -> Callable[[Callable[[], Awaitable[Scene]]], None]:
    def add(make: Callable[[], Awaitable[Scene]]) -> None:
        CASES[make.__name__] = (kind, make, ask)

    return add


async def busy(slots: int = 50) -> Scene:
    """A worker that runs one task; another one waits."""
    scene = a_scene()
    await scene.register(activity_slots=slots)
    await enqueue(scene, "held", cost=2)
    await scene.take(ACTIVITY)
    return scene


# ── Who could take it ───────────────────────────────────────────────────────────────────────────────────


@case(ConstraintKind.NO_WORKER)
async def no_worker_for_the_type() -> Scene:
    scene = a_scene()
    await scene.register(activity_types=("Refund",))
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.NO_WORKER)
async def no_worker_of_the_build() -> Scene:
    scene = a_scene()
    await scene.register(build_id="new")
    await scene.start_activity("probe", build_id="old")
    return scene


@case(ConstraintKind.NO_WORKER, of_run)
async def no_worker_for_the_workflow() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    return scene


@case(ConstraintKind.NO_POLLER)
async def no_poller() -> Scene:
    scene = a_scene()
    await scene.register()
    await enqueue(scene, "probe")
    scene.clock.advance(10 * 60_000)
    return scene


@case(ConstraintKind.DRAINING)
async def draining_build() -> Scene:
    scene = a_scene()
    await scene.register(build_id="old")
    await enqueue(scene, "probe")
    await cohorts.drain(scene.ctx, "default", "orders", "old")
    return scene


@case(ConstraintKind.DRAINING)
async def draining_workers_without_a_build() -> Scene:
    scene = a_scene()
    await scene.register()
    await enqueue(scene, "probe")
    await cohorts.drain(scene.ctx, "default", "orders", None)
    return scene


@case(ConstraintKind.NO_SLOTS)
async def no_slots() -> Scene:
    scene = a_scene()
    await scene.register(activity_slots=0)
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.SATURATED)
async def saturated() -> Scene:
    scene = await busy(slots=1)
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.STICKY, of_run)
async def reserved() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    leased = await scene.take(WORKFLOW)
    await scene.complete(leased, concurrent=True, cached=True, sticky_ms=10_000)
    await signals.send(scene.ctx, Signal(Address("default", WORKFLOW_ID), "go", NOTHING))
    return scene


# ── Limits ──────────────────────────────────────────────────────────────────────────────────────────────


class Gone(InProcess):
    is_supported = False


@case(ConstraintKind.COORDINATION)
async def coordination_gone() -> Scene:
    scene = a_scene()
    scene = dataclasses.replace(scene, ctx=replace(scene.ctx, coordination=Gone()))
    await scene.register()
    await limit(scene, lease_cap=5)
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.PAUSED)
async def paused_queue() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit(scene, paused="on")
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.PAUSED)
async def paused_namespace_for_a_while() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit_scope(scene, "namespace:default", scene.clock.now_ms() + 5_000, paused="on")
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.PAUSED)
async def paused_key() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit_key(scene, "acme", KeySettingsChange(paused=True))
    await enqueue(scene, "probe", key="acme")
    return scene


@case(ConstraintKind.COOLING)
async def cooling() -> Scene:
    scene = a_scene()
    await limit(scene, group="upstream")
    await limit_scope(scene, "group:default/upstream", lease_cap=100)
    await enqueue(scene, "held")
    await scene.fail_activity(await scene.take(ACTIVITY), AttemptFailure("busy", throttled_ms=30_000))
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.LEASES)
async def full_queue() -> Scene:
    scene = await busy()
    await limit(scene, lease_cap=1)
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.LEASES)
async def closed_cluster() -> Scene:
    scene = await busy()
    await limit_scope(scene, "cluster", lease_cap=0)
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.RATE)
async def queue_rate() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit(scene, queue_rate=PER_SECOND, queue_burst=0)
    await enqueue(scene, "held")
    await scene.take(ACTIVITY)
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.RATE)
async def queue_rate_of_zero() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit(scene, queue_rate=0)
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.DISPATCHES)
async def dispatches_used_up() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit_scope(scene, "namespace:default/activity", dispatches=1)
    await enqueue(scene, "held")
    await scene.take(ACTIVITY)
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.COST)
async def cost_used_up() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit_scope(scene, "namespace:default", cost=10)
    await enqueue(scene, "held", cost=8)
    await scene.take(ACTIVITY)
    await enqueue(scene, "probe", cost=5)
    return scene


@case(ConstraintKind.KEY_RATE)
async def key_rate_of_zero() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit_key(scene, "acme", KeySettingsChange(rate_micro=0))
    await enqueue(scene, "probe", key="acme")
    return scene


@case(ConstraintKind.KEY_RUNNING)
async def full_key() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit_key(scene, "acme", KeySettingsChange(lease_cap=1))
    await enqueue(scene, "held", key="acme")
    await scene.take(ACTIVITY)
    await enqueue(scene, "probe", key="acme")
    return scene


# ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────


@case(ConstraintKind.PRIORITY)
async def higher_level() -> Scene:
    scene = a_scene()
    await scene.register()
    await enqueue(scene, "urgent", level=1)
    await enqueue(scene, "probe")
    return scene


@case(ConstraintKind.FAIRNESS_TURN)
async def other_key() -> Scene:
    scene = a_scene()
    await scene.register()
    await enqueue(scene, "a", key="a")
    await enqueue(scene, "probe", key="b")
    return scene


@case(ConstraintKind.ARRIVAL_TURN)
async def earlier_arrival() -> Scene:
    scene = a_scene()
    await scene.register()
    await limit(scene, fairness="off")
    await enqueue(scene, "a", key="a")
    await enqueue(scene, "probe", key="b")
    return scene


@case(ConstraintKind.BEHIND_OWN_KEY)
async def older_task_of_its_key() -> Scene:
    scene = a_scene()
    await scene.register()
    await enqueue(scene, "a", key="a")
    await enqueue(scene, "probe", key="a")
    return scene


# ── Under way, or over ──────────────────────────────────────────────────────────────────────────────────


@case(ConstraintKind.NOT_WAITING)
async def done() -> Scene:
    scene = a_scene()
    await enqueue(scene, "probe")
    await scene.finish(await scene.take(ACTIVITY))
    return scene


@case(ConstraintKind.QUARANTINED)
async def quarantined() -> Scene:
    scene = a_scene(quarantine_after="1")
    await scene.start_activity("probe", app_task(FOR_EVER))
    await scene.fail_activity(await scene.take(ACTIVITY), CRASH)
    return scene


@case(ConstraintKind.LEASED)
async def leased_task() -> Scene:
    scene = a_scene()
    await enqueue(scene, "probe")
    await scene.take(ACTIVITY)
    return scene


@case(ConstraintKind.PREFETCHED)
async def prefetched() -> Scene:
    scene = a_scene()
    await enqueue(scene, "probe")
    await scene.take(ACTIVITY, claim_lease_ms=5_000)
    return scene


@case(ConstraintKind.START_DELAY)
async def started_with_a_delay() -> Scene:
    scene = a_scene()
    await scene.start_activity("probe", replace(charge(), delay_ms=30_000))
    return scene


@case(ConstraintKind.START_DELAY, of_run)
async def a_workflow_started_with_a_delay() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID, delay_ms=30_000)
    return scene


@case(ConstraintKind.RETRY_BACKOFF)
async def resting_after_a_failure() -> Scene:
    scene = a_scene()
    await scene.start_activity("probe", charge(tries(3, 30)))
    await scene.fail_activity(await scene.take(ACTIVITY))
    return scene


@case(ConstraintKind.RETRY_BUDGET)
async def moved_by_the_retry_budget() -> Scene:
    scene = a_scene()
    await limit(scene, retry_rate=PER_SECOND // 10)
    for name in ("first", "second", "probe"):
        await scene.start_activity(name, charge(tries(3, 0)))
    for leased in [await scene.take(ACTIVITY) for _ in range(3)]:
        await scene.fail_activity(leased)
    return scene


# ── Runs ────────────────────────────────────────────────────────────────────────────────────────────────


@case(ConstraintKind.BLOCKED_RUN, of_run)
async def failing_workflow_code() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    await scene.fail(await scene.take(WORKFLOW), "no such branch")
    return scene


async def refused(scene: Scene, *commands: Command) -> None:
    """Have the server reject the code's commands; the worker reports that as a task failure."""
    leased = await scene.take(WORKFLOW)
    with pytest.raises(InvalidInput) as error:
        await scene.complete(leased, *commands, concurrent=leased.run.waits.concurrent)
    await scene.fail(leased, error.value.message, "InvalidRequest")


@case(ConstraintKind.STRUCTURAL_LIMIT, of_run)
async def more_activities_at_once_than_a_run_may_have() -> Scene:
    scene = a_scene(max_pending_activities="2")
    await scene.start(WORKFLOW_ID)
    await refused(scene, charge(), charge(), charge())
    return scene


@case(ConstraintKind.STRUCTURAL_LIMIT, of_run)
async def more_activities_beside_those_that_are_open() -> Scene:
    scene = a_scene(max_pending_activities="2")
    await scene.start(WORKFLOW_ID)
    await scene.decide(charge(), charge(), concurrent=True)
    await signals.send(scene.ctx, Signal(Address("default", WORKFLOW_ID), "go", NOTHING))
    await refused(scene, charge())
    return scene


@case(ConstraintKind.STRUCTURAL_LIMIT, of_run)
async def a_refused_task_that_is_due_again() -> Scene:
    scene = await more_activities_at_once()
    await scene.advance(60_000)
    return scene


async def more_activities_at_once() -> Scene:
    return await CASES["more_activities_at_once_than_a_run_may_have"][1]()


@case(ConstraintKind.STRUCTURAL_LIMIT, of_run)
async def a_history_that_is_too_long() -> Scene:
    scene = a_scene(max_history_events="10")
    await scene.start(WORKFLOW_ID)
    await refused(scene, *[StartTimer(60)] * 12)
    return scene


@case(ConstraintKind.STRUCTURAL_LIMIT, of_run)
async def a_full_history_that_takes_no_signal() -> Scene:
    scene = a_scene(max_history_events="10")
    run = await scene.start(WORKFLOW_ID)
    while scene.run(run.run_id).last_sequence < 10:
        await signals.send(scene.ctx, Signal(Address("default", WORKFLOW_ID), "go", NOTHING))
        await scene.decide(concurrent=True)
    with pytest.raises(InvalidInput):
        await signals.send(scene.ctx, Signal(Address("default", WORKFLOW_ID), "go", NOTHING))
    return scene


@case(ConstraintKind.TIMER, of_run)
async def sleeping() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    await scene.decide(StartTimer(60), StartTimer(90))
    return scene


@case(ConstraintKind.ACTIVITY, of_run)
async def waiting_for_activities() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    await scene.decide(charge(), charge())
    return scene


@case(ConstraintKind.CHILD, of_run)
async def waiting_for_a_child() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    await scene.decide(StartChild("Ship", None, NOTHING))
    return scene


@case(ConstraintKind.CONDITION, of_run)
async def waiting_for_a_condition() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    await scene.decide(OpenConditionWait("paid", None, None))
    return scene


@case(ConstraintKind.CONDITION, of_run)
async def waiting_for_a_condition_or_its_timeout() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    await scene.decide(OpenConditionWait("paid", None, 60))
    return scene


@case(ConstraintKind.SIGNAL, of_run)
async def waiting_for_a_signal() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    await scene.decide(concurrent=True)
    return scene


@case(ConstraintKind.STRANDED, of_run)
async def stranded() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    await scene.decide()
    return scene


@case(ConstraintKind.RUN_CAP, of_run)
async def waiting_to_start_behind_another() -> Scene:
    scene = a_scene()
    await cap_runs(scene, 2)
    for each in ("first", "second", "third", WORKFLOW_ID):
        await scene.start(each)
    return scene


@case(ConstraintKind.DEBOUNCED, of_run)
async def a_debounced_start() -> Scene:
    scene = a_scene()
    unique = UniqueStart("k", UniqueUntil.STARTED, debounce=Debounce(5_000, 50_000))
    await scene.start(WORKFLOW_ID, unique=unique, delay_ms=5_000)
    return scene


@case(ConstraintKind.RUN_PAUSED, of_run)
async def a_paused_run() -> Scene:
    scene = a_scene()
    await scene.start(WORKFLOW_ID)
    await run_pause.pause(scene.ctx, Address("default", WORKFLOW_ID), "stock is counted")
    return scene


@case(ConstraintKind.ACTIVITY_PAUSED)
async def a_paused_activity() -> Scene:
    scene = a_scene()
    await enqueue(scene, "probe")
    await activity_control.pause(scene.ctx, "default", "probe", None)
    return scene


# ── The property ────────────────────────────────────────────────────────────────────────────────────────


def test_every_kind_of_constraint_has_a_case() -> None:
    assert {kind for kind, _, _ in CASES.values()} == set(ConstraintKind)


def closed(explanation: WaitExplanation) -> list[Constraint]:
    found = (explanation.binding, *explanation.next)
    return [each for each in found if each is not None and each.is_closed]


@pytest.mark.parametrize("name", CASES)
async def test_doing_what_a_remedy_says_removes_the_constraint(name: str) -> None:
    kind, make, ask = CASES[name]
    scene = await make()
    bound = (await ask(scene)).binding
    assert bound is not None
    assert bound.kind is kind
    assert bool(bound.frees) == (kind is not ConstraintKind.NOT_WAITING), "whatever waits can be freed"
    if kind is ConstraintKind.QUARANTINED:  # it has ended: what a person mends is another activity
        assert all(remedy.is_manual for remedy in bound.frees)
        return
    for number, remedy in enumerate(bound.frees):
        scene = await make()
        same = (await ask(scene)).binding
        assert same is not None
        assert same.frees[number] == remedy, "a case is the same each time"
        assert remedy_text(remedy, scene.clock.now_ms())
        if remedy.is_manual:
            scene = await by_hand(scene, remedy)
        else:
            await follow(scene, bound, remedy)
        still = [each for each in closed(await ask(scene)) if (each.kind, each.scope) == (kind, bound.scope)]
        assert not still, f"{remedy} does not remove {bound}"


async def by_hand(scene: Scene, remedy: Remedy) -> Scene:
    """What a person does: write code, or configure the servers."""
    match remedy.act:
        case RemedyKind.RESTORE:
            return dataclasses.replace(scene, ctx=replace(scene.ctx, coordination=InProcess()))
        case RemedyKind.RAISE_SETTING:
            assert remedy.setting is not None
            given = {"DW_AUTH_DRIVER": "none", remedy.setting: str(remedy.to)}
            return dataclasses.replace(scene, ctx=replace(scene.ctx, settings=load(given)))
        case _:
            await scene.advance(10 * 60_000)
            leased = await scene.take(WORKFLOW)
            await scene.complete(leased, DONE, concurrent=leased.run.waits.concurrent)
            return scene


async def test_waiting_is_no_remedy_for_a_run_beyond_a_structural_limit() -> None:
    """`wait 5 s` was suggested for a run that can never continue."""
    scene = await more_activities_at_once()
    explanation = await of_run(scene)
    bound = explanation.binding
    assert bound is not None
    assert explanation.sentence == (
        "order-1 waits: its workflow task is refused: the run would hold 3 open activities, of at most 2."
    )
    assert (bound.most, bound.used, bound.opens_at_ms) == (2, 0, None)
    assert [each.act for each in bound.frees] == [
        RemedyKind.FIX,
        RemedyKind.RAISE_SETTING,
        RemedyKind.END_RUN,
    ]
    assert not any(each.act is RemedyKind.WAIT for one in closed(explanation) for each in one.frees)
    assert explanation.expected.unknown_because is not None
    words = [remedy_text(each, scene.clock.now_ms()) for each in bound.frees]
    assert words[1] == "raise DW_MAX_PENDING_ACTIVITIES to 3 or more on every server, and restart them"


async def test_open_activities_that_end_make_room_for_the_refused_ones() -> None:
    scene = await CASES["more_activities_beside_those_that_are_open"][1]()
    bound = (await of_run(scene)).binding
    assert bound is not None
    assert bound.frees[0] == Remedy(RemedyKind.END_STEPS, count=1)
    await follow(scene, bound, bound.frees[0])
    await scene.advance(60_000)
    await scene.decide(charge(), concurrent=True)
    assert [each.state for each in scene.tables.tasks.values() if each.kind is ACTIVITY].count(
        TaskState.READY
    ) == 2
