"""Under a steady load, tasks start within the range that was estimated when they were enqueued."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from penstock.core.model import TaskPriority
from penstock.core.scheduling.polls import Leased
from penstock.core.why.values import StartEstimate
from penstock.engine.workers import worker_registry
from tests.engine.support.scene import ACTIVITY, Scene, a_poll, a_scene
from tests.engine.support.why_scene import limit, limit_scope, why
from tests.support.claims import leased_of

STEP_MS = 100
WARM_UP_MS = 150_000
LASTS_MS = 330_000


@dataclass(frozen=True)
class Load:
    """The arrival rate, task duration, workers and limits."""

    per_second: float
    slots: int
    takes_ms: int = 1_000
    keys: tuple[str, ...] = ("",)
    levels: tuple[int, ...] = (3,)
    waiting_at_first: int = 0
    limits: Mapping[str, int | str] = field(default_factory=dict)
    scopes: Mapping[str, Mapping[str, int | str]] = field(default_factory=dict)


LOADS = {
    "slots": Load(4, 4, waiting_at_first=60),
    "slots of many keys": Load(4, 4, keys=("a", "b", "c", "d", "e"), waiting_at_first=80),
    "a lease cap": Load(3, 50, takes_ms=2_000, waiting_at_first=40, limits={"lease_cap": 6}),
    "two levels": Load(3.4, 4, levels=(2, 3, 3), waiting_at_first=20),
    "a rate": Load(2, 50, waiting_at_first=40, limits={"queue_rate": 2_000_000}),
    "a minute budget": Load(1.5, 50, waiting_at_first=60, limits={"dispatches": 90}),
    "a sliding budget": Load(1.5, 50, waiting_at_first=60, limits={"dispatches": 90, "window": "sliding"}),
    "a budget group": Load(
        1.5,
        50,
        waiting_at_first=60,
        limits={"group": "g"},
        scopes={"group:default/g": {"dispatches": 90}},
    ),
    "an idle line": Load(1, 50),
}


class Run:
    """One load on the virtual clock, with real claims."""

    def __init__(self, load: Load, seed: int) -> None:
        self._load = load
        self._dice = random.Random(seed)
        self._scene: Scene = a_scene()
        self._running: list[tuple[int, Leased]] = []
        self._told: dict[str, StartEstimate] = {}
        self._count = 0
        self.hits: list[bool] = []
        self.unknown = 0
        self.widths_ms: list[int] = []

    async def go(self) -> None:
        scene, load = self._scene, self._load
        await scene.register(activity_slots=load.slots)
        if load.limits:
            await limit(scene, **load.limits)
        for name, values in load.scopes.items():
            await limit_scope(scene, name, None, **values)
        began_ms = scene.clock.now_ms()
        for _ in range(load.waiting_at_first):
            await self._come(asked=False)
        while (since_ms := scene.clock.now_ms() - began_ms) < LASTS_MS:
            await self._step(asked=since_ms > WARM_UP_MS)

    async def _step(self, *, asked: bool) -> None:
        scene = self._scene
        scene.clock.advance(STEP_MS)
        now_ms = scene.clock.now_ms()
        if now_ms % 10_000 < STEP_MS:
            await worker_registry.heartbeat(scene.ctx, "default", "w1", None, None, None)
        over = [each for each in self._running if each[0] <= now_ms]
        self._running = [each for each in self._running if each[0] > now_ms]
        for _, leased in over:
            await scene.finish(leased)
        if self._dice.random() < self._load.per_second * STEP_MS / 1_000:
            await self._come(asked=asked and self._dice.random() < 0.4)
        await self._poll()

    async def _come(self, *, asked: bool) -> None:
        self._count += 1
        name, dice = f"task-{self._count}", self._dice
        priority = TaskPriority(level=dice.choice(self._load.levels), key=dice.choice(self._load.keys))
        await self._scene.start_activity(name, priority=priority)
        if asked:
            self._told[name] = (await why(self._scene, name)).expected

    async def _poll(self) -> None:
        free = self._load.slots - len(self._running)
        if free <= 0:
            return
        [verdict] = await self._scene.ask(a_poll(ACTIVITY, tasks_max=free))
        now_ms = self._scene.clock.now_ms()
        for leased in leased_of(verdict):
            takes_ms = round(self._load.takes_ms * self._dice.uniform(0.5, 1.5))
            self._running.append((now_ms + takes_ms, leased))
            self._check(leased.run.workflow_id, now_ms)

    def _check(self, name: str, now_ms: int) -> None:
        reported = self._told.pop(name, None)
        if reported is None:
            return
        if reported.from_ms is None:
            self.unknown += 1
            return
        self.hits.append(reported.from_ms <= now_ms and (reported.to_ms is None or now_ms <= reported.to_ms))
        if reported.to_ms is not None:
            self.widths_ms.append(reported.to_ms - reported.from_ms)


@pytest.mark.parametrize("name", list(LOADS))
async def test_on_a_steady_load_starts_fall_inside_the_range_eight_times_in_ten(name: str) -> None:
    run = Run(LOADS[name], seed=4)
    await run.go()
    assert len(run.hits) >= 30
    assert run.unknown == 0
    assert sum(run.hits) >= 0.8 * len(run.hits), f"{sum(run.hits)} of {len(run.hits)}"
    assert len(run.widths_ms) >= 0.8 * len(run.hits), "most ranges have an end"
