"""Random programs of operators: change sets, direct changes, approvals, expiries and rollbacks, checked by a model.

On SQLite the steps come one after the other and time passes; on PostgreSQL two servers do two of them at a time, and
what they did must be what the model does in one of the two orders.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from copy import deepcopy
from typing import Any

import pytest

from penstock.core.limits.admission import queue_of_scope
from penstock.core.limits.change_sets import ItemTarget
from penstock.core.limits.policies import PAUSED, LimitSetting
from penstock.core.model import TaskKind
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission, change_approvals, change_sets, policies
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.change_set_state import present
from penstock.engine.limits.change_sets import ApplyRequest, ChangeSetRequest
from penstock.engine.limits.policies import KeySettingsChange, PolicyUpdate, SettingChange
from penstock.errors import PenstockError
from penstock.ports.store import Tx
from penstock.settings import load
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.system_clock import SystemEntropy
from penstock.wakeups.local import LocalWakeups
from tests.engine.support.scene import Scene, a_scene
from tests.support.change_set_model import TARGETS, Model, program
from tests.support.effort import times
from tests.support.people import admin, operator

STEPS = 120
ROUNDS = 40
_CREATING = ("propose", "rollback")


class Driver:
    """Does the steps of a program on servers, and reads what became of them."""

    def __init__(self, servers: Sequence[EngineContext]) -> None:
        self._servers = servers
        self._ids: list[str] = []
        self._serial = 0

    async def do(self, step: tuple[Any, ...], server: int = 0) -> str:
        """Carry out a step on one of the servers; what becomes of it in one word."""
        try:
            return await getattr(self, f"_{step[0]}")(self._servers[server], *step[1:]) or "done"
        except PenstockError as refused:
            return refused.reason.value

    async def _propose(self, ctx: EngineContext, by: str, asked: Any, lasts_ms: int | None) -> None:
        request = ChangeSetRequest(asked, "why", lasts_ms=lasts_ms)
        found = await change_sets.propose(ctx, "default", request, _who(by))
        self._ids.append(found.change_set.change_set_id)

    async def _edit(self, ctx: EngineContext, by: str, number: int, asked: Any) -> None:
        request = ChangeSetRequest(asked, "again")
        await change_sets.edit(ctx, "default", self._ids[number], request, _who(by))

    async def _approve(self, ctx: EngineContext, by: str, number: int) -> None:
        await change_approvals.approve(ctx, "default", self._ids[number], _who(by))

    async def _unapprove(self, ctx: EngineContext, by: str, number: int) -> None:
        await change_approvals.unapprove(ctx, "default", self._ids[number], _who(by))

    async def _apply(self, ctx: EngineContext, by: str, number: int, glass: bool) -> str | None:
        request = ApplyRequest(break_glass="fire" if glass else None)
        found = await change_sets.apply(ctx, "default", self._ids[number], _who(by), request)
        return "stale" if found.change_set.may_be_applied else None

    async def _schedule(self, ctx: EngineContext, by: str, number: int, at_ms: int) -> None:
        await change_sets.schedule(ctx, "default", self._ids[number], _who(by), ApplyRequest(at_ms))

    async def _withdraw(self, ctx: EngineContext, by: str, number: int) -> None:
        await change_sets.withdraw(ctx, "default", self._ids[number], _who(by))

    async def _rollback(self, ctx: EngineContext, by: str, number: int) -> None:
        found = await change_sets.roll_back(ctx, "default", self._ids[number], "worse", _who(by))
        self._ids.append(found.change_set.change_set_id)

    async def _set(self, ctx: EngineContext, by: str, target: ItemTarget, value: int) -> None:
        if target.key is not None:
            keys = {target.key: KeySettingsChange(weight_milli=value)}
            await self._configure(ctx, by, target.scope, PolicyUpdate(keys=keys))
            return
        change = {LimitSetting(target.setting): SettingChange(value, self._reason())}
        if queue_of_scope(target.scope) is None:
            await admission.configure(ctx, target.scope, ScopeUpdate(change), by)
        else:
            await self._configure(ctx, by, target.scope, PolicyUpdate(change))

    async def _pause(self, ctx: EngineContext, by: str, scope: str) -> None:
        change = {LimitSetting.PAUSED: SettingChange(PAUSED, self._reason())}
        await self._configure(ctx, by, scope, PolicyUpdate(change))

    async def _configure(self, ctx: EngineContext, by: str, scope: str, update: PolicyUpdate) -> None:
        queue = queue_of_scope(scope)
        assert queue is not None
        await policies.change(ctx, queue[0], queue[1], TaskKind(queue[2]), update, by)

    def _reason(self) -> str:
        """A reason of its own, so that no change is without effect."""
        self._serial += 1
        return f"reason {self._serial}"

    async def seen(self) -> tuple[Any, ...]:
        """Values, versions and wanted approvals; and each change set with what is in its way."""

        async def operation(tx: Tx) -> Any:
            return await present(tx, TARGETS)

        ctx = self._servers[0]
        state = await ctx.store.read(operation)
        views = [await change_sets.get(ctx, "default", each) for each in self._ids]
        return (
            {target: state.current[target].value for target in TARGETS},
            dict(state.versions),
            state.wanted,
            [
                (each.change_set.state.value, each.change_set.due_at_ms, each.change_set.author)
                + ((bool(each.moved), each.lacking) if each.change_set.may_be_applied else ())
                for each in views
            ],
        )


class TimedDriver(Driver):
    """Lets time pass as well."""

    def __init__(self, scene: Scene) -> None:
        super().__init__([scene.ctx])
        self._clock = scene.clock

    async def _sweep(self, ctx: EngineContext, ms: int) -> None:
        self._clock.advance(ms)
        while due := await ctx.store.read(lambda tx: tx.change_sets.due(tx.now_ms, 1)):
            assert await change_sets.act_when_due(ctx, due[0])


def _who(name: str) -> Any:
    return admin(name) if name == "root" else operator(name)


def _modelled(model: Model) -> tuple[Any, ...]:
    return (
        model.values,
        model.versions,
        model.wanted,
        [
            (each.state, each.due_at_ms, each.author)
            + ((model.moved(each), model.lacking(each)) if each.is_open else ())
            for each in model.sets
        ],
    )


@pytest.mark.parametrize("seed", range(times(2)))
async def test_whatever_operators_do_while_time_passes_is_what_the_model_does(seed: int) -> None:
    scene = a_scene()
    driver, model = TimedDriver(scene), Model(scene.clock.now_ms())
    steps = program(random.Random(seed), model, timed=True)
    for count in range(STEPS):
        step = next(steps)
        assert (await driver.do(step), step) == (model.do(step), step), (seed, count)
        assert await driver.seen() == _modelled(model), (seed, count, step)


@pytest.fixture
async def servers(postgres_url: str) -> AsyncIterator[list[EngineContext]]:
    await migrate(postgres_url)
    stores = [await PostgresStore.open(postgres_url, LocalWakeups(), node=name) for name in ("one", "two")]
    settings = load({"DW_AUTH_DRIVER": "none"})
    yield [EngineContext(store, LocalWakeups(), SystemEntropy(), settings) for store in stores]
    for store in stores:
        await store.close()


async def test_what_two_servers_do_at_once_is_what_the_model_does_in_one_of_both_orders(
    servers: list[EngineContext],
) -> None:
    driver, model = Driver(servers), Model(0)
    steps = program(random.Random(7), model, timed=False)
    for count in range(times(ROUNDS)):
        first = next(steps)
        if first[0] in _CREATING:
            assert await driver.do(first, count % 2) == model.do(first)
            continue
        second = next(steps)
        while second[0] in _CREATING:
            second = next(steps)
        did = await asyncio.gather(driver.do(first, 0), driver.do(second, 1))
        seen = await driver.seen()
        orders = [deepcopy(model), deepcopy(model)]
        ab = [orders[0].do(first), orders[0].do(second)]
        ba = [orders[1].do(second), orders[1].do(first)][::-1]
        possible = [
            after
            for after, told in zip(orders, (ab, ba), strict=True)
            if told == list(did) and _modelled(after) == seen
        ]
        assert possible, (count, first, second, did, ab, ba, seen)
        model.__dict__.update(possible[0].__dict__)
