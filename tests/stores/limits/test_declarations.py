"""The limits that servers declare when they start, on every store: which configuration holds, and what is recorded."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core.limits.admission import Declaration, DeclaredScope, LimitField, cluster_scope
from penstock.core.limits.declarations import differences
from penstock.core.limits.windows import Window
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission
from penstock.ports.store import Store
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from tests.support.entropy import CountingEntropy

FIVE = Declaration(defaults={"activity": {LimitField.QUEUE_LEASES: 5}}, version=2)
NINE = Declaration(defaults={"activity": {LimitField.QUEUE_LEASES: 9}}, version=1)


@pytest.fixture
def ctx(store: Store) -> EngineContext:
    return EngineContext(store, LocalWakeups(), CountingEntropy(), load({"DW_AUTH_DRIVER": "none"}))


async def in_force(ctx: EngineContext) -> Declaration:
    async def operation(tx):
        return (await tx.scopes.admission()).declaration

    return await ctx.store.read(operation)


async def test_an_old_server_that_restarts_during_a_rollout_does_not_undo_the_new_limits(
    ctx: EngineContext,
) -> None:
    await admission.declare(ctx, NINE, "old")
    await admission.declare(ctx, FIVE, "new")
    refused = await admission.declare(ctx, NINE, "old")
    assert refused is not None
    assert refused.is_refused
    assert [each.text for each in refused.differences] == [
        "defaults.activity_tasks.max_active_leases_per_queue: 5 -> 9",
        "version: 2 -> 1",
    ]
    assert await in_force(ctx) == FIVE
    refused = await admission.declare(ctx, Declaration(), "without")
    assert refused is not None
    assert refused.is_refused, "a configuration that declares nothing has version 0"
    assert await in_force(ctx) == FIVE


async def test_of_one_version_the_last_server_to_start_wins(ctx: EngineContext) -> None:
    await admission.declare(ctx, replace(NINE, version=0), "one")
    replaced = await admission.declare(ctx, replace(FIVE, version=0), "two")
    assert replaced is not None
    assert not replaced.is_refused
    assert replaced.before.declared_by == "one"
    assert await in_force(ctx) == replace(FIVE, version=0)
    assert await admission.declare(ctx, replace(FIVE, version=0), "three") is None


async def test_the_change_history_shows_each_declared_limit_that_changed(ctx: EngineContext) -> None:
    await admission.declare(ctx, NINE, "old")
    await admission.declare(ctx, FIVE, "new")
    await admission.declare(ctx, NINE, "old")
    changes = await admission.declaration_history(ctx, 10)
    assert [(each.author, each.setting, each.before, each.after) for each in changes] == [
        ("new", "defaults.activity_tasks.max_active_leases_per_queue", "9", "5"),
        ("new", "version", "1", "2"),
        ("old", "defaults.activity_tasks.max_active_leases_per_queue", None, "9"),
        ("old", "version", None, "1"),
    ]
    assert changes[0].reason == "declared by the configuration of new, DW_ADMISSION_VERSION 2"


def test_every_part_of_a_declaration_is_compared() -> None:
    full = Declaration(
        defaults={"workflow": {LimitField.NAMESPACE_LEASES: 1}},
        overrides={"shop:email": {"activity": {LimitField.QUEUE_LEASES: None, LimitField.GROUP: "mail"}}},
        scopes={cluster_scope(): DeclaredScope(leases=4, dispatches=3, cost=2, window=Window.SLIDING)},
        window=Window.SLIDING,
        rate_max_micro=2_500_000,
        version=1,
    )
    assert differences(full, full) == []
    assert {each.name: each.after for each in differences(Declaration(), full)} == {
        "version": 1,
        "window": "sliding",
        "queue_rate_max": 2.5,
        "defaults.workflow_tasks.max_active_leases_per_namespace": 1,
        "queues.shop:email.activity_tasks.max_active_leases_per_queue": "default",
        "queues.shop:email.activity_tasks.dispatch_budget_group": "mail",
        "cluster.max_active_leases": 4,
        "cluster.max_dispatches_per_minute": 3,
        "cluster.max_cost_per_minute": 2,
        "cluster.window": "sliding",
    }
