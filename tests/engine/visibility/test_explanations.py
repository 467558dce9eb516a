"""Explanations agree with dispatch, and their remedies work."""

from __future__ import annotations

import dataclasses
import random

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import StartTimer
from penstock.core.limits.policies import LimitSetting
from penstock.core.model import TaskPriority, TaskState
from penstock.core.scheduling.cohorts import is_stale
from penstock.core.why.estimate import TURNS
from penstock.core.why.values import ConstraintKind, RemedyKind
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.limits import policies
from penstock.engine.limits.policies import KeySettingsChange, PolicyUpdate, SettingChange
from penstock.engine.matching import permits
from penstock.engine.visibility import explanations
from penstock.engine.workers import cohorts
from penstock.errors import Conflict, NotFound
from penstock.ports.coordination import InProcess
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, a_poll, a_scene, charge, of, tries
from tests.engine.support.why_scene import (
    binding,
    end,
    enqueue,
    follow,
    kinds,
    leased,
    limit,
    limit_key,
    limit_scope,
    why,
)
from tests.support.builders import NOW_MS
from tests.support.claims import leased_of
from tests.support.effort import times

PER_SECOND = 1_000_000


class TestWorkers:
    async def test_no_worker_for_the_type(self, scene: Scene) -> None:
        await enqueue(scene, "charge-1")
        found = await binding(scene)
        assert (found.kind, found.frees[0].task_type) == (ConstraintKind.NO_WORKER, "Charge")
        await scene.register(activity_types=("Refund",))
        assert (await binding(scene)).kind is ConstraintKind.NO_WORKER
        assert "Charge" in (await why(scene)).sentence
        assert (await why(scene)).expected.from_ms is None

    async def test_stale_workers_do_not_count_as_pollers(self, scene: Scene) -> None:
        await scene.register()
        await enqueue(scene, "charge-1")
        assert (await why(scene)).binding is None
        scene.clock.advance(10 * 60_000)
        assert (await binding(scene)).kind is ConstraintKind.NO_POLLER

    async def test_workers_that_drain(self, scene: Scene) -> None:
        await scene.register(build_id="old")
        await enqueue(scene, "charge-1")
        await cohorts.drain(scene.ctx, "default", "orders", "old")
        found = await binding(scene)
        assert (found.kind, found.frees[0].build_id) == (ConstraintKind.DRAINING, "old")

    async def test_all_slots_are_leased_and_who_has_them(self, scene: Scene) -> None:
        await scene.register(activity_slots=1)
        await scene.register("other", activity_types=("Refund",))
        await enqueue(scene, "held")
        await scene.take(ACTIVITY)
        await enqueue(scene, "charge-1")
        found = await binding(scene)
        assert (found.kind, found.used, found.most) == (ConstraintKind.SATURATED, 1, 1)
        assert [(each.workflow_id, each.worker) for each in found.holders] == [("held", "w1")]

    async def test_the_build_of_a_task_must_be_there(self, scene: Scene) -> None:
        await scene.register(build_id="new")
        await scene.start_activity("charge-1", build_id="old")
        found = await binding(scene)
        assert (found.kind, found.frees[0].build_id) == (ConstraintKind.NO_WORKER, "old")


class TestLimits:
    @pytest.mark.parametrize(
        "scope", ["cluster", "cluster/activity", "namespace:default", "namespace:default/activity"]
    )
    async def test_a_full_scope_names_who_holds_it(self, scene: Scene, scope: str) -> None:
        await limit_scope(scene, scope, lease_cap=1)
        await enqueue(scene, "held")
        await scene.take(ACTIVITY)
        await enqueue(scene, "charge-1")
        found = await binding(scene)
        assert (found.kind, found.scope, found.used, found.most) == (ConstraintKind.LEASES, scope, 1, 1)
        if scope.startswith("namespace"):
            assert [each.workflow_id for each in found.holders] == ["held"]
        assert [each.act for each in found.frees] == [RemedyKind.END_LEASES, RemedyKind.RAISE]

    async def test_a_full_queue(self, scene: Scene) -> None:
        await limit(scene, lease_cap=1)
        await enqueue(scene, "held")
        await scene.take(ACTIVITY)
        await enqueue(scene, "charge-1")
        found = await binding(scene)
        assert (found.kind, found.used, found.most) == (ConstraintKind.LEASES, 1, 1)
        assert [each.workflow_id for each in found.holders] == ["held"]

    async def test_a_budget_group_that_is_used_up_opens_with_the_next_minute(self, scene: Scene) -> None:
        await limit(scene, group="downstream")
        await limit_scope(scene, "group:default/downstream", dispatches=1)
        await enqueue(scene, "held")
        await scene.take(ACTIVITY)
        await enqueue(scene, "charge-1")
        explanation = await why(scene)
        next_minute_ms = (NOW_MS // 60_000 + 1) * 60_000
        assert explanation.binding is not None
        assert explanation.binding.opens_at_ms == next_minute_ms
        assert explanation.sentence.startswith(
            "charge-1 waits: the budget group downstream has used 1 of its 1 dispatches of this minute; it opens in"
        )
        assert explanation.expected.from_ms == next_minute_ms

    async def test_a_budget_of_cost(self, scene: Scene) -> None:
        await limit(scene, group="tokens")
        await limit_scope(scene, "group:default/tokens", cost=10)
        await enqueue(scene, "held", cost=8)
        await scene.take(ACTIVITY)
        await enqueue(scene, "charge-1", cost=5)
        found = await binding(scene)
        assert (found.kind, found.used, found.most) == (ConstraintKind.COST, 8, 10)

    async def test_the_rate_of_the_queue(self, scene: Scene) -> None:
        await limit(scene, queue_rate=PER_SECOND, queue_burst=0)
        await enqueue(scene, "held")
        await scene.take(ACTIVITY)
        await enqueue(scene, "charge-1")
        found = await binding(scene)
        assert (found.kind, found.opens_at_ms) == (ConstraintKind.RATE, NOW_MS + 1_000)
        assert "as its rate allows: 1, set by the operator; it opens in 1 s" in found.message
        await limit(scene, queue_rate=0)
        assert (await binding(scene)).message.endswith(
            "dispatches nothing: its rate is 0, set by the operator"
        )

    async def test_a_group_that_cools_down(self, scene: Scene) -> None:
        await limit(scene, group="upstream")
        await limit_scope(scene, "group:default/upstream", lease_cap=100)
        await enqueue(scene, "held")
        await scene.fail_activity(await scene.take(ACTIVITY), AttemptFailure("busy", throttled_ms=30_000))
        await enqueue(scene, "charge-1")
        found = await binding(scene)
        assert (found.kind, found.opens_at_ms) == (ConstraintKind.COOLING, NOW_MS + 30_000)
        assert (await why(scene, "held")).binding is not None

    @pytest.mark.parametrize("scope", ["namespace:default", "group:default/downstream", "cluster"])
    async def test_a_paused_scope(self, scene: Scene, scope: str) -> None:
        await scene.register()
        await limit(scene, group="downstream")
        await limit_scope(scene, scope, paused="on", ends_at_ms=NOW_MS + 5_000)
        await enqueue(scene, "charge-1")
        found = await binding(scene)
        assert (found.kind, found.scope, found.opens_at_ms) == (ConstraintKind.PAUSED, scope, NOW_MS + 5_000)
        assert "by ops" in found.message

    async def test_a_paused_queue_has_no_expected_start(self, scene: Scene) -> None:
        await scene.register()
        settings = {LimitSetting.PAUSED: SettingChange("on", "too hot")}
        await policies.configure(scene.ctx, "default", "orders", ACTIVITY, PolicyUpdate(settings), "ops")
        await enqueue(scene, "charge-1")
        explanation = await why(scene)
        assert explanation.sentence == "charge-1 waits: the task queue orders is paused (by ops: too hot)."
        assert explanation.expected.unknown_because is not None

    async def test_a_paused_key_a_full_key_and_a_key_out_of_tokens(self, scene: Scene) -> None:
        await scene.register()
        await limit_key(scene, "acme", KeySettingsChange(paused=True))
        await enqueue(scene, "charge-1", key="acme")
        assert (await binding(scene)).kind is ConstraintKind.PAUSED
        await limit_key(scene, "acme", KeySettingsChange(paused=False, lease_cap=0))
        found = await binding(scene)
        assert (found.kind, [each.act for each in found.frees]) == (
            ConstraintKind.KEY_RUNNING,
            [RemedyKind.RAISE],
        )
        await limit_key(scene, "acme", KeySettingsChange(lease_cap=1))
        await scene.take(ACTIVITY)
        await enqueue(scene, "charge-2", key="acme")
        found = await binding(scene, "charge-2")
        assert (found.kind, [each.workflow_id for each in found.holders]) == (
            ConstraintKind.KEY_RUNNING,
            ["charge-1"],
        )
        await limit_key(scene, "acme", KeySettingsChange(lease_cap=9, rate_micro=0))
        assert (await binding(scene, "charge-2")).kind is ConstraintKind.KEY_RATE

    async def test_servers_that_cannot_agree(self) -> None:
        class Gone(InProcess):
            is_supported = False

        scene = a_scene()
        scene = dataclasses.replace(scene, ctx=replace(scene.ctx, coordination=Gone()))
        await scene.register()
        await enqueue(scene, "charge-1")
        assert (await why(scene)).binding is None, "an unlimited queue needs no coordination"
        await limit(scene, lease_cap=5)
        assert (await binding(scene)).kind is ConstraintKind.COORDINATION

    async def test_what_is_closed_besides_and_what_will_be_comes_next(self, scene: Scene) -> None:
        await scene.register()
        await limit(scene, paused="on", lease_cap=1)
        await limit_scope(scene, "namespace:default", lease_cap=0)
        await enqueue(scene, "first")
        await enqueue(scene, "charge-1")
        explanation = await why(scene)
        assert kinds(explanation) == [
            ConstraintKind.PAUSED,
            ConstraintKind.LEASES,
            ConstraintKind.BEHIND_OWN_KEY,
            ConstraintKind.LEASES,
        ]
        assert [each.is_closed for each in explanation.next] == [True, True, False]


class TestTurns:
    async def test_higher_levels_go_first(self, scene: Scene) -> None:
        await scene.register()
        for number in range(3):
            await enqueue(scene, f"urgent-{number}", level=1)
        await enqueue(scene, "charge-1")
        explanation = await why(scene)
        assert explanation.position is not None
        assert kinds(explanation)[0] is ConstraintKind.PRIORITY
        assert explanation.position.ahead_by_level == ((1, 3),)

    async def test_first_come_first_served_inside_a_key(self, scene: Scene) -> None:
        await scene.register()
        for number in range(1, 4):
            await enqueue(scene, f"charge-{number}", key="acme")
        explanation = await why(scene, "charge-3")
        assert kinds(explanation) == [ConstraintKind.BEHIND_OWN_KEY]
        assert explanation.position is not None
        assert explanation.position.ahead == 2

    async def test_other_keys_have_their_turn(self, scene: Scene) -> None:
        await scene.register()
        for number in range(10):
            await enqueue(scene, f"big-{number}", key="big")
        for number in range(10):
            await scene.take(ACTIVITY)
            await enqueue(scene, f"more-{number}", key="big")
        await enqueue(scene, "charge-1", key="small")
        await enqueue(scene, "charge-2", key="small")
        explanation = await why(scene, "charge-2")
        assert explanation.position is not None
        assert explanation.position.ahead_of_own == 1
        assert 1 <= explanation.position.ahead_of_others <= 2

    async def test_in_order_of_arrival(self, scene: Scene) -> None:
        await scene.register()
        await limit(scene, fairness="off")
        for number in range(4):
            await enqueue(scene, f"early-{number}", key=f"k{number}")
        await enqueue(scene, "charge-1", key="mine")
        explanation = await why(scene)
        assert kinds(explanation) == [ConstraintKind.ARRIVAL_TURN]
        assert explanation.position is not None
        assert explanation.position.ahead == 4

    @pytest.mark.parametrize("seed", range(times(40)))
    async def test_the_number_ahead_is_the_number_that_goes_before(self, seed: int) -> None:
        """For static states: nothing arrives and no limit applies."""
        dice, scene = random.Random(seed), a_scene()
        await scene.register(activity_slots=10_000)
        if seed % 4 == 3:
            await limit(scene, fairness="off")
        for number in range(dice.randint(5, 60)):
            await _at_random(scene, dice, number)
            if dice.random() < 0.3:
                await scene.claim(ACTIVITY)
        waiting = [task for task in scene.tables.tasks.values() if task.state is TaskState.READY]
        probe = dice.choice(waiting)
        run = scene.run(probe.run_id)
        explanation = await why(scene, run.workflow_id)
        before = 0
        while (await scene.take(ACTIVITY)).task.task_id != probe.task_id:
            before += 1
        place = explanation.position
        assert place is not None
        assert place.ahead == before


async def _at_random(scene: Scene, dice: random.Random, number: int) -> None:
    key = dice.choice(["", "a", "b", "c", "d"])
    weight = {"": 1_000, "a": 1_000, "b": 2_500, "c": 300, "d": 7_000}[key]
    priority = TaskPriority(level=dice.choice([2, 3, 3, 3]), key=key, weight_milli=weight)
    await scene.start_activity(f"any-{number}", priority=priority)


class TestTasksUnderWay:
    async def test_a_leased_task_does_not_wait(self, scene: Scene) -> None:
        await enqueue(scene, "charge-1")
        await scene.take(ACTIVITY)
        found = await binding(scene)
        assert (found.kind, [each.worker for each in found.holders]) == (ConstraintKind.LEASED, ["w1"])

    async def test_a_task_that_was_prefetched_waits_for_its_permit(self, scene: Scene) -> None:
        await limit(scene, lease_cap=1)
        for name in ("held", "charge-1"):
            await enqueue(scene, name)
        first = await scene.take(ACTIVITY, claim_lease_ms=5_000)
        assert first.run.workflow_id == "held"
        assert (await binding(scene, "held")).kind is ConstraintKind.PREFETCHED
        await scene.take(ACTIVITY, claim_lease_ms=5_000)
        await permits.start(scene.ctx, "default", first.task.task_id, of(first))
        assert kinds(await why(scene)) == [ConstraintKind.LEASES, ConstraintKind.PREFETCHED]

    async def test_a_failed_task_backs_off(self, scene: Scene) -> None:
        await scene.start_activity("charge-1", charge(tries(3, 30)))
        await scene.fail_activity(await scene.take(ACTIVITY))
        found = await binding(scene)
        assert (found.kind, found.opens_at_ms) == (ConstraintKind.RETRY_BACKOFF, NOW_MS + 30_000)

    async def test_what_is_done_does_not_wait(self, scene: Scene) -> None:
        await enqueue(scene, "charge-1")
        await scene.finish(await scene.take(ACTIVITY))
        explanation = await why(scene)
        assert kinds(explanation) == [ConstraintKind.NOT_WAITING]
        assert "does not wait" in explanation.sentence


class TestRuns:
    async def test_a_run_is_explained_by_its_task(self, scene: Scene) -> None:
        await scene.start("order-1")
        found = await explanations.workflow(scene.ctx, "default", "order-1")
        assert kinds(found.explanation) == [ConstraintKind.NO_WORKER]
        assert found.task is not None
        again = await explanations.task(scene.ctx, "default", found.task.task_id)
        assert again.explanation == found.explanation

    async def test_a_run_that_fails_again_and_again(self, scene: Scene) -> None:
        await scene.start("order-1")
        await scene.fail(await scene.take(WORKFLOW), "no such branch")
        found = await explanations.workflow(scene.ctx, "default", "order-1")
        assert kinds(found.explanation)[0] is ConstraintKind.BLOCKED_RUN
        assert "no such branch" in found.explanation.sentence

    async def test_a_run_that_waits_for_its_activities(self, scene: Scene) -> None:
        await scene.start("order-1")
        await scene.decide(charge(), charge(activity_type="Ship"))
        await scene.take(ACTIVITY)
        found = await explanations.workflow(scene.ctx, "default", "order-1")
        assert kinds(found.explanation) == [ConstraintKind.ACTIVITY]
        parts = [each.explanation.binding for each in found.parts]
        assert [None if each is None else each.kind for each in parts] == [ConstraintKind.LEASED, None]

    async def test_a_run_that_waits_for_a_timer(self, scene: Scene) -> None:
        await scene.start("order-1")
        await scene.decide(StartTimer(60), StartTimer(90))
        found = (await explanations.workflow(scene.ctx, "default", "order-1")).explanation
        assert found.binding is not None
        assert (found.binding.kind, found.binding.opens_at_ms) == (ConstraintKind.TIMER, NOW_MS + 60_000)
        assert found.expected.from_ms == NOW_MS + 60_000

    async def test_a_run_of_which_nothing_is_under_way_waits_for_a_message(self, scene: Scene) -> None:
        await scene.start("order-1")
        await scene.decide(concurrent=True)
        found = await explanations.workflow(scene.ctx, "default", "order-1")
        assert kinds(found.explanation) == [ConstraintKind.SIGNAL]

    async def test_a_run_that_no_signal_wakes_is_to_be_repaired(self, scene: Scene) -> None:
        await scene.start("order-1")
        await scene.decide()
        found = await explanations.workflow(scene.ctx, "default", "order-1")
        assert kinds(found.explanation) == [ConstraintKind.STRANDED]

    async def test_a_run_that_ended(self, scene: Scene) -> None:
        await scene.start("order-1")
        await scene.decide(DONE)
        found = await explanations.workflow(scene.ctx, "default", "order-1")
        assert kinds(found.explanation) == [ConstraintKind.NOT_WAITING]

    async def test_what_is_not_there_is_not_explained(self, scene: Scene) -> None:
        await scene.start("order-1")
        for ask, name in (
            (explanations.workflow, "nobody"),
            (explanations.activity, "order-1"),
            (explanations.task, "nobody"),
        ):
            with pytest.raises(NotFound):
                await ask(scene.ctx, "default", name)
        with pytest.raises(NotFound):
            await explanations.workflow(scene.ctx, "elsewhere", "order-1")


class TestDoingWhatItSays:
    """For random states: applying remedies removes the binding constraints until the task is leased."""

    @pytest.mark.parametrize("seed", range(times(300)))
    async def test_a_task_is_leased_when_everything_is_done_that_would_free_it(self, seed: int) -> None:
        dice = random.Random(seed)
        scene = await _a_stuck_scene(dice)
        reported: list[str] = []
        for _ in range(80):
            explanation = await why(scene, "probe")
            bound = explanation.binding
            reported.append(explanation.sentence)
            if bound is None or bound.kind in TURNS:
                given = await _poll(scene)
                assert given is not None, "\n".join(reported)
                if given == "probe":
                    assert bound is None, reported
                    return
                continue
            assert bound.frees, reported
            remedy = dice.choice(bound.frees)
            reported.append(f"  {remedy}")
            await follow(scene, bound, remedy)
            still = await why(scene, "probe")
            assert not any(
                (each.kind, each.scope) == (bound.kind, bound.scope) and each.is_closed
                for each in (*([still.binding] if still.binding else []), *still.next)
            ), "\n".join(reported)
        raise AssertionError("\n".join(reported))


async def _a_stuck_scene(dice: random.Random) -> Scene:
    scene = a_scene()
    grouped = dice.random() < 0.6
    if grouped:
        await limit(scene, group="g")
    await scene.register("w1", activity_slots=dice.choice([1, 3, 50]), build_id="b1")
    names = [f"early-{number}" for number in range(dice.randint(0, 5))]
    for each in names:
        await enqueue(
            scene, each, key=dice.choice(["a", "b"]), level=dice.choice([2, 3]), cost=dice.randint(0, 4)
        )
    for _ in names:
        if dice.random() < 0.6:
            await scene.claim(ACTIVITY)
    await _limit_at_random(scene, dice, grouped)
    await enqueue(scene, "probe", key="a", cost=dice.randint(0, 4))
    if dice.random() < 0.3:
        await cohorts.drain(scene.ctx, "default", "orders", "b1")
    if dice.random() < 0.3:
        scene.clock.advance(dice.choice([1_000, 30_000, 10 * 60_000]))
    return scene


async def _limit_at_random(scene: Scene, dice: random.Random, grouped: bool) -> None:
    asks: list[tuple[float, dict[str, int | str]]] = [
        (0.4, {"lease_cap": _few(dice)}),
        (0.4, {"dispatches": _few(dice), "window": dice.choice(["minute", "sliding"])}),
        (0.3, {"queue_rate": dice.choice([0, PER_SECOND // 2, PER_SECOND]), "queue_burst": 0}),
        (0.2, {"paused": "on"}),
        (0.3, {"fairness": dice.choice(["on", "off"])}),
    ]
    for chance, values in asks:
        if dice.random() < chance:
            await limit(scene, **values)
    rate = KeySettingsChange(rate_micro=dice.choice([0, PER_SECOND]))
    if dice.random() < 0.5:
        await limit_key(
            scene,
            "a",
            dice.choice([KeySettingsChange(paused=True), KeySettingsChange(lease_cap=_few(dice)), rate]),
        )
    scopes = ["namespace:default", "namespace:default/activity", "cluster", "cluster/activity"]
    scopes += ["group:default/g", "group:default/g/activity", "group:*/g"] if grouped else []
    for scope in scopes:
        await _limit_scope_at_random(scene, dice, scope)


async def _limit_scope_at_random(scene: Scene, dice: random.Random, scope: str) -> None:
    asks: list[tuple[float, dict[str, int | str]]] = [
        (0.25, {"lease_cap": _few(dice)}),
        (0.25, {"dispatches": _few(dice)}),
        (0.15, {"cost": dice.randint(0, 6)}),
        (0.1, {"paused": "on"}),
    ]
    for chance, values in asks:
        if dice.random() < chance:
            await limit_scope(scene, scope, None, **values)


def _few(dice: random.Random) -> int:
    return dice.randint(0, 3)


async def _poll(scene: Scene) -> str | None:
    """The task of the next poll of a worker with a free slot; other tasks are completed at once."""
    stale_ms = scene.ctx.settings.polls.worker_stale_after_ms
    for (_, worker_id), worker in list(scene.tables.workers.items()):
        held = sum(task.lease_owner == worker_id for task in leased(scene))
        if held >= worker.activity_slots or is_stale(worker, scene.clock.now_ms(), stale_ms):
            continue
        try:
            [verdict] = await scene.ask(a_poll(ACTIVITY, worker_id, build_id=worker.build_id))
        except Conflict:
            continue
        for each in leased_of(verdict):
            if each.run.workflow_id != "probe":
                await end(scene, each.task)
            return each.run.workflow_id
    return None
