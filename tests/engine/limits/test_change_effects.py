"""What was granted under a change set: every grant cites the versions of the settings that it was made under."""

from __future__ import annotations

import dataclasses
import json

import pytest
from msgspec.structs import replace

from penstock.core.limits.admission import namespace_scope, queue_scope
from penstock.core.limits.change_effects import GrantsUnder
from penstock.core.limits.change_sets import ItemTarget, Stored
from penstock.core.limits.policies import LimitSetting
from penstock.core.model import TaskKind
from penstock.engine.limits import change_effects, change_sets, policies
from penstock.engine.limits.change_sets import ChangeSetRequest
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.operations import journal
from tests.engine.support.scene import Scene, a_poll
from tests.support.claims import leased_of
from tests.support.ephemeral import ephemeral_store
from tests.support.people import operator

QUEUE, NAMESPACE = queue_scope("default", "orders", "activity"), namespace_scope("default")


@pytest.fixture
async def journaling(scene: Scene) -> Scene:
    """A scene with a journal."""
    store = ephemeral_store(scene.clock, scene.wakeups, journals=True)
    return dataclasses.replace(scene, ctx=replace(scene.ctx, store=store))


async def grant(scene: Scene, count: int) -> None:
    for number in range(count):
        await scene.start_activity(f"a-{scene.clock.now_ms()}-{number}")
    scene.clock.advance(2_000)
    [granted] = await scene.ask(a_poll(TaskKind.ACTIVITY, tasks_max=count))
    assert len(leased_of(granted)) == count


async def applied(scene: Scene, asked: dict[ItemTarget, Stored]) -> str:
    by = operator("ada")
    view = await change_sets.propose(scene.ctx, "default", ChangeSetRequest(asked, "why"), by)
    await change_sets.apply(scene.ctx, "default", view.change_set.change_set_id, by)
    return view.change_set.change_set_id


async def test_grants_and_waits_are_told_under_the_settings_before_a_change_set_and_under_its_own(
    journaling: Scene,
) -> None:
    scene = journaling
    await scene.register(activity_slots=100)
    await grant(scene, 2)
    scene.clock.advance(1)
    change_set_id = await applied(
        scene, {ItemTarget(QUEUE, "max_running"): 50, ItemTarget(NAMESPACE, "max_running"): 60}
    )
    await grant(scene, 3)
    found = await change_effects.effect(scene.ctx, "default", change_set_id)
    of_namespace, of_queue = found.scopes
    assert of_queue.before == GrantsUnder(0, 2, 2_000, 2_000, 2_000)
    assert of_queue.under == GrantsUnder(1, 3, 2_000, 2_000, 2_000)
    assert (of_namespace.under.grants, of_namespace.before.grants) == (3, 0)
    assert of_queue.is_current
    assert not found.gaps
    update = PolicyUpdate({LimitSetting.QUEUE_RATE: SettingChange(100_000_000)})
    await policies.configure(scene.ctx, "default", "orders", TaskKind.ACTIVITY, update, "eve")
    await grant(scene, 4)
    _, of_queue = (await change_effects.effect(scene.ctx, "default", change_set_id)).scopes
    assert (of_queue.under.grants, of_queue.is_current) == (3, False)


async def test_every_grant_cites_the_version_that_the_queue_and_each_counting_scope_had(
    journaling: Scene,
) -> None:
    scene = journaling
    await scene.register(activity_slots=100)
    for cap in (50, 60, 70):
        await applied(
            scene, {ItemTarget(QUEUE, "max_running"): cap, ItemTarget(NAMESPACE, "max_running"): cap}
        )
        await grant(scene, 1)
    lines = [json.loads(line) for _, line in await journal.page(scene.ctx, 0, 1_000)]
    cited = [
        {each["scope"]: each["version"] for each in line["scopes"]}
        for line in lines
        if line["event"] == "granted"
    ]
    assert cited == [{QUEUE: version, NAMESPACE: version} for version in (1, 2, 3)]


async def test_what_the_journal_cannot_tell_is_said(scene: Scene, journaling: Scene) -> None:
    without = await applied(scene, {ItemTarget(QUEUE, "max_running"): 5})
    [gap] = (await change_effects.effect(scene.ctx, "default", without)).gaps
    assert "keeps no journal" in gap
    change_set_id = await applied(journaling, {ItemTarget(QUEUE, "max_running"): 5})
    [gap] = (await change_effects.effect(journaling.ctx, "default", change_set_id)).gaps
    assert "begins after the apply" in gap
