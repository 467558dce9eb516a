"""Queue rates reported by workers: which report wins, how long it lasts, and what it limits, on virtual time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from penstock.core.limits.policies import LimitSetting
from penstock.core.limits.rate_reports import RateReport
from penstock.core.model import TaskKind
from penstock.core.scheduling.polls import Held, Leased
from penstock.engine.limits import admission, policies
from penstock.engine.limits.policies import UNSET, PolicyUpdate, PolicyView, SettingChange, Unset
from penstock.engine.limits.rate_reports import report_rate
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.workers import worker_registry
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, a_poll, a_scene, charge, tries
from tests.support.claims import leased_of

PER_SECOND = 1_000_000
MINUTE = 60_000
FIRST_LOOKS_MAX = 1_000


async def say(scene: Scene, per_second: float, worker_id: str = "w1", burst_ms: int | None = None) -> None:
    word = RateReport(round(per_second * PER_SECOND), worker_id, burst_ms)
    await report_rate(scene.ctx, "default", "orders", word)


async def operate(scene: Scene, per_second: float | Unset) -> None:
    value = per_second if isinstance(per_second, Unset) else round(per_second * PER_SECOND)
    ask = PolicyUpdate({LimitSetting.QUEUE_RATE: SettingChange(value)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, ask, "operator")


async def view(scene: Scene) -> PolicyView:
    return await policies.read(scene.ctx, "default", "orders", ACTIVITY)


async def rate(scene: Scene) -> tuple[float | None, str]:
    rules = (await view(scene)).queue.rules
    found = rules.queue_rate
    return None if found is None else found.micro / PER_SECOND, rules.queue_rate_source.value


async def fill(scene: Scene, count: int, **how: Any) -> None:
    for number in range(count):
        await scene.start_activity(f"charge-{number}", charge(**how))


async def some(scene: Scene, most: int, worker_id: str = "w1", kind: TaskKind = ACTIVITY) -> list[Leased]:
    [verdict] = await scene.ask(a_poll(kind, worker_id, tasks_max=most))
    return list(leased_of(verdict))


async def drained_after_ms(scene: Scene, count: int, servers: int = 1) -> int:
    """How long it takes until so many are handed out, when whoever polls looks again when it is told to.

    Polls go to one server after the other; they know nothing of each other but what is written down.
    """
    houses = [replace(scene.ctx) for _ in range(servers)]
    queue = await scene.queue(ACTIVITY)
    began, taken = scene.clock.now_ms(), 0
    for ctx in itertools.islice(itertools.cycle(houses), FIRST_LOOKS_MAX):
        poll = a_poll(ACTIVITY, tasks_max=min(100, count - taken))
        [verdict] = await claim_tasks(ctx, queue.queue_id, [poll], None)
        taken += len(leased_of(verdict))
        if taken == count:
            return scene.clock.now_ms() - began
        if isinstance(verdict, Held):
            assert verdict.retry_in_ms is not None
            scene.clock.advance(verdict.retry_in_ms)
    raise AssertionError("there is no end of it")


class TestNumbers:
    @pytest.mark.parametrize("servers", [1, 3])
    @pytest.mark.parametrize(
        ("per_second", "count", "burst_ms", "after_ms"),
        [(10, 80, None, 7_000), (2, 12, None, 5_000), (10, 80, 100, 7_900), (0.5, 3, None, 4_000)],
    )
    async def test_so_many_take_the_time_of_those_beyond_the_burst(
        self, scene: Scene, servers: int, per_second: float, count: int, burst_ms: int | None, after_ms: int
    ) -> None:
        await scene.register()
        await say(scene, per_second, burst_ms=burst_ms)
        await fill(scene, count)
        assert await drained_after_ms(scene, count, servers) == after_ms

    async def test_who_asks_every_few_milliseconds_gets_the_burst_and_the_rate_and_no_more(
        self, scene: Scene
    ) -> None:
        await scene.register()
        await say(scene, 40)
        await fill(scene, 250)
        taken = 0
        for _ in range(5_000 // 20 + 1):
            taken += len(await some(scene, 7))
            scene.clock.advance(20)
        assert taken == 40 + 40 * 5

    async def test_each_attempt_costs_a_token(self, scene: Scene) -> None:
        await scene.register()
        await say(scene, 10)
        await fill(scene, 30, retry=tries(2, 0))
        began, attempts = scene.clock.now_ms(), 0
        while attempts < 60:
            for leased in await some(scene, 100):
                attempts += 1
                if leased.task.attempt == 1:
                    await scene.fail_activity(leased)
            if attempts < 60:
                await scene.advance(100)
        assert scene.clock.now_ms() - began == 5_000

    async def test_workflow_tasks_cost_none(self, scene: Scene) -> None:
        await scene.register()
        await say(scene, 0.01)
        for number in range(20):
            await scene.start(f"order-{number}")
        assert len(await some(scene, 100, kind=WORKFLOW)) == 20

    async def test_a_rate_that_is_raised_acts_within_two_of_its_intervals_not_after_the_debt_of_the_old_one(
        self, scene: Scene
    ) -> None:
        await scene.register()
        await say(scene, 0.01)
        await fill(scene, 5)
        assert len(await some(scene, 5)) == 1
        await say(scene, 10)
        assert await drained_after_ms(scene, 1) <= 200


class TestWhoIsHeard:
    async def test_a_worker_without_a_cap_does_not_lift_it(self, scene: Scene) -> None:
        await scene.register("w1", activities_per_second_micro=5 * PER_SECOND)
        await scene.register("w2")
        await fill(scene, 60)
        taken = 0
        for number in range(11):
            taken += len(await some(scene, 100, f"w{number % 2 + 1}"))
            await worker_registry.heartbeat(scene.ctx, "default", "w2", None, None, None)
            scene.clock.advance(1_000)
        assert taken == 5 + 5 * 10
        assert await rate(scene) == (5, "worker")

    async def test_the_operator_raises_lowers_and_pauses(self, scene: Scene) -> None:
        await scene.register()
        await say(scene, 5)
        await operate(scene, 50)
        assert await rate(scene) == (50, "operator")
        await say(scene, 100)
        await operate(scene, 5)
        assert await rate(scene) == (5, "operator")
        await operate(scene, 0)
        await fill(scene, 3)
        assert await some(scene, 3) == []
        scene.clock.advance(60 * MINUTE)
        assert await some(scene, 3) == []
        await operate(scene, UNSET)
        assert await rate(scene) == (None, "none")
        await say(scene, 100)
        assert await rate(scene) == (100, "worker")
        assert len(await some(scene, 3)) == 3

    async def test_no_rate_exceeds_the_system_limit(self) -> None:
        scene = a_scene(queue_rate_max="7")
        await admission.declare(scene.ctx, scene.ctx.settings.admission, "server")
        await scene.register()
        assert await rate(scene) == (7, "system")
        await say(scene, 100)
        assert await rate(scene) == (7, "system")
        await operate(scene, 50)
        assert await rate(scene) == (7, "system")
        await operate(scene, 3)
        assert await rate(scene) == (3, "operator")
        await fill(scene, 20)
        assert len(await some(scene, 20)) == 3


class TestLapses:
    async def test_a_report_that_is_not_repeated_expires_after_five_minutes(self, scene: Scene) -> None:
        await scene.register()
        await scene.register("w2")
        await say(scene, 2)
        await fill(scene, 40)
        scene.clock.advance(5 * MINUTE - 1)
        assert await rate(scene) == (2, "worker")
        assert len(await some(scene, 40, "w2")) == 2
        scene.clock.advance(MINUTE // 4 + 1)
        assert await rate(scene) == (None, "none")
        assert len(await some(scene, 40, "w2")) == 38

    async def test_a_poll_held_by_a_slow_rate_is_retried_when_it_expires(self, scene: Scene) -> None:
        await scene.register()
        await say(scene, 0.001)
        await fill(scene, 3)
        assert await drained_after_ms(scene, 3) == 5 * MINUTE + MINUTE // 4

    @pytest.mark.parametrize("every_ms", [1_000, 59_000, 4 * MINUTE + 59_000])
    async def test_it_holds_while_it_is_repeated(self, scene: Scene, every_ms: int) -> None:
        await scene.register()
        for _ in range(15 * MINUTE // every_ms + 1):
            await say(scene, 2)
            assert await rate(scene) == (2, "worker")
            scene.clock.advance(every_ms)
        assert await rate(scene) == (2, "worker")

    async def test_how_long_it_holds_is_a_setting(self) -> None:
        scene = a_scene(queue_rate_ttl="10")
        await say(scene, 2)
        scene.clock.advance(9_999)
        assert await rate(scene) == (2, "worker")
        scene.clock.advance(501)
        assert await rate(scene) == (None, "none")

    async def test_what_is_in_force_for_long_enough_is_not_written_again(self, scene: Scene) -> None:
        await scene.register()
        await say(scene, 2)
        before = (await view(scene)).queue.worker_rate
        for worker_id in ("w1", "w2", "w3"):
            await say(scene, 2, worker_id)
        assert (await view(scene)).queue.worker_rate == before
        scene.clock.advance(MINUTE // 4 + 1)
        await say(scene, 2, "w3")
        after = (await view(scene)).queue.worker_rate
        assert after is not None
        assert (after.worker_id, after.at_ms) == ("w3", scene.clock.now_ms())


class TestChanges:
    async def test_a_worker_that_changes_the_rate_of_its_queue_is_logged_and_one_that_repeats_it_is_not(
        self, scene: Scene
    ) -> None:
        with capture_logs() as logs:
            await say(scene, 5)
            await say(scene, 5)
            scene.clock.advance(2 * MINUTE)
            await say(scene, 5)
            await say(scene, 50, "w2")
        reported = [(each["worker_id"], each["worker_id_before"], each["per_second"]) for each in logs]
        assert reported == [("w1", None, 5), ("w2", "w1", 50)]


class TestConflicts:
    async def test_a_conflict_between_two_workers_is_logged_once_and_shown(self, scene: Scene) -> None:
        await scene.register("w1")
        await scene.register("w2")
        with capture_logs() as logs:
            for _ in range(10):
                await say(scene, 5, "w1")
                scene.clock.advance(1_000)
                await say(scene, 50, "w2")
                scene.clock.advance(1_000)
        [reported] = [each for each in logs if each["event"] == "queue.rate_conflict"]
        assert reported["log_level"] == "warning"
        assert (reported["task_queue"], reported["worker_id"], reported["other_worker_id"]) == (
            "orders",
            "w1",
            "w2",
        )
        assert (reported["per_second"], reported["other_per_second"]) == (5, 50)
        reported_rate = (await view(scene)).queue.worker_rate
        assert reported_rate is not None
        assert reported_rate.conflict is not None
        assert await rate(scene) == (50, "worker")

    async def test_a_worker_that_left_or_fell_silent_is_no_rival(self, scene: Scene) -> None:
        await scene.register("w1")
        await scene.register("w2")
        with capture_logs() as logs:
            await say(scene, 5, "w1")
            await worker_registry.deregister(scene.ctx, "default", "w1")
            await say(scene, 50, "w2")
            scene.clock.advance(61_000)
            await say(scene, 8, "w3")
        assert [(each["event"], each["per_second_before"], each["per_second"]) for each in logs] == [
            ("queue.rate_conveyed", None, 5),
            ("queue.rate_conveyed", 5, 50),
            ("queue.rate_conveyed", 50, 8),
        ]
        reported_rate = (await view(scene)).queue.worker_rate
        assert reported_rate is not None
        assert reported_rate.conflict is None
